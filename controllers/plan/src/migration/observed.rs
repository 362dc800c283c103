//! What the sides of a migration observe.
//!
//! Facts have no defaults: whoever observes says of each fact what it is, so that one that was not asked does not look like a good one.
//!
//! Each side reads its own cluster and the objects of the migration in the garden. It reads what it decides on from the API servers,
//! and not from a cache, after the step was recorded.

use std::time::Duration;

use repot_api::conditions::Reason;
use repot_apimachinery::time::Time;
use serde::{Deserialize, Serialize};

pub use super::etcd_facts::{EtcdFacts, ExposedMember, Exposure, Joining};
pub use super::garden_facts::{
    BackupEntrySeeds, FormerOperation, GardenFacts, Ignored, LiveCondition, Operation, Quarantine,
    SupersededMigration,
};
pub use super::tunnel_facts::{TunnelClient, TunnelFacts};
pub use super::workloads::{KUBE_CONTROLLERS, Replicas, Workloads};
use crate::flow::Abort;

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
    /// How the control plane moves.
    pub mode: MigrationMode,
    /// Whether a person has confirmed a forced migration, by the name of its source.
    pub confirmed: bool,
    /// Whether a person has confirmed that controllers of the source act on the infrastructure no more.
    pub source_stopped: bool,
    /// Whether our finalizer is on the ControlPlaneMigration.
    pub finalizer: bool,
    /// Whether `spec.paused` is set.
    pub paused: bool,
    /// `spec.abort`; deletion of the object counts as a request to abort.
    pub abort: Abort,
    /// Why the migration has lost its subject: the Shoot is deleted, or another one has its name.
    pub abandoned: Option<Reason>,
    /// Why another migration of the Shoot goes on in place of this one, or of what this side has left to do.
    pub superseded: Option<Reason>,
    /// Live: name of a later, forced migration with the same source and the same destination. It waits until this one gives way to it.
    pub forced_instead: Option<String>,
    /// Name of the forced migration that goes on from the destination of this one, which is dead.
    pub continued: Option<String>,
    /// Live: the destination never comes back, as somebody has confirmed, and this side is on its way back without it.
    pub destination_lost: bool,
    /// `spec.retry`: the number of the last request to try again what has failed.
    pub retry: u32,
    /// Live: whether the source may be given up for a destination that does not start beside it (`spec.forceShrinkEtcd`).
    pub force_shrink: bool,
    /// How long a step may take.
    pub step_timeout: Duration,
    /// Name of the source seed.
    pub source_seed: String,
    /// Identity of the source seed, as in owner IDs.
    pub source_identity: String,
    /// Name of the destination seed.
    pub destination_seed: String,
    /// Identity of the destination seed, as in owner IDs.
    pub destination_identity: String,
    /// The Shoot is hibernated: its API servers, its etcd and its controllers have no replicas.
    pub hibernated: bool,
    /// The Shoot has no workers: there are neither Infrastructure nor Machines.
    pub workerless: bool,
}

/// How the control plane moves: each mode has its own tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MigrationMode {
    /// The source stops before the destination serves.
    #[default]
    Classic,
    /// Nobody waits for the source.
    Forced,
    /// Source and destination serve at the same time, on one etcd.
    Live,
}

/// What one side observes of its own cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Facts {
    /// Of the garden.
    Garden(Box<GardenFacts>),
    /// Of the source seed.
    Source(Box<SourceFacts>),
    /// Of the destination seed.
    Destination(Box<DestinationFacts>),
}

impl Facts {
    /// The owner record, as this side reads it; the garden reads none.
    #[must_use]
    pub fn owner_record(&self) -> &OwnerRecord {
        match self {
            Self::Garden(_) => &OwnerRecord::Unknown,
            Self::Source(facts) => &facts.owner,
            Self::Destination(facts) => &facts.owner,
        }
    }
}

/// An owner ID: which seed may serve the etcd, and by which hand-over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerId {
    /// Identity of the seed.
    pub seed: String,
    /// Number of the hand-over. It only rises.
    pub epoch: u64,
}

/// The owner record, as the servers of its zone answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OwnerRecord {
    /// No server answers, or servers contradict each other.
    #[default]
    Unknown,
    /// All servers that answer say that there is no record.
    Absent,
    /// All servers that answer give this ID.
    Present(OwnerId),
}

/// A snapshot that ends the ownership of an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinalSnapshot {
    /// Name of the object in the bucket.
    pub name: String,
    /// Revision of etcd that it holds.
    pub revision: u64,
    /// Epoch that it ends.
    pub epoch: u64,
}

/// A snapshot in the bucket of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSnapshot {
    /// Name of the object in the bucket.
    pub name: String,
    /// Revision of etcd that it holds.
    pub revision: u64,
    /// When it was begun.
    pub created: Time,
}

/// What the controller of the source observes.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceFacts {
    /// Entries of the ShootState that differ from the source, by what was read after this pass began. `None` where it could not be read.
    pub unsynced: Option<u32>,
    /// kube-controller-manager, machine-controller-manager, autoscaler and every other controller of the control plane.
    pub controllers: Workloads,
    /// The kube-apiservers at this side. Replicas of servers of the tunnel are among theirs: both are started and stopped together.
    pub api: Workloads,
    /// The tunnel to the Shoot.
    pub tunnel: TunnelFacts,
    /// When they answered last, as far as this side has seen it while they are being stopped.
    pub api_answered: Option<Time>,
    /// The etcd at this side.
    pub etcd: EtcdFacts,
    /// How other seeds reach its members. It is not asked for in other modes than Live.
    pub exposure: Exposure,
    /// The owner record, as this side reads it.
    pub owner: OwnerRecord,
    /// Longest time for which a member may still believe in an earlier owner record: TTL, check interval and grace.
    pub owner_wait: Duration,
    /// What ends the newest epoch in the bucket of the source: a delta where a standby follows, else the final snapshot.
    pub final_snapshot: Option<FinalSnapshot>,
    /// Whether the final snapshot is stored, which comes after a final delta and holds everything.
    pub is_final_full: bool,
    /// TTL of the DNS record of the API.
    pub api_ttl: Duration,
    /// Who set that TTL last.
    pub api_ttl_fence: String,
    /// DNSRecords of the Shoot.
    pub dns_records: Extensions,
    /// Whether all servers of the zone answer with the source for the name of the API. It is asked for in the rollback of a live
    /// migration alone.
    pub api_dns_here: bool,
    /// Other extension resources of the Shoot.
    pub extensions: Extensions,
    /// Kinds of objects of the Shoot that are left at the source.
    pub left: Vec<String>,
}

impl SourceFacts {
    /// Whether anything is there of the exposure of members by a migration whose forward table has this fence.
    pub(crate) fn is_exposed_by(&self, fence: &str) -> bool {
        (self.etcd.is_exposed && self.etcd.fence == fence) || !self.exposure.left.is_empty()
    }
}

/// Extension resources with an operation in progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extensions {
    /// Operation that was requested last, by an annotation with a time.
    pub requested: Option<ExtensionOperation>,
    /// Resources that have not reported the success of that request, with their last error.
    pub pending: Vec<String>,
}

impl Extensions {
    /// Whether all resources reported success of a request for this operation.
    #[must_use]
    pub fn have_done(&self, operation: ExtensionOperation) -> bool {
        self.requested == Some(operation) && self.pending.is_empty()
    }
}

/// Operations of extension resources that a migration requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtensionOperation {
    /// `gardener.cloud/operation: migrate`.
    Migrate,
    /// `gardener.cloud/operation: restore`.
    Restore,
}

/// What the controller of the destination observes.
#[derive(Clone, Debug, PartialEq)]
pub struct DestinationFacts {
    /// Why the bucket of the source cannot be read; `None` where it can.
    pub bucket_problem: Option<String>,
    /// Bindings without a value, and rewrites that match nothing.
    pub unresolved: Vec<String>,
    /// Revision up to which snapshots are copied and verified; `None` where none is.
    pub copied: Option<u64>,
    /// Names of Pods of kube-apiservers that were started before the etcd served, and wait for the kubelet to start them again.
    pub api_held_back: Vec<String>,
    /// Whether snapshots that the etcd did not begin with are copied and verified as well.
    pub older_copied: bool,
    /// The newest snapshot in the bucket of the source; `None` where it was not asked for, or is not known.
    pub source_newest: Option<SourceSnapshot>,
    /// The final snapshot that is copied and verified.
    pub final_copied: Option<FinalSnapshot>,
    /// Objects that are not prepared yet.
    pub unprepared: Vec<String>,
    /// Whether the ValidatingAdmissionPolicy that keeps Machines is in effect.
    pub machine_guard: bool,
    /// Whether a standby member can be made for this etcd.
    pub offers_standby: bool,
    /// Revision up to which the standby member has followed; `None` where none runs.
    pub standby: Option<u64>,
    /// The owner record, as this side reads it.
    pub owner: OwnerRecord,
    /// Longest time for which a member may still believe in an earlier owner record: TTL, check interval and grace.
    pub owner_wait: Duration,
    /// The highest epoch that other migrations of the Shoot have recorded; zero where there is none, or it was not asked for.
    pub highest_epoch: u64,
    /// Whether another migration of the Shoot was created after this one. It is not asked for before a forced one has succeeded.
    pub is_followed: bool,
    /// The etcd at this side.
    pub etcd: EtcdFacts,
    /// How other seeds reach its members. It is not asked for in other modes than Live.
    pub exposure: Exposure,
    /// DNSRecords of the Shoot, but for that of the owner, and how far their `migrate` is. It is asked for in a rollback alone.
    pub dns_records: Extensions,
    /// The kube-apiservers at this side. Replicas of servers of the tunnel are among theirs: both are started and stopped together.
    pub api: Workloads,
    /// The tunnel to the Shoot.
    pub tunnel: TunnelFacts,
    /// Why the API does not answer at its Service, or that has no address; `None` where all is well.
    pub exposure_problem: Option<String>,
    /// Live: why not all kube-apiservers of the destination watch all kinds of the Shoot, or that it was not asked; `None` where they do.
    pub uncached: Option<String>,
    /// Whether all servers of the zone answer with the destination for the name of the API.
    pub api_dns_here: bool,
    /// When the controller of the DNSRecord reported that it has written the destination, by its own clock.
    pub api_dns_written: Option<Time>,
    /// TTL of the DNS record of the API.
    pub api_ttl: Duration,
    /// The Infrastructure, and its last operation.
    pub infrastructure: Extensions,
    /// Extension resources other than Infrastructure and Worker.
    pub extensions: Extensions,
    /// The Workers, and their last operation.
    pub workers: Extensions,
    /// How Machines, their classes and their provider IDs differ from the carried state; `None` where they could not be compared.
    pub machine_differences: Option<Vec<String>>,
    /// Nodes whose Lease was fresh when the kube-apiservers of the source were stopped, and is not renewed since the API serves at the
    /// destination; `None` where they could not be listed.
    pub stale_leases: Option<Vec<String>>,
    /// Controllers of the control plane, as at the source.
    pub controllers: Workloads,
    /// Those of [`KUBE_CONTROLLERS`] at this side, which are not among the other controllers.
    pub kube_controllers: Workloads,
    /// Nodes that were healthy before the migration and are not; `None` where they could not be listed.
    pub unhealthy_nodes: Option<Vec<String>>,
    /// Whether there is a BackupEntry for the bucket of the source.
    pub source_backup_entry: bool,
    /// Kinds of objects that exist at the destination with the UID of this migration in a label, BackupEntries and the policy that keeps
    /// Machines included. Those of a later migration have another UID.
    pub left: Vec<String>,
}

impl GardenFacts {
    /// Whether gardenlet is to be let act on the Shoot again. A Shoot whose seed is being deleted keeps the annotation: the next migration
    /// takes it over.
    pub(crate) fn has_ignore_to_end(&self) -> bool {
        self.ignored.is_written() && !self.is_seed_deleted
    }
}
