//! What the seed observes of an isolation, and its effects as calls.

mod act;
mod budgets;
mod machines;
mod nodes;
mod observe;

pub use act::act;
pub use observe::{Objects, observe};
