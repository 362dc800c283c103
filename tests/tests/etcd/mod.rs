//! Snapshots of a real etcd: taken, verified, copied and restored, with everything that can be wrong with them.

mod azure;
mod backups;
mod changes;
mod copying;
mod damage;
mod flips;
mod following;
mod importing;
mod interruptions;
mod leases;
mod peer;
mod progress;
mod remote;
mod restoring;
mod sealing;
pub mod world;
