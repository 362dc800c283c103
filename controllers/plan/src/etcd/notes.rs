//! What the workflows of a hosted etcd remember, and how the status shows it.

use std::time::Duration;

use repot_etcd_core::{digest::Digest, snapshot::Revision, volumes::VolumeSet};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    observed::{Settings, Targets},
    step::Step,
};
use crate::ledger::{Ledger, State};

/// What a workflow remembers. It is part of the status of its object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Fields", into = "Fields")]
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
    /// Whether the old etcd served when the workflow started; if not, a rollback does not wait for it to serve.
    pub served: bool,
    /// Volumes and settings of the old etcd.
    pub old: Option<(VolumeSet, Settings)>,
    /// Volumes of the new etcd.
    pub new: Option<VolumeSet>,
    /// Settings in the HostedEtcd before they were changed.
    pub old_settings: Option<Settings>,
}

/// The fields of the status that hold the notes.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Fields {
    backup_name: Option<String>,
    proof: Option<ProofField>,
    new_volumes: Option<String>,
    /// How everything was before the workflow. Read by both names; written by the one that is published.
    #[serde(alias = "original")]
    before: OriginalField,
}

#[derive(Clone, Serialize, Deserialize)]
struct ProofField {
    revision: i64,
    keys: u64,
    hash: String,
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OriginalField {
    locked: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    etcd_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_server_name: Option<String>,
    served: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_replicas: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_generation: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    volumes: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    etcd_settings: Option<SettingsField>,
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<SettingsField>,
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SettingsField {
    replicas: u32,
    size: String,
    storage_class_name: String,
}

impl From<Settings> for SettingsField {
    fn from(settings: Settings) -> Self {
        let Settings { replicas, size, storage_class: storage_class_name } = settings;
        Self { replicas, size, storage_class_name }
    }
}

impl From<SettingsField> for Settings {
    fn from(field: SettingsField) -> Self {
        let SettingsField { replicas, size, storage_class_name: storage_class } = field;
        Self { replicas, size, storage_class }
    }
}

impl From<Notes> for Fields {
    fn from(notes: Notes) -> Self {
        let (volumes, etcd_settings) = notes.old.map(|(set, settings)| (set.0, settings.into())).unzip();
        let (etcd_name, api_server_name) = notes.targets.map(|targets| (targets.etcd, targets.api)).unzip();
        let proof = notes.proof.map(|Digest { revision, keys, hash }| ProofField {
            revision: revision.0,
            keys,
            hash,
        });
        Self {
            backup_name: notes.backup,
            proof,
            new_volumes: notes.new.map(|set| set.0),
            before: OriginalField {
                locked: notes.locked,
                etcd_name,
                api_server_name,
                served: notes.served,
                api_replicas: notes.api_replicas,
                api_generation: notes.api_generation,
                volumes,
                etcd_settings,
                settings: notes.old_settings.map(Into::into),
            },
        }
    }
}

impl From<Fields> for Notes {
    fn from(fields: Fields) -> Self {
        let original = fields.before;
        let digest =
            |ProofField { revision, keys, hash }| Digest { revision: Revision(revision), keys, hash };
        let targets = original.etcd_name.zip(original.api_server_name);
        Self {
            locked: original.locked,
            targets: targets.map(|(etcd, api)| Targets { etcd, api }),
            backup: fields.backup_name,
            proof: fields.proof.map(digest),
            api_replicas: original.api_replicas,
            api_generation: original.api_generation,
            served: original.served,
            old: original.volumes.map(VolumeSet).zip(original.etcd_settings.map(Into::into)),
            new: fields.new_volumes.map(VolumeSet),
            old_settings: original.settings.map(Into::into),
        }
    }
}

/// How long API servers were stopped, once they are up again, by the records.
#[must_use]
pub fn api_outage(ledger: &Ledger<Step, Notes>) -> Option<Duration> {
    let reached = |step| ledger.steps.get(&step).filter(|record| record.state == State::Succeeded);
    let up = reached(Step::ApiUp).or_else(|| reached(Step::ApiUpAgain))?.completed?;
    Some(up.since(ledger.steps.get(&Step::ApiDown)?.started?))
}

/// Fields that follow from the ledger.
pub(super) fn derived(ledger: &Ledger<Step, Notes>) -> Map<String, Value> {
    let outage = api_outage(ledger).map(|outage| ("apiDownSeconds".to_owned(), json!(outage.as_secs())));
    outage.into_iter().collect()
}
