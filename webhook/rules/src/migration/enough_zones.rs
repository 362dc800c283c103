//! At least three zones for a control plane that tolerates the failure of one.

use repot_api::gardener::shoot::Shoot;

use crate::{
    change::Change,
    facts::Facts,
    finding::Finding,
    migration::{SEED_NAME, destination_zones},
};

const LEAST: usize = 3;

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some((zones, to)) = destination_zones(change, facts) else { return Vec::new() };
    if Shoot(&change.new).failure_tolerance() != Some("zone") || zones.len() >= LEAST {
        return Vec::new();
    }
    let reason = format!(
        "the control plane tolerates the failure of a zone, which takes {LEAST} zones, and seed {to:?} has {}",
        zones.len()
    );
    vec![Finding::refuse(SEED_NAME, reason, format!("choose a seed with at least {LEAST} zones"))]
}
