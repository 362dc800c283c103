//! The trigger: two spellings of one wish.

use repot_api::names::{LIVE_MIGRATE, OPERATION};

use crate::{
    change::{Change, Operation},
    facts::Facts,
    finding::{Finding, annotation_path},
    live::{touches, trigger_path, wanted},
    shoot::{Shoot, Trigger},
    travel::Travel,
};

/// It can be read, and its two spellings say the same.
pub(crate) fn clear(change: &Change, _: &Facts) -> Vec<Finding> {
    let starts = Travel::start(change).is_some();
    match Shoot(&change.new).trigger() {
        Trigger::Unreadable if starts || change.sets(LIVE_MIGRATE).is_some() => {
            vec![Finding::refuse(
                trigger_path(),
                "the value is neither true nor false",
                "set it to \"true\", or remove it",
            )]
        }
        Trigger::Disagree if starts || touches(change) => {
            let reason =
                format!("{OPERATION}=live-migrate asks for a live migration, and {LIVE_MIGRATE} denies it");
            vec![Finding::refuse(trigger_path(), reason, "remove one of the two")]
        }
        _ => Vec::new(),
    }
}

/// It is set on a Shoot that exists and rests.
pub(crate) fn in_time(change: &Change, _: &Facts) -> Vec<Finding> {
    let old = Shoot(&change.old);
    if !wanted(change) {
        return Vec::new();
    }
    if change.operation == Operation::Create {
        let advice = "create the Shoot without it, and set it when the Shoot is to move";
        return vec![Finding::refuse(trigger_path(), "a new Shoot has nothing to move yet", advice)];
    }
    if old.is_moving() && old.trigger() != Trigger::Live {
        let reason = "the migration that runs was begun without it and cannot become a live one";
        return vec![Finding::refuse(
            annotation_path(LIVE_MIGRATE),
            reason,
            "wait until the migration is over",
        )];
    }
    Vec::new()
}
