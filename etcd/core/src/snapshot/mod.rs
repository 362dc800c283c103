//! Snapshots by their names: which follow on each other, how an agent goes on from them, which are kept.

pub mod chain;
pub mod decide;
pub mod name;

pub use name::{Compression, Kind, Revision, SnapshotName};
