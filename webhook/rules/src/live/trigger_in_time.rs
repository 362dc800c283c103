//! The trigger is set on a Shoot that exists and rests.

use repot_api::{gardener::shoot::Shoot, names::LIVE_MIGRATE};

use crate::{
    change::{Change, Operation},
    facts::Facts,
    finding::{Finding, annotation_path},
    live::{trigger_path, wanted},
};

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<Finding> {
    let old = Shoot(&change.old);
    if !wanted(change) {
        return Vec::new();
    }
    if change.operation == Operation::Create {
        let advice = "create the Shoot without it, and set it when the Shoot is to move";
        return vec![Finding::refuse(trigger_path(), "a new Shoot has nothing to move yet", advice)];
    }
    if old.is_moving() && !old.is_moving_live() {
        let reason = "the migration that runs was begun without it and cannot become a live one";
        return vec![Finding::refuse(
            annotation_path(LIVE_MIGRATE),
            reason,
            "wait until the migration is over",
        )];
    }
    Vec::new()
}
