//! One hosted etcd: its snapshots, where they rest, and the way back from them.
//!
//! This crate may not know which resource asked for something: it is told where etcd and the snapshots are. A snapshot is
//! never trusted by its name alone; [`snapshot`] says what is checked where.

pub mod agent;
pub mod backup;
pub mod copy_progress;
pub mod digest;
pub mod gateway;
pub mod link;
pub mod owner;
pub mod snapshot;
