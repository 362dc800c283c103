//! gardenlet does not migrate a Shoot that has Bastions.

use crate::{
    change::Change,
    facts::Facts,
    finding::Finding,
    migration::{SEED_NAME, unless_dead},
};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some((from, _)) = change.seed_change().start() else { return Vec::new() };
    if facts.bastions.is_empty() {
        return Vec::new();
    }
    let reason = format!(
        "the Shoot has Bastions, and gardenlet waits until they are gone: {}",
        facts.bastions.join(", ")
    );
    let finding = Finding::refuse(SEED_NAME, reason, "delete them first: kubectl delete bastions");
    vec![unless_dead(facts, from, finding)]
}
