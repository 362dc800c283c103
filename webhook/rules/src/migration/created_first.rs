//! Nothing moves before it was made: the state that moves is written by the first seed.

use repot_api::gardener::shoot::Shoot;

use crate::{change::Change, facts::Facts, finding::Finding, migration::SEED_NAME};

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<Finding> {
    let Some((from, _)) = change.seed_change().start() else { return Vec::new() };
    let old = Shoot(&change.old);
    let reason = match (old.status_seed(), old.last_operation()) {
        (None, _) => format!("the Shoot was not created on seed {from:?} yet: status.seedName is empty"),
        (Some(_), ("Create", state)) if state != "Succeeded" => {
            format!("the creation of the Shoot is {state:?}")
        }
        _ => return Vec::new(),
    };
    vec![Finding::refuse(SEED_NAME, reason, "wait until the creation has succeeded, or delete the Shoot")]
}
