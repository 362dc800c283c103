//! The side of the garden: the Shoot, and whether the destination is fit.

mod act;
pub mod backup_entry;
mod distance;
mod ignored;
mod live;
pub mod objects;
mod observe;
mod operation;
pub mod seed_change;

pub use act::act;
pub(super) use act::{bind, dry_run_binding, finalizer, shoots};
pub use observe::observe;
pub(super) use observe::{refusals_between, refusals_of, seed};
