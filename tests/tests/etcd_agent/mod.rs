//! The agent of a member, as a process of its own with a real etcd: what it makes of a volume, and who ends whom.

mod backups;
mod beginning;
mod ending;
mod founding;
mod gateway;
mod joining;
mod removal;
mod requests;
mod versions;
pub mod world;
