//! The side of the destination: it is prepared, takes ownership, serves, and restores what the source exported.

mod act;
mod asked;
pub mod bindings;
mod buckets;
mod carried;
mod certificates;
mod cluster;
mod copies;
mod found;
mod guard;
pub mod late;
mod live;
mod machines;
mod nodes;
pub mod objects;
mod observe;
pub mod prepare;
mod remove;
mod restore;
mod stored;
mod tunnel;

pub use act::act;
pub(super) use buckets::copy_secret as copy_bucket_secret;
pub use observe::observe;
