//! The side of the source: its state is exported, everything is stopped in order, its ownership ends.

mod act;
mod observe;
mod remove;

pub use act::act;
pub use observe::{Objects, observe};
pub use remove::delete_namespace;
