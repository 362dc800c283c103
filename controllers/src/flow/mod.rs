//! The I/O side of flows: what `repot_plan` decides is recorded and carried out, one pass at a time.
//!
//! A pass reads the flow's object, observes the clusters, asks `repot_plan::flow` what to do, stores what it says and only then carries
//! out effects. It never waits: it ends, and the next event or the requeue brings the next one. What it knows is in the object's
//! status and in the clusters, so any other process can take over after any line.
//!
//! | file | has |
//! |---|---|
//! | `driver.rs` | [`Driver`]: what a flow brings |
//! | `reconcile.rs` | [`reconcile`]: one pass of any flow |
//! | `clients.rs` | [`Clients`]: the API servers that a side talks to |
//! | `events.rs` | events of what changed in a ledger |

mod clients;
mod driver;
pub mod events;
mod reconcile;
#[cfg(test)]
mod tests;

pub use clients::Clients;
pub use driver::{Driver, Statuses};
pub use reconcile::reconcile;
