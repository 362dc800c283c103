//! Steps of a migration by gardenlet.

use crate::named_enum;

named_enum! {
    /// Steps of a forced migration by gardenlet and of its rollback. The tables say what each of them does.
    pub enum Step {
        /// The migration is recorded, and no other one is in its way.
        MigrationRecorded,
        /// The destination can host the Shoot, the source does not answer, and Repot has the rights that it needs.
        DestinationReady,
        /// Somebody has confirmed that nothing of the Shoot runs at the source.
        SourceOff,
        /// The destination can read the backup bucket of the source.
        SourceBucketReadable,
        /// Somebody has confirmed that what the source stored after its newest snapshot is lost.
        LossConfirmed,
        /// The bucket of the destination holds the snapshots of the source, verified.
        SnapshotsCopied,
        /// Gardener's API server has a ShootState that is as new as that of Repot.
        StateEnsured,
        /// `spec.seedName` of the Shoot is the destination.
        SeedBound,
        /// The gardenlet of the destination is responsible for the BackupEntry.
        BackupEntryMoved,
        /// The point of no return: the status of the Shoot makes the gardenlet of the destination restore it.
        RestoreRequested,
        /// gardenlet needs no EtcdCopyBackupsTask any more.
        CopyTaskEnded,
        /// gardenlet reports that the Shoot is restored.
        RestoreSucceeded,
        /// A kube-apiserver of the destination is ready.
        ApiServes,
        /// Nothing is left of the copy but the snapshots.
        CopyRemoved,
        /// Rollback: nothing of this migration is left at the destination.
        DestinationCleaned,
        /// Rollback: the BackupEntry names the seeds that it named before.
        BackupEntryRestored,
        /// Rollback: `spec.seedName` of the Shoot is what it was before.
        SeedNameRestored,
    }
}
