//! HostedEtcd. It is written by merge patches alone, so fields that are unknown here stay as they are.

use std::borrow::Cow;

use kube::core::{NamespaceResourceScope, ObjectMeta};
use repot_api::names::{MIGRATION_GROUP, V1ALPHA1};
use repot_etcd::backup::store_ref::StoreRef;
use serde::{Deserialize, Serialize};

use super::{EtcdSettings, Reference};

/// One etcd that serves a hosted control plane.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct HostedEtcd {
    /// Kubernetes metadata of the object.
    pub metadata: ObjectMeta,
    /// Which etcd this is, and how it is laid out.
    #[serde(default)]
    pub spec: HostedEtcdSpec,
    /// What controllers have recorded.
    #[serde(default)]
    pub status: HostedEtcdStatus,
}

/// `spec` of a HostedEtcd.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostedEtcdSpec {
    /// The Etcd or StatefulSet that runs the members.
    pub etcd_ref: EtcdRef,
    /// The Deployment of the API servers.
    pub api_server_ref: Reference,
    /// Settings of the members; what is left out is what runs.
    pub settings: EtcdSettings,
    /// Where backups are stored.
    pub backup_store: Option<StoreRef>,
}

/// The resource that runs the members of an etcd, in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct EtcdRef {
    /// `Etcd` or `StatefulSet`; `None` means `Etcd`.
    pub kind: Option<String>,
    /// Name of the resource; empty where there is none.
    pub name: String,
}

/// `status` of a HostedEtcd. In a patch, `None` removes a field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostedEtcdStatus {
    /// The backup from which the command `startRestore` restores.
    pub backup_name: Option<String>,
    /// What the workflow asks for next.
    pub command: Option<String>,
    /// What holds at the moment, by type.
    pub conditions: Vec<Condition>,
    /// The workflow that holds the lock. It is written apart from the other fields, under the version that was read.
    #[serde(skip_serializing)]
    pub current_workflow: Option<CurrentWorkflow>,
    /// `running`, `apiDown` or `etcdDeleted`.
    pub lifecycle_status: Option<String>,
    /// What holds at the moment, for people.
    pub message: Option<String>,
    /// `metadata.generation` of the object that this status was made for.
    pub observed_generation: Option<i64>,
    /// Number of members that are ready.
    pub ready_replicas: Option<i64>,
}

/// A condition of a HostedEtcd.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in one CamelCase word.
    pub reason: String,
    /// Why the status is so, for people.
    pub message: String,
    /// When the status last changed, as in RFC 3339.
    pub last_transition_time: String,
}

/// The workflow that holds the lock of a HostedEtcd.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CurrentWorkflow {
    /// Kind of the workflow's object.
    pub kind: String,
    /// Name of the workflow's object.
    pub name: String,
    /// UID of the workflow's object.
    pub uid: String,
}

impl kube::Resource for HostedEtcd {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "HostedEtcd".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        MIGRATION_GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        V1ALPHA1.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "hostedetcds".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
