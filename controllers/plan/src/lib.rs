//! What happens next, as pure functions of what is observed and of what is recorded.
//!
//! Nothing here meets a clock, a client or a file: a controller observes, asks this crate, records what it says and acts on it.
//! [`flow`] is the engine of all flows, [`etcd`] has those of a hosted etcd, [`classic`], [`forced`],
//! [`live`] and [`gardenlet`] those of a control plane between two seeds. [`migration`] has what these share. [`isolation`] has that of a
//! zone.

pub mod classic;
pub mod etcd;
pub mod flow;
pub mod forced;
pub mod gardenlet;
pub mod isolation;
pub mod ledger;
pub mod live;
pub mod migration;
pub mod named;
pub mod render;
pub mod status;

#[cfg(test)]
mod tests;
