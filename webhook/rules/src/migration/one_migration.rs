//! One migration at a time.

use crate::{
    change::Change, facts::Facts, finding::Finding, migration::SEED_NAME, shoot::Shoot, travel::Travel,
};

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<Finding> {
    let old = Shoot(&change.old);
    let (kind, state) = old.last_operation();
    match Travel::of(change) {
        // Back to the source of a live migration is another rule's business.
        Travel::Back { .. } if old.is_moving_live() => Vec::new(),
        Travel::Back { to } | Travel::Again { to, .. } => {
            let reason = format!(
                "the Shoot is on its way already (last operation: {kind} {state}) and cannot turn to seed {to:?}"
            );
            vec![Finding::refuse(SEED_NAME, reason, "wait until the migration is over")]
        }
        _ => Vec::new(),
    }
}
