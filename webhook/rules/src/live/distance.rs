//! Regions between which one etcd can live.

use repot_api::names::ALLOW_DISTANT_REGIONS;

use crate::{
    change::{Change, says_yes},
    distance::{Way, between},
    facts::Facts,
    finding::Finding,
    live::start,
    migration::SEED_NAME,
    shoot::Shoot,
};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some((from, to)) = start(change) else { return Vec::new() };
    if facts.seed(from).is_none() || facts.seed(to).is_none() {
        return Vec::new();
    }
    let reason = match between(from, to, Shoot(&change.new), facts) {
        Way::SameRegion => return Vec::new(),
        Way::Measured { distance, threshold } if distance <= threshold => return Vec::new(),
        Way::Measured { distance, threshold } => {
            format!("the distance from seed {from:?} to seed {to:?} is {distance}, more than {threshold}")
        }
        Way::Unknown(why) => {
            format!("the distance from seed {from:?} to seed {to:?} cannot be determined: {why}")
        }
    };
    match says_yes(&change.new, ALLOW_DISTANT_REGIONS) {
        true => vec![Finding::warn(SEED_NAME, reason, "it is allowed by an annotation of the Shoot")],
        false => vec![Finding::refuse(SEED_NAME, reason, advice())],
    }
}

/// What to do where the distance is in the way.
fn advice() -> String {
    format!(
        "choose a nearer seed, or set {ALLOW_DISTANT_REGIONS}=true, knowing that etcd may get slow or fail"
    )
}
