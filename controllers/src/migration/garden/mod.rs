//! The side of the garden: the Shoot, and whether the destination is fit.

mod act;
mod observe;
mod operation;
pub mod seed_change;

pub use act::act;
pub use observe::observe;
