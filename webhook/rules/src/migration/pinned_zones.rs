//! Zones to which the control plane is pinned are zones of the destination.

use repot_api::gardener::shoot::Shoot;

use crate::{change::Change, facts::Facts, finding::Finding, migration::destination_zones};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some((zones, to)) = destination_zones(change, facts) else { return Vec::new() };
    let missing: Vec<&str> =
        Shoot(&change.new).pinned_zones().into_iter().filter(|zone| !zones.contains(zone)).collect();
    if missing.is_empty() {
        return Vec::new();
    }
    let reason =
        format!("the control plane is pinned to zones that seed {to:?} has not: {}", missing.join(", "));
    vec![Finding::refuse(
        "spec.controlPlane.zones",
        reason,
        "choose a seed with these zones, or clear the field first",
    )]
}
