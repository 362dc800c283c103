//! The forced migration of a control plane (GEP-7, "bad case"): the source seed does not answer, or does not do what it is asked for.
//!
//! The garden and the destination do what they do in a [classic](crate::classic) migration, without anything from the source but what
//! is stored elsewhere: the ShootState and the snapshots in its bucket. The owner record fences the source: its members stop when the
//! record names the destination, or when they cannot read it any more.
//!
//! **What is promised.** Members of both sides never serve at the same time. What the source stored after its newest snapshot may be
//! lost; somebody has confirmed that before. Until `OwnerRecordTaken` is started, the migration rolls back and the source is untouched.
//! From then on nothing rolls back: another forced migration, to whichever seed, is the way out of one that has failed, and
//! supersedes one that goes on. A side of one that is superseded removes what it has made.
//!
//! A source that comes back finds the migration, and its controller does the rows of its side: everything there is stopped and removed.
//! Nobody waits for it.
//!
//! | file | has |
//! |---|---|
//! | `forward.rs`, `rollback.rs` | the two tables |
//! | `destination.rs` | checks and effects of rows that a classic migration does not have |
//! | `plan.rs` | the version of the tables |

mod destination;
mod forward;
mod plan;
mod rollback;

pub use plan::{PLAN, PLAN_VERSION, PLANS};
