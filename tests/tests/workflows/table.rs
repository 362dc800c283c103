//! The faults of a migration, and how each ends.

/// Rows that are played one after the other on one control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    A,
    B,
    C,
    D,
    /// Takes minutes: `make soak`.
    Soak,
}

/// A row of the table.
pub struct Fault {
    /// Its name, which is that of its migration after `m-`.
    pub name: &'static str,
    /// Where it is played.
    pub lane: Lane,
    /// The step in which it happens.
    pub step: &'static str,
    /// What happens in this row.
    pub what: &'static str,
    /// How the migration ends.
    pub ends: &'static str,
    /// Why, as the status says it.
    pub reason: &'static str,
    /// What is left behind afterwards.
    pub left: &'static str,
}

/// The step of a row that is about each of them.
pub const ALL_STEPS: &str = "all of them";

const KEPT: &str = "the old members on their volumes";
const MOVED: &str = "the new members; the old volumes are deleted";

/// All of them, in the order of the steps.
pub const FAULTS: &[Fault] = &[
    Fault {
        name: "lock",
        lane: Lane::A,
        step: "LockTaken",
        what: "another workflow has the lock, and the migration is cancelled",
        ends: "Cancelled",
        reason: "Cancelled",
        left: "everything, unchanged",
    },
    Fault {
        name: "quorum",
        lane: Lane::A,
        step: "EtcdServes",
        what: "the etcd is out of quorum: two of its three members are frozen",
        ends: "RolledBack",
        reason: "NoQuorum",
        left: KEPT,
    },
    Fault {
        name: "stubborn-api",
        lane: Lane::A,
        step: "ApiDown",
        what: "an API server does not end in time",
        ends: "RolledBack",
        reason: "ApiServersEnding",
        left: KEPT,
    },
    Fault {
        name: "store",
        lane: Lane::A,
        step: "BackupTaken",
        what: "the store cannot be written",
        ends: "RolledBack",
        reason: "BackupFailed",
        left: KEPT,
    },
    Fault {
        name: "job",
        lane: Lane::C,
        step: "BackupTaken",
        what: "the Job that takes the backup is deleted",
        ends: "Succeeded",
        reason: "Succeeded",
        left: MOVED,
    },
    Fault {
        name: "damage",
        lane: Lane::B,
        step: "BackupVerified",
        what: "the snapshot is damaged in the store, while the migration is paused",
        ends: "RolledBack",
        reason: "BackupCorrupt",
        left: KEPT,
    },
    Fault {
        name: "api-returns",
        lane: Lane::B,
        step: "BackupVerified",
        what: "somebody scales the API servers up, and they write",
        ends: "RolledBack",
        reason: "ApiServersCameBack",
        left: KEPT,
    },
    Fault {
        name: "member-stays",
        lane: Lane::B,
        step: "EtcdDeleted",
        what: "one of three members does not end in time, as on a node that does not answer",
        ends: "RolledBack",
        reason: "MembersEnding",
        left: KEPT,
    },
    Fault {
        name: "hosted-etcd",
        lane: Lane::B,
        step: "SettingsApplied",
        what: "the HostedEtcd is deleted; it stays until the migration has rolled back",
        ends: "RolledBack",
        reason: "HostedEtcdDeleted",
        left: KEPT,
    },
    Fault {
        name: "cancel",
        lane: Lane::B,
        step: "SettingsApplied",
        what: "the migration is cancelled",
        ends: "Cancelled",
        reason: "Cancelled",
        left: KEPT,
    },
    Fault {
        name: "no-class",
        lane: Lane::C,
        step: "EtcdRestored",
        what: "the StorageClass does not exist, so no new volume is provisioned",
        ends: "RolledBack",
        reason: "EtcdRestoring",
        left: KEPT,
    },
    Fault {
        name: "disk-full",
        lane: Lane::C,
        step: "EtcdRestored",
        what: "the new volumes are too small, so the disk is full",
        ends: "RolledBack",
        reason: "EtcdRestoring",
        left: KEPT,
    },
    Fault {
        name: "agent",
        lane: Lane::D,
        step: "EtcdRestored",
        what: "the agent of the first member is killed while it restores",
        ends: "Succeeded",
        reason: "Succeeded",
        left: MOVED,
    },
    Fault {
        name: "intruder",
        lane: Lane::C,
        step: "ProvedEqual",
        what: "somebody writes to the new etcd while the migration is paused before the API servers start",
        ends: "RolledBack",
        reason: "NotEqual",
        left: KEPT,
    },
    Fault {
        name: "leader",
        lane: Lane::D,
        step: "ApiUp",
        what: "the member that leads the new etcd is killed while the API servers start",
        ends: "Succeeded",
        reason: "Succeeded",
        left: MOVED,
    },
    Fault {
        name: "claim",
        lane: Lane::D,
        step: "OldVolumesReleased",
        what: "an old claim is held by somebody's finalizer",
        ends: "Succeeded",
        reason: "Succeeded",
        left: "the new members; the claim goes when the finalizer does",
    },
    Fault {
        name: "conflicts",
        lane: Lane::D,
        step: "LockReleased",
        what: "somebody changes the HostedEtcd all the time, so that writes to it conflict",
        ends: "Succeeded",
        reason: "Succeeded",
        left: "the new members; the lock is given back when it can be written",
    },
    Fault {
        name: "controllers",
        lane: Lane::Soak,
        step: ALL_STEPS,
        what: "the controllers are killed as soon as each step is begun",
        ends: "Succeeded",
        reason: "Succeeded",
        left: MOVED,
    },
];
