//! The faults of a migration, and how each ends.

/// A row of the table.
pub struct Fault {
    /// The step in which it happens.
    pub step: &'static str,
    /// What happens.
    pub what: &'static str,
    /// How the migration ends.
    pub ends: &'static str,
    /// Why, as the status says it.
    pub reason: &'static str,
    /// What is left.
    pub left: &'static str,
}

const KEPT: &str = "the old members on their volumes";
const MOVED: &str = "the new members; the old volumes are deleted";

/// All of them, in the order of the steps.
pub const FAULTS: &[Fault] = &[
    Fault {
        step: "LockTaken",
        what: "another workflow has the lock, and the migration is called off",
        ends: "Cancelled",
        reason: "Cancelled",
        left: "everything, untouched",
    },
    Fault {
        step: "EtcdServes",
        what: "the etcd is out of quorum: its member is frozen",
        ends: "RolledBack",
        reason: "NoQuorum",
        left: KEPT,
    },
    Fault {
        step: "ApiDown",
        what: "an API server does not end in time",
        ends: "RolledBack",
        reason: "ApiServersEnding",
        left: KEPT,
    },
    Fault {
        step: "BackupTaken",
        what: "the store cannot be written",
        ends: "RolledBack",
        reason: "BackupFailed",
        left: KEPT,
    },
    Fault {
        step: "BackupTaken",
        what: "the Job that takes the backup is deleted",
        ends: "Succeeded",
        reason: "Succeeded",
        left: MOVED,
    },
    Fault {
        step: "BackupVerified",
        what: "the snapshot is damaged in the store, while the migration is paused",
        ends: "RolledBack",
        reason: "BackupCorrupt",
        left: KEPT,
    },
    Fault {
        step: "BackupVerified",
        what: "somebody scales the API servers up, and they write",
        ends: "RolledBack",
        reason: "ApiServersCameBack",
        left: KEPT,
    },
    Fault {
        step: "EtcdDeleted",
        what: "a member does not end in time, as on a node that does not answer",
        ends: "RolledBack",
        reason: "MembersEnding",
        left: KEPT,
    },
    Fault {
        step: "SettingsApplied",
        what: "the HostedEtcd is deleted; it stays until the migration has gone back",
        ends: "RolledBack",
        reason: "HostedEtcdDeleted",
        left: KEPT,
    },
    Fault {
        step: "SettingsApplied",
        what: "the migration is called off",
        ends: "Cancelled",
        reason: "Cancelled",
        left: KEPT,
    },
    Fault {
        step: "EtcdRestored",
        what: "there is no such StorageClass, so the new volumes never come",
        ends: "RolledBack",
        reason: "EtcdRestoring",
        left: KEPT,
    },
    Fault {
        step: "EtcdRestored",
        what: "the new volumes are too small, so the disk is full",
        ends: "RolledBack",
        reason: "EtcdRestoring",
        left: KEPT,
    },
    Fault {
        step: "EtcdRestored",
        what: "the agent is killed while it restores",
        ends: "Succeeded",
        reason: "Succeeded",
        left: MOVED,
    },
    Fault {
        step: "ProvedEqual",
        what: "somebody writes to the new etcd while the migration is paused before the API servers start",
        ends: "RolledBack",
        reason: "NotEqual",
        left: KEPT,
    },
    Fault {
        step: "ApiUp",
        what: "the new member is killed while the API servers start",
        ends: "Succeeded",
        reason: "Succeeded",
        left: MOVED,
    },
    Fault {
        step: "OldVolumesReleased",
        what: "an old claim is held by somebody's finalizer",
        ends: "Succeeded",
        reason: "Succeeded",
        left: "the new members; the claim goes when the finalizer does",
    },
    Fault {
        step: "all of them",
        what: "the controllers are killed as soon as each step is begun",
        ends: "Succeeded",
        reason: "Succeeded",
        left: MOVED,
    },
];
