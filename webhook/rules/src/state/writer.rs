//! Who writes a ShootState.

use repot_api::gardener::shoot::Shoot;
use serde_json::Value;

use crate::{
    change::{Change, Operation},
    facts::Facts,
    finding::Finding,
    state::{by_controllers, is_own},
    who::{Principal, who},
};

const SPEC: &str = "spec";

/// The gardenlet of the source or the destination, and controllers.
pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let touched = change.operation == Operation::Create || !payload(&change.old).eq(payload(&change.new));
    if change.operation == Operation::Delete || !touched {
        return Vec::new();
    }
    match who(&change.user, &facts.settings) {
        Principal::Gardenlet(seed) => of_seed(seed, facts).into_iter().collect(),
        Principal::Controller => Vec::new(),
        Principal::GardenletOfShoot(shoot) if is_own(change, shoot) => Vec::new(),
        Principal::GardenletOfShoot(_) | Principal::Operator | Principal::Other => {
            let reason = "the state of a Shoot is written by the gardenlet of its seed";
            by_controllers(change, facts, SPEC, reason, "leave it to the gardenlet").into_iter().collect()
        }
    }
}

/// Everything but metadata and status. Borrowed: a state may have megabytes.
fn payload(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let members = object.as_object().into_iter().flatten();
    members.filter(|(key, _)| !matches!(key.as_str(), "metadata" | "status"))
}

fn of_seed(seed: &str, facts: &Facts) -> Option<Finding> {
    let Some(shoot) = facts.shoot.as_deref().map(Shoot) else {
        let reason =
            format!("the gardenlet of seed {seed:?} writes the state of a Shoot that does not exist");
        return Some(Finding::refuse(SPEC, reason, "remove what is left of the Shoot on that seed"));
    };
    let own = [shoot.spec_seed(), shoot.status_seed()];
    if own.contains(&Some(seed)) {
        return None;
    }
    let seeds: Vec<&str> = own.into_iter().flatten().collect();
    let reason = format!("the Shoot is on seed {}, and seed {seed:?} has no part in it", seeds.join(" and "));
    Some(Finding::refuse(SPEC, reason, "remove what is left of the Shoot on that seed"))
}
