//! Nothing is gained by moving a sleeping control plane live.

use repot_api::gardener::shoot::Shoot;

use crate::{change::Change, facts::Facts, finding::Finding, live::wanted};

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<Finding> {
    // Both sides: status is in the old object only where the subresource is written apart.
    if !wanted(change) || !(Shoot(&change.new).is_asleep() || Shoot(&change.old).is_asleep()) {
        return Vec::new();
    }
    vec![Finding::refuse(
        "spec.hibernation.enabled",
        "the Shoot is hibernated, or is going to sleep or waking up",
        "remove the trigger: a hibernated Shoot has no API that could be down; or wake it and wait",
    )]
}
