//! A Shoot of Gardener: the fields that a migration reads. It is written by patches only.

use std::borrow::Cow;

use kube::core::{NamespaceResourceScope, ObjectMeta};
use repot_api::names::CORE_GROUP;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A cluster of Gardener.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shoot {
    /// Kubernetes metadata of the object.
    pub metadata: ObjectMeta,
    /// What its owner asks for.
    #[serde(default)]
    pub spec: ShootSpec,
    /// What controllers have reported.
    #[serde(default)]
    pub status: ShootStatus,
}

/// What the owner of a Shoot asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ShootSpec {
    /// Seed that is to host the control plane.
    pub seed_name: Option<String>,
    /// Whether the Shoot is to be hibernated.
    pub hibernation: Hibernation,
    /// The infrastructure and its workers.
    pub provider: ShootProvider,
    /// The CloudProfile of the Shoot.
    pub cloud_profile: CloudProfileRef,
    /// The same in its former form.
    pub cloud_profile_name: Option<String>,
}

/// The CloudProfile of a Shoot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CloudProfileRef {
    /// Name of the CloudProfile; empty objects have none.
    pub name: Option<String>,
}

/// Whether a Shoot is to be hibernated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hibernation {
    /// `true` where it is.
    pub enabled: Option<bool>,
}

/// The provider of the infrastructure of a Shoot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShootProvider {
    /// Type of the provider.
    #[serde(rename = "type")]
    pub kind: String,
    /// Pools of workers; none for a Shoot without workers.
    pub workers: Vec<Value>,
}

/// What controllers have reported of a Shoot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ShootStatus {
    /// Seed that hosts the control plane.
    pub seed_name: Option<String>,
    /// Name of the namespace of the control plane in its seed.
    #[serde(rename = "technicalID")]
    pub technical_id: String,
    /// UID of the Shoot in Gardener: a part of the name of its BackupEntry. It is not that of the object.
    pub uid: String,
    /// The last generation that somebody has reconciled.
    pub observed_generation: u64,
    /// The errors of the last operation.
    pub last_errors: Vec<LastError>,
    /// Whether the Shoot is hibernated.
    #[serde(rename = "hibernated")]
    pub is_hibernated: Option<bool>,
    /// The last operation on the Shoot.
    pub last_operation: Option<LastOperation>,
    /// How far a live migration is.
    pub live_migration: LiveMigration,
    /// How far the isolation of a zone is (GEP-21); Gardener's own Shoots have no such field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone_isolation: Option<Value>,
}

/// How far a live migration is, as Gardener shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveMigration {
    /// One for each of its steps.
    pub conditions: Vec<Value>,
}

/// The last operation on a Shoot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LastOperation {
    /// Type of the operation, such as `Migrate`.
    #[serde(rename = "type")]
    pub kind: String,
    /// State of the operation, such as `Processing`.
    pub state: String,
    /// The operation in words.
    pub description: String,
    /// How far it is, in percent.
    pub progress: i32,
}

/// An error of the last operation on a Shoot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LastError {
    /// The error in words.
    pub description: String,
}

impl Shoot {
    /// Name of its BackupEntry; `None` where gardenlet has not given the Shoot its UID.
    #[must_use]
    pub fn backup_entry(&self) -> Option<String> {
        let ShootStatus { technical_id, uid, .. } = &self.status;
        (!technical_id.is_empty() && !uid.is_empty()).then(|| format!("{technical_id}--{uid}"))
    }

    /// Whether the control plane does not run, or is not to run.
    #[must_use]
    pub fn is_hibernated(&self) -> bool {
        self.spec.hibernation.enabled == Some(true) || self.status.is_hibernated == Some(true)
    }

    /// Name of its CloudProfile, in either form.
    #[must_use]
    pub fn cloud_profile(&self) -> Option<&str> {
        self.spec.cloud_profile.name.as_deref().or(self.spec.cloud_profile_name.as_deref())
    }

    /// Whether the Shoot has no workers.
    #[must_use]
    pub fn is_workerless(&self) -> bool {
        self.spec.provider.workers.is_empty()
    }
}

impl kube::Resource for Shoot {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Shoot".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        CORE_GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1beta1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "shoots".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
