//! Specs of EtcdBackup, EtcdRestore and EtcdMigration.

use repot_apimachinery::schedule::Schedule;
use repot_apimachinery::time::Time;
use repot_etcd::backup::store_ref::StoreRef;
use repot_etcd_core::retention;
use repot_plan::etcd::backup;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{CommonSpec, EtcdSettings, WorkflowSpec};
use crate::workflow::kinds::Kind;

/// `spec` of an EtcdBackup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackupSpec {
    /// The fields that all workflows have.
    #[serde(flatten)]
    pub common: CommonSpec,
    /// When backups are taken, as a cron expression; one is taken at once where it is `None` or empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// Which backups of the schedule are kept; all where it is `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
    /// `Delete` where the backups are deleted together with the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<String>,
    /// Fields that are unknown here.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Which backups of a schedule are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Retention {
    /// `Exponential` or `LimitBased`; `None` means `LimitBased`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// How many backups `LimitBased` keeps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<i64>,
}

/// `spec` of an EtcdRestore.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RestoreSpec {
    /// The fields that all workflows have.
    #[serde(flatten)]
    pub common: CommonSpec,
    /// Where the data comes from.
    pub source: RestoreSource,
    /// Fields that are unknown here.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// `spec.source` of an EtcdRestore: a backup of the HostedEtcd, or the newest snapshots of another store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RestoreSource {
    /// Name of a backup in the store of the HostedEtcd.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup_name: Option<String>,
    /// Another store, whose newest snapshots are restored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreRef>,
}

/// `spec` of an EtcdMigration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MigrationSpec {
    /// The fields that all workflows have.
    #[serde(flatten)]
    pub common: CommonSpec,
    /// The settings that the etcd gets.
    pub settings: EtcdSettings,
    /// Fields that are unknown here.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Retention {
    fn plan(&self) -> retention::Retention {
        match self.policy.as_deref() {
            Some("Exponential") => retention::Retention::Exponential,
            _ => {
                let limit = self.limit.and_then(|limit| u32::try_from(limit).ok());
                retention::Retention::LimitBased(limit.unwrap_or(1) as usize)
            }
        }
    }
}

impl WorkflowSpec for BackupSpec {
    const KIND: Kind = Kind::Backup;

    fn common(&self) -> &CommonSpec {
        &self.common
    }

    /// A schedule that cannot be parsed was rejected when the object was written.
    fn backup(&self, created: Time) -> Option<backup::Spec> {
        Some(backup::Spec {
            schedule: self.schedule.as_deref().and_then(|text| Schedule::parse(text).ok()),
            retention: self.retention.as_ref().map(Retention::plan),
            delete_backups: self.deletion_policy.as_deref() == Some("Delete"),
            created,
        })
    }

    fn names_backup(&self) -> bool {
        self.schedule.as_deref().is_none_or(str::is_empty)
    }
}

impl WorkflowSpec for RestoreSpec {
    const KIND: Kind = Kind::Restore;

    fn common(&self) -> &CommonSpec {
        &self.common
    }

    fn source(&self) -> Option<&RestoreSource> {
        Some(&self.source)
    }
}

impl WorkflowSpec for MigrationSpec {
    const KIND: Kind = Kind::Migration;

    fn common(&self) -> &CommonSpec {
        &self.common
    }

    fn settings(&self) -> Option<&EtcdSettings> {
        Some(&self.settings)
    }
}
