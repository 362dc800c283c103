//! Regions between which one etcd can live.

use repot_api::{
    gardener::shoot::Shoot,
    names::{ALLOW_DISTANT_REGIONS, REGION_DISTANCE_THRESHOLD, SEED_DISTANCE_THRESHOLD},
};
use repot_apimachinery::value::says_yes;

use crate::{
    change::Change,
    distance::{Unknown, Way, between},
    facts::Facts,
    finding::Finding,
    live::start,
    migration::SEED_NAME,
};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some((from, to)) = start(change) else { return Vec::new() };
    if facts.seed(from).is_none() || facts.seed(to).is_none() {
        return Vec::new();
    }
    let way = between(from, to, Shoot(&change.new), facts);
    let compared = matches!(way, Way::Measured { .. } | Way::Unknown(Unknown::NoThreshold(..)));
    let Some(reason) = way.objection(from, to) else { return Vec::new() };
    match says_yes(&change.new, ALLOW_DISTANT_REGIONS) {
        true => vec![Finding::warn(SEED_NAME, reason, "it is allowed by an annotation of the Shoot")],
        false => vec![Finding::refuse(SEED_NAME, reason, advice(compared, facts))],
    }
}

/// What to do where the distance is in the way.
fn advice(compared: bool, facts: &Facts) -> String {
    let set = match facts.binding {
        _ if !compared => {
            "add the distance to the scheduler's region ConfigMap of the CloudProfile".to_owned()
        }
        true => format!(
            "set annotation {REGION_DISTANCE_THRESHOLD} of the region ConfigMap, the one that gardener-apiserver reads"
        ),
        false => format!(
            "set annotation {SEED_DISTANCE_THRESHOLD} or {REGION_DISTANCE_THRESHOLD} of the region ConfigMap, or flag \
             --default-distance-threshold of repot"
        ),
    };
    format!(
        "choose a nearer seed; or {set}; or set {ALLOW_DISTANT_REGIONS}=true on the Shoot, knowing that etcd may get slow or fail"
    )
}
