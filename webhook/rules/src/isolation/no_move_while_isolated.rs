//! No Shoot moves while one of its zones is isolated.

use repot_api::gardener::shoot::Shoot;

use crate::{change::Change, facts::Facts, finding::Finding, isolation::path, migration::unless_dead};

/// Only the source can bring a zone back; where it is dead, waiting for the failback would keep the Shoot there for ever.
pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let isolated = Shoot(&change.old).isolated_zone().or(Shoot(&change.new).isolated_zone());
    match (change.seed_change().start(), isolated) {
        (Some((from, _)), Some(zone)) => {
            let reason = format!(
                "zone {zone:?} of the Shoot is isolated, or its failback is not done, and it cannot move meanwhile"
            );
            let advice = "remove the annotation, and wait until status.zoneIsolation has phase Failback and status Done";
            vec![unless_dead(facts, from, Finding::refuse(path(), reason, advice))]
        }
        _ => Vec::new(),
    }
}
