//! Steps of a migration by gardenlet.

use crate::named_enum;

named_enum! {
    /// Steps of forced and classic migrations by gardenlet and of their rollback. The tables say what each of them does.
    pub enum Step {
        /// The migration is recorded, and no other one is in its way.
        MigrationRecorded,
        /// The destination can host the Shoot, the source does not answer, and Repot has the rights that it needs.
        DestinationReady,
        /// Classic: both seeds are ready, their gardenlets answer, and the binding would be accepted.
        SeedsReady,
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
        /// Classic: Gardener's API server takes a ShootState of this size.
        StateFits,
        /// Classic: the bucket of the destination holds what the source had stored before it is migrated.
        SnapshotsCopiedAhead,
        /// Classic: no operation of gardenlet runs on the Shoot.
        ShootIdle,
        /// Classic: Gardener and all webhooks would accept the binding now.
        BindingAccepted,
        /// `spec.seedName` of the Shoot is the destination. In a classic migration this is the point of no return.
        SeedBound,
        /// Classic: gardenlet reports that the source has migrated the Shoot.
        MigrateSucceeded,
        /// Classic: no kube-apiserver of the source is ready.
        ApiStopped,
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
