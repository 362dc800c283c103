//! The zone that is named.

use std::collections::BTreeSet;

use repot_api::names::{ISOLATED_ZONE, OPERATION, OPERATION_RECONCILE};

use crate::{
    change::{Change, annotation_of},
    facts::Facts,
    finding::{Finding, annotation_path},
    isolation::{path, without, zone_code},
    shoot::{Seed, Shoot},
};

const LONGEST: usize = 63;

/// It looks like the id of a zone.
pub(crate) fn form(change: &Change, _: &Facts) -> Vec<Finding> {
    let Some(id) = change.sets(ISOLATED_ZONE) else { return Vec::new() };
    let inner =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_' | b'.');
    let outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = id.as_bytes();
    let fits = id.len() <= LONGEST && id.bytes().all(inner) && outer(bytes.first()) && outer(bytes.last());
    if fits {
        return Vec::new();
    }
    let reason = "the value does not look like the id of one zone";
    vec![Finding::refuse(path(), reason, "name one zone by the provider's id for it, such as euc1-az1")]
}

/// It is a zone that the Shoot uses.
pub(crate) fn used(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some(id) = change.sets(ISOLATED_ZONE) else { return Vec::new() };
    let zones = Shoot(&change.new).worker_zones();
    let Some(code) = zone_code(change, facts, id) else {
        let reason = format!("nobody knows which zone of the Shoot has the id {id:?}");
        let advice = "see that it is one of its workers' zones before you wait for an effect";
        return vec![Finding::warn(path(), reason, advice)];
    };
    if zones.contains(code.as_str()) {
        return Vec::new();
    }
    let reason = format!("zone {id:?} is {code:?} to the Shoot, and its workers are in {}", list(&zones));
    vec![Finding::refuse(path(), reason, "name a zone that its workers use")]
}

/// Something is left to run in.
pub(crate) fn others_left(change: &Change, facts: &Facts) -> Vec<Finding> {
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

fn control_plane_left(shoot: Shoot<'_>, facts: &Facts, id: &str, code: &str) -> Option<Finding> {
    let pinned: BTreeSet<&str> = shoot.pinned_zones().into_iter().collect();
    let seed = shoot.status_seed().and_then(|name| facts.seed(name));
    let (zones, field) = if pinned.is_empty() {
        (seed.map(|seed| Seed(seed).zones().into_iter().collect()).unwrap_or_default(), "spec.seedName")
    } else {
        (pinned, "spec.controlPlane.zones")
    };
    let lost = zones.contains(code) && without(&zones, code).is_empty();
    lost.then(|| {
        let reason = format!("the control plane is in zone {code:?} ({id}) only, and none would be left");
        Finding::refuse(field, reason, "move the control plane to a seed with other zones first")
    })
}

/// Somebody has to do it.
pub(crate) fn reconciled(change: &Change, _: &Facts) -> Vec<Finding> {
    let changed = annotation_of(&change.old, ISOLATED_ZONE) != annotation_of(&change.new, ISOLATED_ZONE);
    let asked = annotation_of(&change.new, OPERATION) == Some(OPERATION_RECONCILE);
    if !changed || asked || change.sets(ISOLATED_ZONE).is_none() {
        return Vec::new();
    }
    let reason = "nothing happens before the next reconciliation";
    let advice = format!("set {OPERATION}={OPERATION_RECONCILE} to have it at once");
    vec![Finding::warn(annotation_path(OPERATION), reason, advice)]
}

fn list(zones: &BTreeSet<&str>) -> String {
    if zones.is_empty() { "none".to_owned() } else { zones.iter().copied().collect::<Vec<_>>().join(", ") }
}
