//! Something is left to run in.

use std::collections::BTreeSet;

use repot_api::{
    gardener::shoot::{Seed, Shoot},
    names::ISOLATED_ZONE,
};
use repot_apimachinery::value::text_at;

use crate::{
    change::Change,
    facts::Facts,
    finding::Finding,
    isolation::{without, zone_code},
};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some(id) = change.sets(ISOLATED_ZONE) else { return Vec::new() };
    let shoot = Shoot(&change.new);
    let code = zone_code(change, facts, id).unwrap_or_else(|| id.to_owned());
    let mut findings = workers_left(shoot, id, &code);
    findings.extend(control_plane_left(shoot, facts, id, &code));
    findings
}

fn workers_left(shoot: Shoot<'_>, id: &str, code: &str) -> Vec<Finding> {
    let zones = shoot.worker_zones();
    if zones.contains(code) && without(&zones, code).is_empty() {
        let reason = format!("all workers are in zone {code:?} ({id}), and none would be left");
        return vec![Finding::refuse("spec.provider.workers", reason, "add workers in another zone first")];
    }
    let stranded = |(at, name, zones): (usize, &str, Vec<&str>)| {
        let all = !zones.is_empty() && zones.iter().all(|zone| *zone == code);
        all.then(|| {
            let reason =
                format!("worker pool {name:?} is in zone {code:?} only, and loses all of its machines");
            let advice = "see that what runs there can run elsewhere";
            Finding::warn(format!("spec.provider.workers[{at}].zones"), reason, advice)
        })
    };
    shoot.pools().filter_map(stranded).collect()
}

/// Seeds are in another account than their Shoots, and one code may be another zone there: only where ids are names do the two
/// mean the same, and even then an isolation takes the workers' networks away, not those of the seed.
fn control_plane_left(shoot: Shoot<'_>, facts: &Facts, id: &str, code: &str) -> Option<Finding> {
    let pinned: BTreeSet<&str> = shoot.pinned_zones().into_iter().collect();
    let seed = shoot.status_seed().and_then(|name| facts.seed(name)).map(Seed)?;
    let one_account = id == code
        && seed.provider() == text_at(shoot.0, "/spec/provider/type")
        && seed.region() == text_at(shoot.0, "/spec/region");
    let (zones, field) = if pinned.is_empty() {
        (seed.zones().into_iter().collect(), "spec.seedName")
    } else {
        (pinned, "spec.controlPlane.zones")
    };
    let lost = one_account && zones.contains(code) && without(&zones, code).is_empty();
    lost.then(|| {
        let reason = format!("the control plane seems to be in zone {id:?} only, and may suffer with it");
        Finding::warn(field, reason, "move the control plane to a seed with other zones")
    })
}
