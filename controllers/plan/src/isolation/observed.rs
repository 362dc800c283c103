//! What the sides of an isolation observe. Facts have no defaults: one that is forgotten does not compile.

use std::time::Duration;

use repot_api::conditions::Reason;
use repot_apimachinery::time::Time;

use super::{
    capacity::{FreeQuota, Pool},
    shown::{Limits, Shown},
};

/// What one side observes in one pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// What the ZoneIsolation asks for.
    pub request: IsolationRequest,
    /// What this side observes of its own cluster.
    pub facts: Facts,
}

/// What the ZoneIsolation asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsolationRequest {
    /// UID of the ZoneIsolation.
    pub uid: String,
    /// ID of the zone.
    pub zone: String,
    /// When the isolation ends by itself; `None` where it lasts until the annotation is removed.
    pub expires: Option<Time>,
    /// Whether the ZoneIsolation is being deleted.
    pub is_deleting: bool,
    /// Whether it was created because the annotation of the Shoot was there: without the annotation nobody wants it.
    pub by_annotation: bool,
    /// Whether our finalizer is on the ZoneIsolation.
    pub finalizer: bool,
    /// Another ZoneIsolation goes on from where this one stands.
    pub continued: Option<Reason>,
    /// Whether the Shoot is there, by what the garden says.
    pub shoot: ShootLife,
    /// From when on a row is shown as failed.
    pub step_timeout: Duration,
    /// How long machines of the zone may be drained before they are deleted without waiting.
    pub drain_timeout: Duration,
}

impl IsolationRequest {
    /// From when on rows are shown as failed.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits { step: self.step_timeout, drain: self.drain_timeout }
    }
}

/// Whether a Shoot is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShootLife {
    /// It exists and stays.
    Kept,
    /// It is being deleted.
    Ending,
    /// It does not exist any more, or another one has its name.
    Gone,
}

/// What one side observes of its own cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Facts {
    /// What the garden has.
    Garden(GardenFacts),
    /// What the seed has.
    Seed(Box<SeedFacts>),
}

/// Which seed has the control plane, and in which namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeedNamespace {
    /// Name of the seed.
    pub seed: String,
    /// The namespace, which is the technical ID of the Shoot.
    pub namespace: String,
}

/// What the garden observes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GardenFacts {
    /// Why the isolation has to wait before it begins: another one, or a migration.
    pub obstacle: Option<String>,
    /// Whether an isolation that fails back is not told yet that this one goes on from there.
    pub is_untold: bool,
    /// The zone that the annotation of the Shoot names.
    pub annotation: Option<String>,
    /// Whether the Shoot says that this isolation has set its annotation.
    pub is_annotated_by_us: bool,
    /// Where the control plane of the Shoot is; `None` where it is nowhere.
    pub place: Option<SeedNamespace>,
    /// The same, as the ZoneIsolation says.
    pub told_place: Option<SeedNamespace>,
    /// Whether a later isolation of the Shoot has begun.
    pub is_outdated: bool,
    /// Whether Shoots of this garden have `status.zoneIsolation`.
    pub can_show: bool,
    /// `status.zoneIsolation` of the Shoot.
    pub shown: Option<Shown>,
}

/// What the seed observes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedFacts {
    /// Name of this seed.
    pub seed: String,
    /// A migration of the Shoot that has not ended: machines and networks are in its hands.
    pub migration: Option<String>,
    /// Whether another isolation of the same zone has not ended; asked when this one has.
    pub is_followed: bool,
    /// What the cluster or the provider does not know that an isolation needs, in words; asked before anything is changed.
    pub unsupported: Vec<String>,
    /// The code of the zone in the account of the Shoot; `None` where nobody has told it.
    pub zone_code: Option<String>,
    /// Pools of the Shoot, and where their machines are.
    pub pools: Vec<Pool>,
    /// What the provider tells of its quotas.
    pub free: FreeQuota,
    /// Nodes of the zone that take new Pods; `None` where the API of the Shoot does not answer. A hibernated Shoot has none.
    pub open_nodes: Option<Vec<String>>,
    /// Nodes that were cordoned for this zone; `None` where the API of the Shoot does not answer. A hibernated Shoot has none.
    pub own_cordoned: Option<Vec<String>>,
    /// The Worker; `None` where the Shoot has none.
    pub worker: Option<WorkerFacts>,
    /// Machines of the zone, those that are being deleted included.
    pub machines: Vec<String>,
    /// Those of them that have been ending for longer than machines may be drained.
    pub late_machines: Vec<String>,
    /// PodDisruptionBudgets of the Shoot that let no Pod end, while machines of the zone are drained.
    pub closed_budgets: Vec<String>,
    /// How far the SubnetIsolation is.
    pub subnet: SubnetFacts,
}

/// The Worker, and how far its controller is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerFacts {
    /// The zone that it leaves out.
    pub left_out: Option<String>,
    /// The code of that zone, as its controller tells.
    pub code: Option<String>,
    /// What this isolation has asked of its controller last.
    pub asked: Option<Asked>,
    /// What that request waits for, with the last error; `None` where it succeeded.
    pub pending: Option<String>,
}

/// What an isolation asks of the controller of a Worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// To leave the zone out.
    LeaveZone,
    /// To use all zones.
    UseZone,
}

/// How far the SubnetIsolation is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubnetFacts {
    /// There is none.
    Absent,
    /// There is one of another zone.
    Foreign(String),
    /// Its controller has not reported success, with its last error.
    Pending(String),
    /// Its controller reports that the networks are cut off.
    Ready,
    /// It is being deleted, with what that waits for.
    Deleting(String),
}
