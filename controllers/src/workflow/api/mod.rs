//! Objects of `migration.gardener.cloud/v1alpha1`, as controllers read and write them.
//!
//! The types follow the schemas of `repot_api`: whatever the API server accepts can be read here, since one object that cannot be read
//! would stop the watch of its kind. So integers are `i64` and words are strings.

mod hosted_etcd;
mod specs;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, fmt::Debug};

use kube::{
    api::TypeMeta,
    core::{NamespaceResourceScope, ObjectMeta},
};
use repot_api::names::{MIGRATION_GROUP, V1ALPHA1};
use repot_apimachinery::time::Time;
use repot_plan::etcd::{backup, observed::Wanted};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::kinds::Kind;
pub use hosted_etcd::{Condition, CurrentWorkflow, EtcdRef, HostedEtcd, HostedEtcdSpec, HostedEtcdStatus};
pub use specs::{BackupSpec, MigrationSpec, RestoreSource, RestoreSpec, Retention};

/// The object of a workflow. It is written as a whole, so fields of its spec and status that are unknown here are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkflowObject<S> {
    /// API version and kind; objects of lists may come without them.
    #[serde(flatten)]
    pub types: Option<TypeMeta>,
    /// Kubernetes metadata of the object.
    pub metadata: ObjectMeta,
    /// What the user asks for.
    #[serde(default)]
    pub spec: S,
    /// What controllers have recorded.
    #[serde(default)]
    pub status: WorkflowStatus,
}

/// What the controllers of workflows have to know of the spec of a kind.
pub trait WorkflowSpec:
    Clone + Debug + Default + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// Kind of the workflow's object.
    const KIND: Kind;

    /// The fields that all workflows have.
    fn common(&self) -> &CommonSpec;

    /// What an EtcdBackup asks for, given when it was created; `None` for other kinds.
    fn backup(&self, _created: Time) -> Option<backup::Spec> {
        None
    }

    /// Whether the workflow takes one backup, which has the name of its object.
    fn names_backup(&self) -> bool {
        false
    }

    /// The settings that an EtcdMigration asks for; `None` for other kinds.
    fn settings(&self) -> Option<&EtcdSettings> {
        None
    }

    /// The backup that an EtcdRestore asks for; `None` for other kinds.
    fn source(&self) -> Option<&RestoreSource> {
        None
    }
}

/// Fields that the specs of all workflows have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CommonSpec {
    /// The HostedEtcd to work on, in the same namespace.
    pub cluster_ref: Reference,
    /// Whether to start no further step; `None` means false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Whether to stop and to roll back; `None` means false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel: Option<bool>,
    /// How long a step may take, as a duration such as `10m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_timeout: Option<String>,
}

/// Name of an object in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reference {
    /// Name of the object; empty where there is none.
    pub name: String,
}

/// `settings` of a HostedEtcd and of an EtcdMigration. What is `None` stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EtcdSettings {
    /// Number of members of the etcd.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
    /// Size of each volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// StorageClass of the volumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
}

impl EtcdSettings {
    /// The settings as the plan takes them; a number that is no number of members counts as left out.
    #[must_use]
    pub fn wanted(&self) -> Wanted {
        Wanted {
            replicas: self.replicas.and_then(|replicas| replicas.try_into().ok()),
            size: self.size.clone(),
            storage_class: self.storage_class_name.clone(),
        }
    }
}

/// The status of a workflow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkflowStatus {
    /// `metadata.generation` of the object that this status was made for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Revision of etcd up to which the newest backup, or the restored one, reaches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// When the newest backup of an EtcdBackup was verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_successful_time: Option<String>,
    /// Size of the newest backup of an EtcdBackup, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<i64>,
    /// When an EtcdBackup takes the next backup by its schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_schedule_time: Option<String>,
    /// The ledger, which `repot_plan::status` reads and writes, and fields that are unknown here.
    #[serde(flatten)]
    pub ledger: Map<String, Value>,
}

impl WorkflowStatus {
    /// The phase of the flow; `None` before its first ledger was recorded.
    #[must_use]
    pub fn phase(&self) -> Option<&str> {
        self.ledger.get("phase")?.as_str()
    }

    /// What the flow waits for, or why it ended, for people.
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        self.ledger.get("message")?.as_str()
    }

    /// The ledger in the form that `repot_plan::status::from_status` reads.
    #[must_use]
    pub fn to_ledger(&self) -> Value {
        Value::Object(self.ledger.clone())
    }
}

impl<S: WorkflowSpec> kube::Resource for WorkflowObject<S> {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        S::KIND.name().into()
    }

    fn group((): &()) -> Cow<'_, str> {
        MIGRATION_GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        V1ALPHA1.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        S::KIND.plural().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
