//! Credentials that are between old and new.

use repot_api::gardener::shoot::Shoot;

use crate::{change::Change, facts::Facts, finding::Finding, migration::unless_dead};

/// In these phases a part of the secrets is written and a part is not; the destination would make the rest by itself.
const UNFIT: &[&str] = &["Preparing", "PreparingWithoutWorkersRollout", "Completing"];

/// In this one both sets are there, and people still roll workers.
const MIND: &str = "WaitingForWorkersRollout";

/// A rotation that a dead source cannot go on with does not hold the Shoot there.
pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some((from, _)) = change.seed_change().start() else { return Vec::new() };
    let finding = |(name, phase): (&str, &str)| {
        let field = format!("status.credentials.rotation.{name}.phase");
        let reason = format!("the rotation of {name} is in phase {phase}");
        if UNFIT.contains(&phase) {
            let advice = "wait for the next phase: a restore now would mix old and new credentials";
            Some(unless_dead(facts, from, Finding::refuse(field, reason, advice)))
        } else if phase == MIND {
            Some(Finding::warn(field, reason, "it is better to roll the workers before the Shoot moves"))
        } else {
            None
        }
    };
    Shoot(&change.old).rotations().into_iter().filter_map(finding).collect()
}
