//! Workflows of a hosted etcd, from the paper on etcd workflows: backup, restore and migration.
//!
//! **What is promised.** Until `EtcdDeleted` is begun nothing of the old etcd is touched, and the way back is to start the API
//! servers. From there until `ApiUp` is begun the old volumes are kept as they are, nobody writes to the new etcd, and the way
//! back is the old etcd on its volumes. `ApiUp` is begun only after the new etcd has proved to hold what the backup holds, and
//! from then on there is no way back, since API servers may have acknowledged writes. Ends are Succeeded, RolledBack, Cancelled,
//! and Failed, with the places of the data and what to do.
//!
//! **When the HostedEtcd is deleted.** A restore or a migration sets a finalizer on the HostedEtcd together with its lock, before
//! it changes anything. So a HostedEtcd that is deleted stays until the workflow has gone back, or has come to its end where there
//! is no way back. Where somebody removes that finalizer by hand, the workflow goes back all the same: it has recorded which Etcd
//! and which Deployment the HostedEtcd referred to. A backup sets none, since it changes nothing.

pub mod backup;
pub mod effect;
pub mod migration;
pub mod observed;
pub mod restore;

mod notes;
mod rollback;
mod rows;
mod step;
mod workflow;

pub use notes::{Notes, api_outage};
pub use rows::BACKUP_ATTEMPTS;
pub use step::{Side, Step};
pub use workflow::{EtcdFlow, EtcdLedger, HOSTED_ETCD_DELETED, PLAN_VERSION};
