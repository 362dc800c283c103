//! What happens next, as pure functions of what is seen and of what is recorded.
//!
//! Nothing here meets a clock, a client or a file: a controller observes the world, asks this crate, writes down what it says
//! and acts on it. [`flow`] is the frame of all workflows, [`etcd`] has those of a hosted etcd.

pub mod etcd;
pub mod flow;
pub mod ledger;
pub mod render;
pub mod status;
pub mod time;

#[cfg(test)]
mod tests;
