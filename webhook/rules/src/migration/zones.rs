//! Zones for a control plane that is to outlive one.

use crate::{
    change::Change,
    facts::Facts,
    finding::Finding,
    migration::SEED_NAME,
    shoot::{Seed, Shoot},
    travel::Travel,
};

const LEAST: usize = 3;

/// At least three zones for a control plane that tolerates the failure of one.
pub(crate) fn enough(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some((zones, to)) = zones(change, facts) else { return Vec::new() };
    if Shoot(&change.new).failure_tolerance() != Some("zone") || zones.len() >= LEAST {
        return Vec::new();
    }
    let reason = format!(
        "the control plane tolerates the failure of a zone, which takes {LEAST} zones, and seed {to:?} has {}",
        zones.len()
    );
    vec![Finding::refuse(SEED_NAME, reason, format!("choose a seed with at least {LEAST} zones"))]
}

/// Zones to which the control plane is pinned are zones of the destination.
pub(crate) fn pinned(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some((zones, to)) = zones(change, facts) else { return Vec::new() };
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

fn zones<'a>(change: &'a Change, facts: &'a Facts) -> Option<(Vec<&'a str>, &'a str)> {
    let (_, to) = Travel::start(change)?;
    Some((Seed(facts.seed(to)?).zones(), to))
}
