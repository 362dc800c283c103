//! Decisions about one etcd, as pure functions of what is observed: who is a member, who may serve, how a member starts, which backups
//! are kept; and the types of what operator and agent tell each other.
//!
//! Nothing here meets a clock, a client or a file: agents and controllers observe, ask this crate and act on what it says.

pub mod agent;
pub mod backups;
pub mod bootstrap;
pub mod copy_progress;
pub mod digest;
pub mod handover;
pub mod members;
pub mod operator;
pub mod ownership;
pub mod retention;
pub mod rolling;
pub mod snapshot;
pub mod timing;
pub mod volumes;

#[cfg(test)]
mod tests;
