//! Isolation of a zone of a Shoot (GEP-21): machines leave the zone, its networks are cut off, and later all of that is undone.
//!
//! **One table has both directions.** Its first rows are the failover, [`Step::IsolationEnds`] waits for as long as the zone is isolated,
//! and the last rows are the failback. Where the isolation is called off in the middle of the failover, the rows that are left count as
//! reached at once, and the failback follows from there. So there is no rollback table, and an abort is what ends every isolation.
//!
//! **No row gives up.** An isolation has a desired state, and works on it until somebody calls it off: a zone that is half
//! isolated is no better when nobody works on it. A row that takes longer than `spec.stepTimeout` is shown as `Failed` in
//! `status.zoneIsolation` of the Shoot, and goes on.
//!
//! **Machines of other zones are left alone.** No effect of this flow names any; [`capacity`] is asked before anything is changed.
//!
//! | file | has |
//! |---|---|
//! | `step.rs` | sides and steps |
//! | `observed.rs`, `notes.rs`, `effect.rs` | what each side observes, remembers and can request |
//! | `table.rs` | the table |
//! | `garden.rs`, `seed.rs` | checks and effects of the rows, by side |
//! | `capacity.rs` | whether other zones can take over |
//! | `shown.rs` | what the status of the Shoot shows |
//! | `context.rs`, `flow.rs` | what rows decide on, and the flow of the engine |

pub mod capacity;
mod context;
pub mod effect;
mod flow;
mod garden;
mod notes;
pub mod observed;
mod seed;
pub mod shown;
mod step;
mod table;

pub use context::ZoneIsolationFlow;
pub use notes::Notes;
pub use step::{IsolationSide, Step};
pub use table::{PLAN, PLAN_VERSION, PLANS};
