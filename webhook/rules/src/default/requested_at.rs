//! When a migration was asked for.

use repot_api::names::REQUESTED_AT;

use crate::{change::Change, default::annotate, facts::Facts, finding::PatchOp};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<PatchOp> {
    // Asked a second time about the same write, the time of the first stays.
    if change.seed_change().start().is_none() || change.sets(REQUESTED_AT).is_some() {
        return Vec::new();
    }
    annotate(&change.new, REQUESTED_AT, Some(&facts.now))
}
