//! What rows of both tables share.

use super::{
    context::Context,
    flow::MigrationFlow,
    step::{Side, Step},
};
use crate::{
    flow::{OnFailure, Row, Timeout},
    ledger::Check,
};

/// A day, for what nothing can roll back: a person can help meanwhile.
pub(crate) const A_DAY: Timeout<MigrationFlow> = Timeout::Hours(24);

/// A row that has a day, and fails then: it is past the point of no return, or a part of the rollback.
pub(crate) const fn day_long(side: Side, step: Step, check: fn(&Context<'_>) -> Check) -> Row<MigrationFlow> {
    Row { on_failure: OnFailure::Fail, timeout: A_DAY, ..Row::new(side, step, check) }
}
