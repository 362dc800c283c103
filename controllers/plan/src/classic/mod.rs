//! The classic migration of a control plane between two seeds (GEP-7): the source stops, and the destination takes over.
//!
//! Three controllers work on one ControlPlaneMigration: one in the garden and one on each seed. The forward table does everything slow
//! while the source serves. The outage is: stop the kube-apiservers, take the final snapshot, copy it, restore the rest of it, start the
//! kube-apiservers, switch DNS.
//!
//! **What is promised.** Until `MoveCommitted` is recorded, each failure rolls back: the destination stops, and the source serves
//! everything that it has acknowledged. From `MoveCommitted` on nothing rolls back; the destination serves, and what is left to do is
//! waited for and can be done by a person. At no time can members of both sides be written, or controllers of both sides act.
//!
//! | file | has |
//! |---|---|
//! | `step.rs` | sides and steps |
//! | `observed.rs` | what each side observes |
//! | `notes.rs` | what each side remembers |
//! | `effect.rs` | what can be requested |
//! | `context.rs` | what rows decide on |
//! | `forward.rs`, `rollback.rs` | the two tables; `rows.rs` has what their rows share, `shared.rs` rows of forced migrations as well |
//! | `garden.rs`, `source.rs`, `destination.rs`, `standby.rs`, `api_dns.rs` | checks and effects of the rows, by side |
//! | `flow.rs` | the flow of the engine |
//! | `plan.rs` | the version of the tables |

pub mod effect;
pub mod observed;

pub(crate) mod api_dns;
pub(crate) mod context;
pub(crate) mod destination;
mod flow;
mod forward;
pub(crate) mod garden;
mod notes;
mod plan;
mod rollback;
pub(crate) mod rows;
pub(crate) mod shared;
pub(crate) mod source;
pub(crate) mod standby;
mod step;

pub use flow::ClassicMigration;
pub use notes::{Loss, Notes};
pub use plan::{PLAN, PLAN_VERSION, PLANS};
pub use source::LOW_TTL;
pub use step::{Side, Step};
