//! The live migration of a control plane between two seeds (GEP-39): source and destination serve at the same time, on one etcd.
//!
//! Members of the destination join the etcd of the source, and kube-apiservers of the destination start on it. Clients are led there by
//! DNS while those of the source still serve. When nobody needs the source any more, its members leave the etcd.
//!
//! **What is promised.** Until `MoveCommitted` is recorded, each failure rolls back: clients are led back to the source first, and then
//! the members of the destination leave the etcd. From `MoveCommitted` on nothing rolls back, with one exception: the etcd loses its
//! quorum before a member of the source has left, and somebody asks for a forced migration. At no time does the API of the Shoot have no
//! kube-apiserver that serves, and at no time are there two etcds that can be written. Controllers of both sides never act at the same
//! time: those of the source are stopped before those of the destination start.
//!
//! | file | has |
//! |---|---|
//! | `forward.rs`, `rollback.rs` | the two tables |
//! | `shrunk.rs` | the forward table where the source is given up |
//! | `withdrawn.rs` | when the point of no return is taken back |
//! | `rows.rs` | rows that the forward tables have in common |
//! | `members.rs` | checks and effects of rows on the members of the etcd |
//! | `api.rs` | rows on the kube-apiservers of the destination, their watch caches, and the DNS name that leads to them |
//! | `tunnel.rs` | rows on the tunnel to the Shoot |
//! | `plan.rs` | the version of the tables |
//! | `progress.rs` | what the status of the Shoot shows of it |

mod api;
mod forward;
mod members;
mod plan;
pub(crate) mod progress;
mod rollback;
mod rows;
mod shrunk;
mod tunnel;
mod withdrawn;

pub use plan::{PLAN, PLAN_VERSION, PLANS, SHRUNK_PLAN, decide};
