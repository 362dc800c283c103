//! The zone is one that the Shoot uses.

use std::collections::BTreeSet;

use repot_api::names::ISOLATED_ZONE;

use crate::{
    change::Change,
    facts::Facts,
    finding::Finding,
    isolation::{path, zone_code},
    shoot::Shoot,
};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
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

fn list(zones: &BTreeSet<&str>) -> String {
    if zones.is_empty() { "none".to_owned() } else { zones.iter().copied().collect::<Vec<_>>().join(", ") }
}
