//! A Shoot that is being deleted has nowhere to go: gardenlet deletes, and does not migrate.

use repot_api::gardener::{seed_change::SeedChange, shoot::Shoot};

use crate::{change::Change, facts::Facts, finding::Finding, migration::SEED_NAME};

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<Finding> {
    let ends = Shoot(&change.old).is_ending() || Shoot(&change.new).is_ending();
    match change.seed_change() {
        SeedChange::Start { .. } | SeedChange::Again { .. } if ends => {
            let advice = "let its seed delete it; where that seed is dead, see forced deletion in Gardener's documentation";
            vec![Finding::refuse(SEED_NAME, "the Shoot is being deleted, and cannot move", advice)]
        }
        _ => Vec::new(),
    }
}
