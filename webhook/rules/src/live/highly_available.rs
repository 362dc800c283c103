//! Only an etcd of several members can be moved a member at a time.

use repot_api::gardener::shoot::Shoot;

use crate::{change::Change, facts::Facts, finding::Finding, live::wanted};

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<Finding> {
    if !wanted(change) || Shoot(&change.new).failure_tolerance().is_some() {
        return Vec::new();
    }
    vec![Finding::refuse(
        "spec.controlPlane.highAvailability",
        "a live migration needs a highly available control plane, and this one is not",
        "set a failure tolerance first, or remove the trigger to migrate with downtime",
    )]
}
