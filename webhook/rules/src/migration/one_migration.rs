//! One migration at a time.

use repot_api::{
    gardener::{progress::Progress, seed_change::SeedChange, shoot::Shoot},
    names::CONFIRM_LEAVE_DESTINATION,
};
use repot_apimachinery::value::annotation_of;

use crate::{
    change::Change,
    facts::Facts,
    finding::{Finding, annotation_path},
    migration::{SEED_NAME, is_dead},
};

/// A Shoot goes back before its move has begun where Gardener holds it back, and after Repot has rolled its migration back. A destination that dies in the middle may be left for
/// another seed, or for the source, with a confirmation that names it.
pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let old = Shoot(&change.old);
    let (kind, state) = old.last_operation();
    let to = match change.seed_change() {
        SeedChange::Back { .. } if old.waits_for_destination() || old.is_rolled_back() => return Vec::new(),
        // Back to the source of a live migration is another rule's business.
        SeedChange::Back { .. } if old.is_moving_live() => return Vec::new(),
        SeedChange::Back { to } | SeedChange::Again { to, .. } => to,
        _ => return Vec::new(),
    };
    let reason = format!(
        "the Shoot is on its way already (last operation: {kind} {state}) and cannot turn to seed {to:?}"
    );
    let destination = old.spec_seed().filter(|seed| is_dead(facts, seed));
    // Before its point of no return a live migration is called off instead.
    let forward_only = !old.is_moving_live() || Progress(&change.old).is_past_return();
    let Some(destination) = destination.filter(|_| forward_only) else {
        return vec![Finding::refuse(SEED_NAME, reason, "wait until the migration is over")];
    };
    if annotation_of(&change.new, CONFIRM_LEAVE_DESTINATION) == Some(destination) {
        let reason = format!(
            "the Shoot leaves destination seed {destination:?}, which does not answer, for seed {to:?}"
        );
        let advice =
            "when that seed answers again, remove there what it has of the Shoot before gardenlet starts";
        return vec![Finding::warn(SEED_NAME, reason, advice)];
    }
    let advice = format!(
        "destination seed {destination:?} does not answer: if it will not come back, confirm by annotation \
         {CONFIRM_LEAVE_DESTINATION}={destination}"
    );
    vec![Finding::refuse(annotation_path(CONFIRM_LEAVE_DESTINATION), reason, advice)]
}
