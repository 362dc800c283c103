//! The zone is one that the Shoot uses.

use std::collections::BTreeSet;

use repot_api::{
    gardener::shoot::Shoot,
    names::{CONFIRM_ISOLATED_ZONE, ISOLATED_ZONE, ZONE_IDS},
};
use repot_apimachinery::value::annotation_of;

use crate::{
    change::Change,
    facts::Facts,
    finding::Finding,
    isolation::{path, zone_code, zone_form::fits},
};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some(id) = change.sets(ISOLATED_ZONE).filter(|id| fits(id)) else { return Vec::new() };
    let zones = Shoot(&change.new).worker_zones();
    let Some(code) = zone_code(change, facts, id) else {
        let reason = format!("nobody knows which zone of the Shoot has the id {id:?}");
        if annotation_of(&change.new, CONFIRM_ISOLATED_ZONE) == Some(id) {
            let advice = "it is confirmed by an annotation; without such a zone there is no effect";
            return vec![Finding::warn(path(), reason, advice)];
        }
        let advice = format!(
            "list it in annotation {ZONE_IDS} of the CloudProfile; or look the id up in the account of the Shoot, and \
             confirm it by annotation {CONFIRM_ISOLATED_ZONE}={id}"
        );
        return vec![Finding::refuse(path(), reason, advice)];
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
