//! What all migrations of a control plane between two seeds share: sides, steps, facts, notes, effects, and the rows that stand in more
//! than one table.
//!
//! Three controllers work on one ControlPlaneMigration: one in the garden and one on each seed. Its `spec.mode` chooses the tables:
//! [`classic`](crate::classic), [`forced`](crate::forced) or [`live`](crate::live). All tables are of one flow, so that what was recorded by one can be read
//! as evidence by another: a forced migration supersedes a classic one that is stuck.
//!
//! | file | has |
//! |---|---|
//! | `step.rs` | sides and steps |
//! | `observed.rs` | what each side observes |
//! | `notes.rs` | what each side remembers |
//! | `effect.rs` | what can be requested |
//! | `context.rs` | what rows decide on |
//! | `garden.rs`, `source.rs`, `destination.rs`, `standby.rs`, `api_dns.rs` | checks and effects of the rows, by side |
//! | `going_back.rs` | the same for rows that bring the source back in a rollback |
//! | `rows.rs`, `shared.rs`, `tunnel.rs` | what rows share, and rows of more than one table |
//! | `retry.rs` | when a failed migration goes on |
//! | `flow.rs` | the flow of the engine |

pub mod effect;
pub mod observed;

pub(crate) mod api_dns;
pub(crate) mod context;
pub(crate) mod destination;
mod etcd_facts;
mod flow;
pub(crate) mod garden;
mod garden_facts;
pub(crate) mod going_back;
pub(crate) mod ignored;
pub mod lost;
mod notes;
pub(crate) mod retry;
pub(crate) mod rows;
pub(crate) mod shared;
pub(crate) mod source;
pub(crate) mod standby;
mod step;
pub(crate) mod tunnel;
mod tunnel_facts;
mod workloads;

pub use flow::MigrationFlow;
pub use notes::{Loss, Notes};
pub use source::LOW_TTL;
pub use step::{Side, Step};
