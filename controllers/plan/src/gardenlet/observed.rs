//! What the sides of a migration by gardenlet observe. Facts have no defaults, as in a [classic](crate::migration::observed) migration.

use std::time::Duration;

use repot_api::conditions::Reason;
use repot_apimachinery::time::Time;

use crate::{
    flow::Abort,
    migration::observed::{MigrationMode, SourceSnapshot},
};

/// What one side observes in one pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// What the ControlPlaneMigration and its Shoot ask for.
    pub request: MigrationRequest,
    /// What this side observes of its own cluster.
    pub facts: Facts,
}

/// What the ControlPlaneMigration and its Shoot ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationRequest {
    /// UID of the ControlPlaneMigration. It is part of each fence.
    pub uid: String,
    /// Whether the source is dead, or its gardenlet migrates the Shoot.
    pub mode: MigrationMode,
    /// Whether a person has confirmed the loss, by the name of the source.
    pub confirmed: bool,
    /// Whether a person has confirmed that nothing of the Shoot runs at the source.
    pub source_off: bool,
    /// Whether our finalizer is on the ControlPlaneMigration.
    pub finalizer: bool,
    /// Whether `spec.paused` is set.
    pub paused: bool,
    /// `spec.abort`; deletion of the object counts as a request to abort.
    pub abort: Abort,
    /// Classic: a person wants nobody to wait for gardenlet any more: [`Abort::Force`] after the Shoot was bound.
    pub released: Option<Reason>,
    /// Why the migration has lost its subject: the Shoot is deleted, or another one has its name.
    pub abandoned: Option<Reason>,
    /// `spec.retry`: the number of the last request to try again what has failed.
    pub retry: u32,
    /// How long a step may take.
    pub step_timeout: Duration,
    /// Name of the source seed.
    pub source_seed: String,
    /// Name of the destination seed.
    pub destination_seed: String,
    /// Whether the Shoot is hibernated: no API server of it runs.
    pub hibernated: bool,
}

/// What one side observes of its own cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Facts {
    /// Of the garden.
    Garden(Box<GardenFacts>),
    /// Of the source seed, in a classic migration.
    Source(SourceFacts),
    /// Of the destination seed.
    Destination(Box<DestinationFacts>),
}

/// What the controller of the source observes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceFacts {
    /// Whether a kube-apiserver of the Shoot is ready at the source; `None` where it was not asked for.
    pub api_ready: Option<bool>,
}

/// What the controller of the garden observes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GardenFacts {
    /// Name of another migration of this Shoot that has not ended and was created earlier.
    pub other_migration: Option<String>,
    /// A later migration of this Shoot that has not rolled back, if there is one.
    pub followed_by: Option<String>,
    /// Why the migration cannot be carried out: the destination cannot host the Shoot, the source answers or, in a classic migration, does
    /// not, a right is missing.
    pub refusals: Vec<String>,
    /// Classic: what Gardener and the webhooks say to the binding, where they were asked.
    pub binding: BindingAnswer,
    /// The Shoot in the garden.
    pub shoot: ShootFacts,
    /// Its BackupEntry; `None` where it has none.
    pub backup_entry: Option<BackupEntryFacts>,
}

/// What Gardener and the webhooks say to the binding of the Shoot, in a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BindingAnswer {
    /// Nobody was asked, or there was no answer.
    #[default]
    Unknown,
    /// They would accept it.
    Accepted,
    /// They would refuse it, for this reason.
    Refused(String),
}

/// What is observed of the Shoot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShootFacts {
    /// `spec.seedName` of the Shoot.
    pub spec_seed: Option<String>,
    /// `status.seedName` of the Shoot.
    pub status_seed: Option<String>,
    /// `status.lastOperation` of the Shoot.
    pub last_operation: Option<LastOperation>,
    /// Descriptions in `status.lastErrors`, the first few.
    pub last_errors: Vec<String>,
    /// Who wrote the Shoot last: see [`Effect`](super::effect::Effect).
    pub fence: String,
}

/// `status.lastOperation` of a Shoot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastOperation {
    /// Type of the operation, such as `Restore`.
    pub kind: String,
    /// State of the operation, such as `Processing`.
    pub state: String,
    /// How far it is, in percent.
    pub progress: i32,
    /// The operation in words.
    pub description: String,
}

/// What is observed of the BackupEntry of the Shoot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupEntryFacts {
    /// `spec.seedName` of the BackupEntry.
    pub spec_seed: Option<String>,
    /// `status.seedName` of the BackupEntry.
    pub status_seed: Option<String>,
    /// Who wrote it last.
    pub fence: String,
}

/// What the controller of the destination observes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestinationFacts {
    /// Rights at the destination that are missing.
    pub missing_rights: Vec<String>,
    /// Whether the namespace of the copy exists, made by this migration.
    pub copy_namespace: bool,
    /// Why the bucket of the source cannot be read; `None` where it can.
    pub bucket_problem: Option<String>,
    /// The newest snapshot in the bucket of the source; `None` where it was not asked for, or is not known.
    pub source_newest: Option<SourceSnapshot>,
    /// Revision up to which the bucket of the destination holds snapshots, once the Job has copied and verified them.
    pub copied: Option<u64>,
    /// ShootStates; `None` where they were not asked for, or could not be read.
    pub states: Option<StateFacts>,
    /// Classic: why the ShootStates could not be read; `None` where they could.
    pub states_problem: Option<String>,
    /// EtcdCopyBackupsTasks of gardenlet for this Shoot.
    pub copy_tasks: Vec<CopyTask>,
    /// Whether a kube-apiserver of the Shoot is ready at the destination.
    pub api_ready: bool,
}

/// The ShootState of the Shoot, in the two places that have one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateFacts {
    /// The ShootState that Repot stores.
    pub own: Option<StoredState>,
    /// That of Gardener's API server, which gardenlet reads.
    pub gardener: Option<StoredState>,
}

/// A ShootState that is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredState {
    /// When it was written last, by its annotation; `None` where it has none.
    pub written: Option<Time>,
    /// How long its `spec` is as JSON, in bytes.
    pub bytes: u64,
}

/// An EtcdCopyBackupsTask of a seed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyTask {
    /// UID of the task.
    pub uid: String,
    /// Whether its status says, of its current generation, that it has succeeded.
    pub is_marked: bool,
    /// How its stores differ from those that were copied; `None` where they do not.
    pub difference: Option<String>,
}
