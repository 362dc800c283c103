//! What a migration by gardenlet can request.

/// A target that is requested again in each pass until it is observed.
///
/// # Guarantees
/// Every effect may be applied twice. One that arrives late, after the migration has rolled back or has ended, is refused or does nothing.
///
/// # Assumptions
/// - What changes or deletes an object does so under the `resourceVersion` that was observed for the decision, and deletes under its UID.
/// - A rollback writes `fence` to Shoot and BackupEntry, so it writes each of them once, even where nothing seems to have changed, and
///   what was requested before on their former versions is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Garden: our finalizer is on the ControlPlaneMigration, or is not.
    EnsureFinalizer {
        /// Whether the finalizer is there.
        present: bool,
    },
    /// Garden: `spec.seedName` of the Shoot is this seed, by its binding.
    BindShoot {
        /// Name of the seed in the garden.
        seed: String,
    },
    /// Garden: `spec.seedName` of the BackupEntry is this seed.
    BindBackupEntry {
        /// Name of the seed in the garden.
        seed: String,
    },
    /// Garden: `status.seedName` of the BackupEntry is this seed, or it has none.
    SetBackupEntryStatus {
        /// Name of the seed in the garden.
        seed: Option<String>,
    },
    /// Garden, rollback: the Shoot has this fence.
    FenceShoot {
        /// Which table of which migration asks.
        fence: String,
    },
    /// Garden, rollback: the BackupEntry has this fence.
    FenceBackupEntry {
        /// Which table of which migration asks.
        fence: String,
    },
    /// Garden: `status.seedName` of the Shoot is this seed, and its last operation is a migrate that succeeded. Both in one write, so that
    /// no gardenlet sees one without the other.
    RequestRestore {
        /// Name of the destination in the garden.
        seed: String,
    },
    /// Destination: the namespace of the copy exists, with access to both buckets.
    EnsureCopyNamespace,
    /// Destination: a Job copies and verifies the snapshots of the source.
    CopySnapshots,
    /// Destination: Gardener's API server has the ShootState of Repot.
    EnsureState,
    /// Destination: this EtcdCopyBackupsTask of gardenlet is marked as succeeded.
    MarkCopyTask {
        /// UID of the task: gardenlet deletes and creates it again under the same name.
        uid: String,
    },
    /// Destination: the namespace of the copy does not exist.
    RemoveCopy,
}
