//! The pure part of the API: our kinds, their names and constants, conditions and validation, and the types of Gardener that rules and
//! flows read.
//!
//! Nothing in here meets a clock, a client, a file or a random number: time, ids and seeds come in as arguments.

pub mod conditions;
pub mod control_plane_migration;
pub mod etcd_backup;
pub mod etcd_migration;
pub mod etcd_restore;
pub mod gardener;
pub mod hosted_etcd;
mod late_snapshot;
mod migration_side;
pub mod names;
pub mod shoot_state;
pub mod workflow;
pub mod zone_isolation;
