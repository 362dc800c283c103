//! The flow engine: a flow is a table of steps, and [`decide`] says what to do next.
//!
//! The engine may not act, and it may not look: what is observed comes in as [`Flow::Observed`], what is recorded as a ledger.
//!
//! **Record before effect.** A step starts by a stored record and nothing else; its effects are requested from the next pass on, when
//! the record is known to be stored. So there is no effect without a recorded decision, and whoever takes over after a crash
//! knows what may have been requested. Effects are targets, requested again in each pass until they are observed: they may be lost,
//! and may arrive late or twice.
//!
//! **Sides.** A flow has one controller for each side. Each writes its own ledger and reads those of the others. A row starts when the
//! rows in its `after` are reached, of whichever side; a row that waits stops only the rows behind it. Each record is stored only
//! if no side's ledger has changed since it was read, so all sides agree on one outcome: a side that starts the point of no
//! return and a side that rolls back exclude each other. A side that sees another one roll back rolls back as well.
//!
//! **Versions.** A flow goes to its end by the version of the tables that started it ([`Plans`]).
//!
//! | file | has |
//! |---|---|
//! | `model.rs` | the types of a flow, and what a row decides on |
//! | `table.rs` | rows, tables, versions |
//! | `pass.rs` | one pass: the outcome, and the order of rows |
//! | `step.rs` | one row in a pass: started, reached, timed out, failed |

mod model;
mod pass;
mod step;
mod table;

pub use model::{
    ATTEMPTS, Abort, CANCELLED, Decision, Evidence, Flow, HEARTBEAT, Input, LedgerOf, PAUSE_LIMIT, POLL,
    Request, SOON, StepContext,
};
pub use pass::decide;
pub use table::{OnFailure, Plan, Plans, Proof, Row, Timeout};
