//! What is seen of a hosted etcd in one pass.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use repot_apimachinery::time::Time;
use repot_etcd_core::{backups::Backup, digest::Digest, volumes::VolumeSet};

/// How an etcd is laid out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Number of members of the etcd.
    pub replicas: u32,
    /// Size of each volume, such as `25Gi`.
    pub size: String,
    /// StorageClass of the volumes.
    pub storage_class: String,
}

/// Settings as a workflow asks for them; what is left out stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Number of members; `None` leaves it as it is.
    pub replicas: Option<u32>,
    /// Size of each volume.
    pub size: Option<String>,
    /// StorageClass of the volumes.
    pub storage_class: Option<String>,
}

impl Wanted {
    /// The given settings, with each field replaced that is wanted here.
    #[must_use]
    pub fn over(&self, settings: &Settings) -> Settings {
        Settings {
            replicas: self.replicas.unwrap_or(settings.replicas),
            size: self.size.clone().unwrap_or_else(|| settings.size.clone()),
            storage_class: self.storage_class.clone().unwrap_or_else(|| settings.storage_class.clone()),
        }
    }
}

/// The workflow's object, and what its controller gives it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// UID of the object.
    pub uid: String,
    /// Whether `spec.paused` of the workflow is set.
    pub paused: bool,
    /// Whether `spec.cancel` of the workflow is set.
    pub cancel: bool,
    /// Since when it is being deleted.
    pub deleting: Option<Time>,
    /// Whether our finalizer is on it.
    pub finalizer: bool,
    /// How long a step may take, by `spec.stepTimeout` of the workflow.
    pub step_timeout: Duration,
    /// A random name, for a backup or a set of volumes that is to be made. Another one in each pass; the one that is used is
    /// recorded.
    pub fresh_name: String,
    /// The name that the backup has to have: that of an EtcdBackup without a schedule. Any other has a random one.
    pub backup_name: Option<String>,
    /// `spec.settings` of a migration.
    pub settings: Wanted,
    /// Which backup a restore asks for.
    pub source: Option<Source>,
}

/// Which backup a restore asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// One in the store of the etcd, by its name.
    Named(String),
    /// The newest of another store. It is copied into the store of the etcd under a name of its own.
    Store {
        /// Why that store cannot be asked, where this is known.
        trouble: Option<String>,
    },
}

/// Whether the HostedEtcd exists, is being deleted or is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cluster {
    /// It exists.
    Present,
    /// It is being deleted.
    Deleting,
    /// It does not exist.
    Gone,
}

/// The objects that a HostedEtcd refers to, by their names. A workflow records them with the lock, so that it finds them when the
/// HostedEtcd is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Targets {
    /// Name of the Etcd, or of the StatefulSet where it refers to one.
    pub etcd: String,
    /// The Deployment of the API servers.
    pub api: String,
}

/// `status.currentWorkflow` of the HostedEtcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lock {
    /// Nobody's, or that of an object that does not exist any more.
    Free,
    /// This workflow's: the UID is the same.
    Ours,
    /// Another workflow's, with its kind and name.
    Other(String),
}

/// The Deployment of the API servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Api {
    /// Whether the Deployment exists and is not being deleted.
    pub exists: bool,
    /// `spec.replicas` of the Deployment; 0 where there is no Deployment.
    pub wanted: u32,
    /// Pods that exist, those that are ending included.
    pub pods: u32,
    /// Pods that are ready.
    pub ready: u32,
    /// `metadata.generation` of the Deployment; 0 where there is none.
    pub generation: u64,
    /// Who set `wanted` last; see [`super::effect::Effect`].
    pub fence: String,
}

/// The StatefulSet of the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deployed {
    /// The volumes that its members mount.
    pub volumes: VolumeSet,
    /// Number of members, and size and StorageClass of their volumes.
    pub settings: Settings,
    /// Who wrote it last; see [`super::effect::Effect`].
    pub fence: String,
}

/// What is seen in one pass. All of it is read from API servers, stores and members themselves, not from caches.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// What the workflow's object asks for, and what its controller gives it.
    pub request: Request,
    /// Whether the HostedEtcd exists, is being deleted or is gone.
    pub cluster: Cluster,
    /// What it refers to; where it does not exist any more, what it referred to when the workflow took the lock.
    pub targets: Targets,
    /// Whether our finalizer is on it.
    pub cluster_finalizer: bool,
    /// Whose lock is on the HostedEtcd, by its `status.currentWorkflow`.
    pub lock: Lock,
    /// Its `spec.settings`, with what is left out filled in from what runs.
    pub settings: Settings,
    /// State of the Deployment of the API servers.
    pub api: Api,
    /// Whether the Etcd, of which the operator makes the StatefulSet, exists and is not being deleted.
    pub etcd_declared: bool,
    /// The StatefulSet, if there is one.
    pub etcd: Option<Deployed>,
    /// Pods of members that exist, those that are ending or out of reach included, by the volumes they mount.
    pub pods: BTreeMap<VolumeSet, u32>,
    /// Members of [`Self::etcd`] that are ready.
    pub ready: u32,
    /// What the members of [`Self::etcd`] hold, by a linearizable read; nothing without a quorum.
    pub serving: Option<Digest>,
    /// Sets of volumes that exist wholly and are not being deleted.
    pub volumes: BTreeSet<VolumeSet>,
    /// Backups of this etcd by name.
    pub backups: BTreeMap<String, Backup>,
}

impl Observed {
    /// Pods that mount other volumes than these.
    #[must_use]
    pub fn pods_beside(&self, volumes: &VolumeSet) -> u32 {
        self.pods.iter().filter(|(set, _)| *set != volumes).map(|(_, pods)| pods).sum()
    }

    /// Where the life of the etcd stands, for `status.lifecycleStatus` of the HostedEtcd: inferred from what is seen, so that no
    /// state in between is ever stored.
    #[must_use]
    pub fn lifecycle(&self) -> &'static str {
        let members: u32 = self.pods.values().sum();
        lifecycle(self.etcd.is_some(), members as usize, &self.api)
    }
}

/// The same of its parts: whether there is a StatefulSet, how many Pods of members there are, and the API servers.
#[must_use]
pub fn lifecycle(has_set: bool, members: usize, api: &Api) -> &'static str {
    match (has_set, members, api.wanted.max(api.pods)) {
        (false, 0, _) => "etcdDeleted",
        (_, _, 0) => "apiDown",
        _ => "running",
    }
}
