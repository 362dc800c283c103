//! What a migration can request.

use std::time::Duration;

use super::observed::{ExposedMember, ExtensionOperation, FinalSnapshot, LiveCondition, OwnerId, Replicas};

/// A target that is requested again in each pass until it is observed.
///
/// # Guarantees
/// Every effect may be applied twice. One that arrives late, after the migration has rolled back or has ended, is refused or does
/// nothing.
///
/// # Assumptions
/// - What changes or deletes an object does so under the `resourceVersion` that was observed for the decision, and deletes under its
///   UID. So whatever was decided on an older state of the object is refused.
/// - `fence` is written to the object as an annotation. The fence of a rollback differs from that of the forward table, so that a
///   rollback writes each object once, even where nothing seems to have changed, and refuses what was requested before.
/// - An owner record is only replaced by one of a higher epoch, and only deleted while it has the epoch that is named.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Garden: our finalizer is on the ControlPlaneMigration, or is not.
    EnsureFinalizer {
        /// Whether the finalizer is there.
        present: bool,
    },
    /// Garden: the migrations that this one supersedes say so in their status, unless they have committed meanwhile.
    SupersedeOthers,
    /// Garden: the command of the operator has taken away the credentials of the source seed.
    RevokeSourceCredentials,
    /// Garden: gardenlet is told to leave the Shoot alone, and the generation of the Shoot is raised; or what this migration has told it
    /// is taken back.
    EnsureIgnored {
        /// Whether gardenlet is told so.
        ignored: bool,
    },
    /// Garden: `status.lastOperation` of the Shoot tells of this migration.
    EnsureOperation {
        /// What the last operation says.
        operation: super::observed::Operation,
    },
    /// Garden: `status.liveMigration` of the Shoot shows how far this migration is.
    TellLiveProgress {
        /// All of its conditions.
        conditions: Vec<LiveCondition>,
    },
    /// Garden: `status.seedName` of the Shoot is this seed.
    EnsureStatusSeed {
        /// Name of the seed in the garden.
        seed: String,
    },
    /// Garden: the BackupEntry of the Shoot names this seed and its bucket, in spec and status.
    EnsureBackupEntrySeed {
        /// Name of the seed in the garden.
        seed: String,
    },
    /// Garden: `spec.seedName` of the Shoot is this seed.
    EnsureSpecSeed {
        /// Name of the seed in the garden.
        seed: String,
    },
    /// Source: the ShootState holds the state of the source.
    SyncState,
    /// The DNS record of the API has this TTL at this side.
    EnsureApiTtl {
        /// The TTL of the record.
        ttl: Duration,
        /// Which table of which migration asks.
        fence: String,
    },
    /// The controllers of the control plane have so many replicas at this side.
    EnsureControllers {
        /// Replicas by name of the workload.
        replicas: Replicas,
        /// Which table of which migration asks.
        fence: String,
    },
    /// Destination: kube-controller-manager and kube-scheduler have so many replicas.
    EnsureKubeControllers {
        /// Replicas by name of the workload.
        replicas: Replicas,
        /// Which table of which migration asks.
        fence: String,
    },
    /// The kube-apiservers have so many replicas at this side.
    EnsureApi {
        /// Replicas by name of the workload.
        replicas: Replicas,
        /// Which table of which migration asks.
        fence: String,
    },
    /// Destination: these Pods are deleted, and others take their place: the kubelet waits before it starts their containers again.
    ReplaceApi {
        /// Names of the Pods.
        pods: Vec<String>,
    },
    /// Source: the owner record does not exist, if it is this one.
    EnsureNoOwner {
        /// The owner ID that is meant.
        owner: OwnerId,
    },
    /// The owner record is this one, unless its epoch is higher.
    EnsureOwner {
        /// The owner ID that is meant.
        owner: OwnerId,
    },
    /// The members at this side query the owner record at once, and not when their interval is over. Nothing depends on it but time.
    CheckOwner,
    /// Source: the Etcd has so many replicas, on the volumes that it has.
    EnsureEtcdReplicas {
        /// Replicas of the Etcd.
        replicas: u32,
        /// Name of the set of volumes.
        volumes: String,
        /// Which table of which migration asks.
        fence: String,
    },
    /// The etcd serves on these volumes, which are filled from the final snapshot where they are empty; its members check this
    /// owner.
    EnsureEtcd {
        /// Whether a standby member fills the volumes.
        standby: bool,
        /// Name of the set of volumes.
        volumes: String,
        /// What empty volumes are filled from.
        from: FinalSnapshot,
        /// The owner ID that members check.
        owner: OwnerId,
        /// Replicas, at least; zero makes no members. An etcd of these volumes, owner and fence that has more keeps them.
        replicas: u32,
        /// Which table of which migration asks.
        fence: String,
    },
    /// Other seeds reach each member of the etcd at this side. At the source, members are known by these addresses alone.
    ExposeMembers {
        /// Which table of which migration asks.
        fence: String,
    },
    /// The members of the etcd at this side are known by their former addresses again, and then no other seed reaches them.
    HideMembers {
        /// Which table of which migration asks.
        fence: String,
    },
    /// Destination: the members join the etcd of the source, and serve while the owner record has either of two IDs.
    JoinEtcd {
        /// Name of the set of volumes.
        volumes: String,
        /// The owner ID that members check.
        owner: OwnerId,
        /// The owner ID of the source.
        joined: OwnerId,
        /// The members of the source.
        members: Vec<ExposedMember>,
        /// Replicas of the Etcd.
        replicas: u32,
        /// Which table of which migration asks.
        fence: String,
    },
    /// Destination: the members of the source are removed from the etcd.
    RemoveSourceMembers {
        /// Which table of which migration asks.
        fence: String,
    },
    /// Source: members of a destination that never comes back are removed from the etcd.
    RemoveLostMembers {
        /// Which table of which migration asks.
        fence: String,
    },
    /// Destination: the servers of the tunnel to the Shoot have so many replicas.
    EnsureTunnel {
        /// Replicas by name of the workload.
        replicas: Replicas,
        /// Which table of which migration asks.
        fence: String,
    },
    /// Destination: a temporary DNS name leads to the servers of the tunnel.
    ExposeTunnel,
    /// Source: the Shoot has a temporary client of the tunnel, which dials the destination.
    EnsureTemporaryClient,
    /// The Shoot has no temporary client of the tunnel that this migration has made.
    RemoveTemporaryClient,
    /// This operation is requested of the DNSRecords, by an annotation with a time.
    RequestDnsRecords {
        /// The operation of the extension contract.
        operation: ExtensionOperation,
    },
    /// This operation is requested of the Infrastructure.
    RequestInfrastructure {
        /// The operation of the extension contract.
        operation: ExtensionOperation,
    },
    /// This operation is requested of the extension resources, of DNSRecords only where the destination restores them.
    RequestExtensions {
        /// The operation of the extension contract.
        operation: ExtensionOperation,
    },
    /// This operation is requested of the Workers.
    RequestWorkers {
        /// The operation of the extension contract.
        operation: ExtensionOperation,
    },
    /// Source: the workloads of the controllers are deleted, so that nobody scales them up.
    RemoveSourceControllers,
    /// Source: the objects of the Shoot are deleted, the namespace last, and no infrastructure with them.
    RemoveSource,
    /// Destination: there is a BackupEntry for the bucket of the source, and a Secret with access to it.
    EnsureSourceBackupEntry,
    /// Destination: the namespace and the exposure of the API exist, from which bindings take their values.
    EnsureExposure,
    /// Destination: the snapshots of the source are copied and verified.
    CopySnapshots,
    /// Destination: snapshots of the source that the etcd did not begin with are copied and verified.
    CopyOlderSnapshots,
    /// Destination: the final snapshot is copied and verified.
    CopyFinalSnapshot {
        /// The snapshot that is copied.
        snapshot: FinalSnapshot,
    },
    /// Destination: namespace, Secrets, carried objects without replicas and extension resources that wait for their state exist, and
    /// Machines cannot be deleted.
    PrepareDestination,
    /// Destination: a standby member follows the snapshots of the source.
    EnsureStandby {
        /// The volumes that it fills.
        volumes: String,
        /// The owner ID with which it takes over.
        owner: OwnerId,
        /// Members that the etcd has afterwards.
        replicas: u32,
        /// Which table of which migration asks.
        fence: String,
    },
    /// Destination: the DNS record of the API names the destination.
    SwitchApiDns,
    /// Destination: there is no BackupEntry for the bucket of the source.
    EnsureNoSourceBackupEntry,
    /// Destination: Machines may be deleted.
    EnsureNoMachineGuard,
    /// Destination: standby, members and kube-apiservers are stopped.
    StopDestination {
        /// Whether members that have joined the etcd of the source stop without leaving it: it may have no quorum.
        abandons_etcd: bool,
        /// Which table of which migration asks.
        fence: String,
    },
    /// Destination: the objects of the Shoot are deleted, and no infrastructure with them.
    RemoveDestination,
}
