//! What both flows of migrations say of a migration that has failed and is to be tried again.

use repot_api::conditions::Reason;

use super::step::Side;
use crate::{
    flow::{Flow, StepContext},
    ledger::{Phase, WAITING_FOR_OTHER_SIDE},
};

/// Whether the garden lets a migration go on: not where another migration of the Shoot stands in the way, or has begun meanwhile.
///
/// # Errors
/// Names that migration.
pub(crate) fn garden_allows(earlier: Option<&String>, later: Option<&String>) -> Result<(), Reason> {
    match earlier.or(later) {
        Some(name) => Err(Reason::new("AnotherMigration", format!("{name} has begun meanwhile"))),
        None => Ok(()),
    }
}

/// Whether another side goes on: when the garden has followed the request of this number. A garden that has failed again lets nobody
/// go on, since another migration may have begun since.
///
/// # Errors
/// Says that the garden has to begin.
pub(crate) fn garden_has_begun<F: Flow<Side = Side>>(
    context: &StepContext<'_, F>,
    asked: u32,
) -> Result<(), Reason> {
    let garden = context.side(Side::Garden);
    match garden.is_some_and(|garden| garden.retry >= asked && garden.phase != Phase::Failed) {
        true => Ok(()),
        false => Err(Reason::new(WAITING_FOR_OTHER_SIDE, "the garden has to begin")),
    }
}

/// Whether the finalizer is to be set or taken away, where it is not as it has to be. It is set by the first row, goes when all has ended,
/// and comes back when a migration is tried again.
pub(crate) fn finalizer_change(has: bool, needs: bool, retry: u32) -> Option<bool> {
    (needs != has && (has || retry > 0)).then_some(needs)
}
