//! A highly available control plane moves with the members that its spec promises.

use repot_api::{
    gardener::shoot::Shoot,
    names::{IGNORE, IGNORED_FOR},
};
use repot_apimachinery::value::{annotation_of, parse_bool};
use serde_json::Value;

use crate::{change::Change, facts::Facts, finding::Finding, migration::unless_dead};

/// A failure tolerance that was set a moment ago is in the spec only: etcd still has one member, and the destination would
/// restore three.
pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some((from, _)) = change.seed_change().start() else { return Vec::new() };
    let old = Shoot(&change.old);
    if old.failure_tolerance().is_none() || !old.is_unobserved() || is_moved_by_repot(&change.old) {
        return Vec::new();
    }
    let reason = "the Shoot is highly available, and gardenlet has not seen its latest spec (status.observedGeneration)";
    let advice =
        "wait for the reconciliation of the Shoot: etcd may not have the members yet that its spec promises";
    let finding = Finding::refuse("spec.controlPlane.highAvailability", reason, advice);
    vec![unless_dead(facts, from, finding)]
}

/// gardenlet is told to leave such a Shoot alone, so it sees no generation. Repot moves as many members as the Etcd has.
fn is_moved_by_repot(shoot: &Value) -> bool {
    let is_ignored = annotation_of(shoot, IGNORE).and_then(parse_bool) == Some(true);
    is_ignored && annotation_of(shoot, IGNORED_FOR).is_some()
}
