//! No zone is isolated while the Shoot moves or ends.

use repot_api::{gardener::shoot::Shoot, names::ISOLATED_ZONE};

use crate::{change::Change, facts::Facts, finding::Finding, isolation::path};

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<Finding> {
    let (old, new) = (Shoot(&change.old), Shoot(&change.new));
    if change.sets(ISOLATED_ZONE).is_none() {
        return Vec::new();
    }
    let what = if old.is_ending() || new.is_ending() {
        "is being deleted"
    } else if old.is_moving() || change.seed_change().start().is_some() {
        "moves between seeds"
    } else {
        return Vec::new();
    };
    vec![Finding::refuse(
        path(),
        format!("the Shoot {what}, and no zone can be isolated meanwhile"),
        "wait until that is over",
    )]
}
