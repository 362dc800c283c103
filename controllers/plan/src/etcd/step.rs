//! Steps of the workflows of a hosted etcd.

use crate::named_enum;

named_enum! {
    /// Who works on a workflow of a hosted etcd: one controller, beside the etcd.
    pub enum Side {
        /// The cluster that the etcd runs in.
        Seed = "seed",
    }
}

named_enum! {
    /// Steps of EtcdBackup, EtcdRestore and EtcdMigration, and of their rollback. The tables say what each of them does.
    pub enum Step {
        /// No other backup has the name of this object.
        NameFree,
        /// The workflow has the lock of the HostedEtcd.
        LockTaken,
        /// A quorum of the etcd answers.
        EtcdServes,
        /// The backup that is restored is chosen and stored.
        BackupFound,
        /// No API server is left.
        ApiDown,
        /// A backup is stored.
        BackupTaken,
        /// The backup was restored elsewhere.
        BackupVerified,
        /// No member of the old etcd is left.
        EtcdDeleted,
        /// The HostedEtcd has the new settings.
        SettingsApplied,
        /// All members on the new volumes are ready.
        EtcdRestored,
        /// The new etcd holds what the backup holds.
        ProvedEqual,
        /// An API server is ready.
        ApiUp,
        /// The old volumes are deleted.
        OldVolumesReleased,
        /// The lock is given back.
        LockReleased,
        /// Rollback: the workflow still has the lock.
        LockHeld,
        /// Rollback: no member on the new volumes is left.
        NewEtcdGone,
        /// Rollback: the HostedEtcd has its former settings.
        SettingsPutBack,
        /// Rollback: the etcd on the old volumes is there.
        OldEtcdUp,
        /// Rollback: as many API servers as before are wanted.
        ApiUpAgain,
        /// Rollback: the new volumes are deleted.
        NewVolumesReleased,
        /// Rollback: the lock is given back.
        LockGivenBack,
    }
}
