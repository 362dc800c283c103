//! The side of the source: its state is exported, everything is stopped in order, its ownership ends.

mod act;
mod dns_owner;
pub mod last_answer;
pub mod objects;
mod observe;
mod remove;

pub use act::act;
pub use observe::observe;
