//! A seed is never taken away.

use repot_api::gardener::seed_change::SeedChange;

use crate::{change::Change, facts::Facts, finding::Finding, migration::SEED_NAME};

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<Finding> {
    let SeedChange::Unset { from } = change.seed_change() else { return Vec::new() };
    let reason = format!("the Shoot is on seed {from:?} and cannot be without one");
    vec![Finding::refuse(SEED_NAME, reason, "name the seed to which it is to move")]
}
