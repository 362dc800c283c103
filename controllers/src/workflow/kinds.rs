//! The kinds that workflows are made of, and the names that are written on objects.

use std::time::Duration;

use kube::{Resource, ResourceExt};
use repot_apimachinery::time::Time;
use repot_plan::{
    etcd::{EtcdFlow, backup, migration, observed::Settings, restore},
    flow::Plans,
};
use serde_json::Value;

use super::api::CommonSpec;

/// The finalizer of workflows that have something to give back, and of the HostedEtcd that one of them changes.
pub const FINALIZER: &str = "migration.gardener.cloud/workflow";
/// UID of the workflow that a Job works for.
pub const WORKFLOW: &str = "migration.gardener.cloud/workflow-uid";
/// What a Job does: `take` or `prove`.
pub const TASK: &str = "migration.gardener.cloud/task";
/// The backup that a Job works on.
pub const BACKUP: &str = "migration.gardener.cloud/backup";
/// Who is it that writes, in managedFields and events.
pub const MANAGER: &str = "repot-workflows";

/// Where `spec.stepTimeout` is left out.
const STEP_TIMEOUT: Duration = Duration::from_secs(600);

/// A kind of workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// EtcdBackup.
    Backup,
    /// EtcdRestore.
    Restore,
    /// EtcdMigration.
    Migration,
}

impl Kind {
    /// All kinds of workflow, each of them once.
    pub const ALL: [Self; 3] = [Self::Backup, Self::Restore, Self::Migration];

    /// All versions of its tables.
    #[must_use]
    pub fn plans(self) -> &'static Plans<EtcdFlow> {
        match self {
            Self::Backup => &backup::PLANS,
            Self::Restore => &restore::PLANS,
            Self::Migration => &migration::PLANS,
        }
    }

    /// Its name in `kind`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.plans().newest().kind
    }

    /// Name of its controller, in metrics and logs.
    #[must_use]
    pub fn controller(self) -> &'static str {
        match self {
            Self::Backup => "etcdbackup",
            Self::Restore => "etcdrestore",
            Self::Migration => "etcdmigration",
        }
    }

    /// The kind of a name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Its name in paths of the API.
    #[must_use]
    pub fn plural(self) -> &'static str {
        match self {
            Self::Backup => "etcdbackups",
            Self::Restore => "etcdrestores",
            Self::Migration => "etcdmigrations",
        }
    }
}

/// Whether our finalizer is on an object.
#[must_use]
pub fn has_finalizer(object: &impl Resource) -> bool {
    object.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

/// The finalizers of an object with ours, or without it.
#[must_use]
pub fn finalizers(object: &impl Resource, ours: bool) -> Vec<String> {
    let mut all = object.finalizers().to_vec();
    all.retain(|finalizer| finalizer != FINALIZER);
    if ours {
        all.push(FINALIZER.to_owned());
    }
    all
}

/// When an object was created.
#[must_use]
pub fn created(object: &impl Resource) -> Time {
    object.creation_timestamp().map_or(Time(0), |time| at(&time))
}

/// A time of an object.
#[must_use]
pub fn at(time: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Time) -> Time {
    Time(u64::try_from(time.0.as_second()).unwrap_or_default())
}

/// Duration in `spec.stepTimeout` of a workflow; 10 minutes where it is left out or cannot be parsed.
#[must_use]
pub fn step_timeout(spec: &CommonSpec) -> Duration {
    spec.step_timeout.as_deref().and_then(repot_apimachinery::duration::parse).unwrap_or(STEP_TIMEOUT)
}

/// Settings as JSON, for a merge patch: what is not known is left out.
#[must_use]
pub fn settings(settings: &Settings) -> Value {
    let Settings { replicas, size, storage_class } = settings;
    let known = |text: &String| (!text.is_empty()).then(|| text.clone());
    serde_json::json!({"replicas": replicas, "size": known(size), "storageClassName": known(storage_class)})
}
