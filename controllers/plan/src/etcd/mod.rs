//! Workflows of a hosted etcd, from the paper on etcd workflows: backup, restore and migration; and two planners that live
//! migration shares with them: [`members`], one membership change at a time, and [`ownership`], who may serve.
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
pub mod beginning;
pub mod effect;
pub mod handover;
pub mod members;
pub mod migration;
pub mod operator;
pub mod ownership;
pub mod restore;
pub mod retention;
pub mod rolling;
pub mod schedule;
pub mod world;

mod back;
mod rows;

use std::time::Duration;

use crate::{
    flow::{Control, Flow},
    ledger::Why,
};
use effect::Effect;
pub use rows::BACKUP_ATTEMPTS;
use world::{Cluster, Digest, Lock, Settings, Targets, VolumeSet, World};

/// The workflows of a hosted etcd.
#[derive(Clone, Debug, PartialEq)]
pub enum EtcdFlow {}

/// Version of all tables of this module; raised with every change that an unfinished workflow would not survive.
pub const PLAN_VERSION: u32 = 1;

/// Reason of a workflow whose HostedEtcd is deleted.
pub const HOSTED_ETCD_DELETED: &str = "HostedEtcdDeleted";

/// The shortest time a step can be given: below it, looking twice would take longer.
const LEAST_TIMEOUT: Duration = Duration::from_secs(30);

/// What a workflow remembers. It is part of the status of its object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// The lock was taken: from here on there may be something to undo.
    pub locked: bool,
    /// What the HostedEtcd referred to when the lock was taken.
    pub targets: Option<Targets>,
    /// The backup that is taken, or restored.
    pub backup: Option<String>,
    /// What the verified backup holds.
    pub proof: Option<Digest>,
    /// How many API servers there were.
    pub api_replicas: Option<u32>,
    /// Generation of their Deployment when none was left; another one means that somebody else changed their number.
    pub api_generation: Option<u64>,
    /// Whether the old etcd served when the workflow began; if not, going back does not wait for it to serve.
    pub served: bool,
    /// Volumes and settings of the old etcd.
    pub old: Option<(VolumeSet, Settings)>,
    /// Volumes of the new etcd.
    pub new: Option<VolumeSet>,
    /// Settings in the HostedEtcd before they were changed.
    pub old_settings: Option<Settings>,
}

impl Flow for EtcdFlow {
    type World = World;
    type Notes = Notes;
    type Effect = Effect;

    fn control(world: &World) -> Control {
        let request = &world.request;
        Control {
            paused: request.paused,
            cancel: request.cancel || request.deleting.is_some(),
            abandoned: match world.cluster {
                Cluster::Present => None,
                Cluster::Deleting => Some(Why::new(HOSTED_ETCD_DELETED, "the HostedEtcd is being deleted")),
                Cluster::Gone => {
                    Some(Why::new(HOSTED_ETCD_DELETED, "the HostedEtcd does not exist any more"))
                }
            },
            step_timeout: request.step_timeout.max(LEAST_TIMEOUT),
        }
    }

    fn leave(world: &World) -> Vec<Effect> {
        if world.lock == Lock::Ours && world.cluster != Cluster::Gone {
            vec![rows::release(world)]
        } else if world.request.finalizer {
            vec![Effect::EnsureFinalizer { present: false }]
        } else {
            Vec::new()
        }
    }

    fn whereabouts(notes: &Notes) -> String {
        let mut places = Vec::new();
        if let Some((volumes, _)) = &notes.old {
            places.push(format!("the old volumes are kept as {volumes}"));
        }
        if let Some(volumes) = &notes.new {
            places.push(format!("the new ones are {volumes}"));
        }
        match (&notes.backup, &notes.proof) {
            (Some(name), Some(proof)) => {
                places.push(format!("backup {name} is verified up to revision {}", proof.revision.0));
            }
            (Some(name), None) => places.push(format!("backup {name} is not verified")),
            (None, _) => {}
        }
        if let Some(replicas) = notes.api_replicas {
            places.push(format!("there were {replicas} API servers"));
        }
        places.join(", ")
    }
}
