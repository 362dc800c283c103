//! What the controller of the garden observes.

use serde::{Deserialize, Serialize};

/// Another migration of the Shoot, in place of which this one goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupersededMigration {
    /// Name of its ControlPlaneMigration.
    pub name: String,
    /// Whether that is written in its status, so that none of its sides starts another step.
    pub is_told: bool,
}

/// Whether the credentials of the source seed are taken away, by the command that the operator has configured for that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Quarantine {
    /// There is no such command.
    NotConfigured,
    /// They may be valid, or that is not known: why.
    Open(String),
    /// The command says that nobody can use them any more.
    Revoked,
}

/// Which seeds a BackupEntry names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupEntrySeeds {
    /// `spec.seedName`; empty where it is not set.
    pub spec: String,
    /// `status.seedName`; empty where it is not set.
    pub status: String,
}

/// A condition in `status.liveMigration` of a Shoot: how far one step of a live migration is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveCondition {
    /// Type of the condition.
    pub kind: String,
    /// `Unknown` before the step was started, `False` until it is reached.
    pub status: String,
    /// Whether it was started, goes on, or has failed.
    pub reason: String,
    /// How far it is, in words.
    pub message: String,
}

/// What the controller of the garden observes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GardenFacts {
    /// Name of another migration of this Shoot that has not ended and was created earlier; of two that were created in one second, the
    /// one with the smaller UID counts as earlier.
    pub other_migration: Option<String>,
    /// Classic and live: which migrations begin before this one at a seed that has enough of them, in words.
    pub queued: Option<String>,
    /// Forced: why this migration waits for a live one that is past its point of no return and may give way to it, in words.
    pub gives_way: Option<String>,
    /// A later migration of this Shoot that has not rolled back, if there is one.
    pub followed_by: Option<String>,
    /// Forced: other migrations of this Shoot that this one supersedes, and that are still in its way.
    pub superseded: Vec<SupersededMigration>,
    /// The highest epoch that other migrations of the Shoot have recorded; `None` where there is none.
    pub highest_epoch: Option<u64>,
    /// Forced: whether the credentials of the source seed are taken away.
    pub quarantine: Quarantine,
    /// Why the destination cannot host the Shoot: rules, conditions, versions, capacity. Empty where it can.
    pub refusals: Vec<String>,
    /// Live: conditions in `status.liveMigration` of the Shoot.
    pub live: Vec<LiveCondition>,
    /// Seed in `spec.seedName` of the Shoot.
    pub spec_seed: String,
    /// Seed in `status.seedName` of the Shoot.
    pub status_seed: String,
    /// Which seeds the BackupEntry of the Shoot names; `None` where it has none.
    pub backup_entry: Option<BackupEntrySeeds>,
    /// `status.lastOperation` of the Shoot.
    pub operation: Operation,
    /// The same by its fields; `None` where the Shoot has none.
    pub last_operation: Option<FormerOperation>,
    /// Whether a migration of Repot has written that last operation, this one or another.
    pub is_operation_by_repot: bool,
    /// An operation that somebody has requested of gardenlet, and that gardenlet has not taken up.
    pub requested_operation: Option<String>,
    /// Whether the Seed in `spec.seedName` of the Shoot is being deleted: then annotations of the Shoot cannot be written.
    pub is_seed_deleted: bool,
    /// Whether gardenlet is told to leave the Shoot alone.
    pub ignored: Ignored,
    /// `metadata.generation` of the Shoot.
    pub generation: u64,
    /// `status.observedGeneration` of the Shoot: of the last generation that somebody has reconciled.
    pub observed_generation: u64,
}

/// Whether gardenlet is told to leave a Shoot alone, by the annotation `shoot.gardener.cloud/ignore`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ignored {
    /// It is not.
    #[default]
    No,
    /// Somebody else wants it so.
    ByOther,
    /// This migration wants it so, and takes the annotation away at its end.
    ByThis,
    /// This migration wants it so, and somebody else did before, so the annotation stays.
    Kept,
    /// This migration wants it so, and somebody has taken the annotation away since.
    TakenAway,
}

/// An operation on the Shoot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerOperation {
    /// Type of the operation, such as `Reconcile`.
    #[serde(rename = "type")]
    pub kind: String,
    /// State of the operation, such as `Succeeded`.
    pub state: String,
}

/// How far `status.lastOperation` of the Shoot tells of this migration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Operation {
    /// It tells of something else.
    #[default]
    Other,
    /// Migrate, Processing.
    Migrating,
    /// Restore, Processing.
    Restoring,
    /// Restore, Succeeded.
    Restored,
    /// What it was before the migration.
    Former,
}

impl Ignored {
    /// Whether the Shoot has something that this migration has written to keep gardenlet away.
    pub(super) fn is_written(self) -> bool {
        match self {
            Self::ByThis | Self::Kept | Self::TakenAway => true,
            Self::No | Self::ByOther => false,
        }
    }
}
