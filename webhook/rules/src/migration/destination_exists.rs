//! The destination is there, and is to stay.

use repot_api::gardener::seed_change::SeedChange;
use repot_apimachinery::value::is_ending;

use crate::{change::Change, facts::Facts, finding::Finding, migration::SEED_NAME};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let (SeedChange::Start { to, .. } | SeedChange::Again { to, .. }) = change.seed_change() else {
        return Vec::new();
    };
    let reason = match facts.seed(to) {
        None => format!("there is no seed {to:?}"),
        Some(seed) if is_ending(seed) => format!("seed {to:?} is being deleted"),
        Some(_) => return Vec::new(),
    };
    vec![Finding::refuse(SEED_NAME, reason, "name a seed that exists and stays: kubectl get seeds")]
}
