//! The classic migration of a control plane between two seeds (GEP-7): the source stops, and the destination takes over.
//!
//! The forward table does everything slow while the source serves. The outage is: stop the kube-apiservers, take the final snapshot,
//! copy it, restore the rest of it, start the kube-apiservers, switch DNS.
//!
//! **What is promised.** Until `MoveCommitted` is recorded, each failure rolls back: the destination stops, and the source serves
//! everything that it has acknowledged. From `MoveCommitted` on nothing rolls back; the destination serves, and what is left to do is
//! waited for and can be done by a person. At no time can members of both sides be written, or controllers of both sides act.
//!
//! | file | has |
//! |---|---|
//! | `forward.rs`, `rollback.rs` | the two tables |
//! | `plan.rs` | the version of the tables |
//!
//! Checks and effects of the rows are in [`migration`](crate::migration).

mod forward;
mod plan;
mod rollback;

pub use plan::{PLAN, PLAN_VERSION, PLANS};
