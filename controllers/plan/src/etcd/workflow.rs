//! The workflows of a hosted etcd as a flow of the engine.

use std::time::Duration;

use repot_api::conditions::Reason;
use serde_json::{Map, Value};

use super::{
    effect::Effect,
    notes::{self, Notes},
    observed::{Cluster, Lock, Observed},
    step::{Side, Step},
};
use crate::flow::{Abort, Flow, LedgerOf, Request, StepContext};

/// The workflows of a hosted etcd.
#[derive(Clone, Debug, PartialEq)]
pub enum EtcdFlow {}

/// The ledger of a workflow.
pub type EtcdLedger = LedgerOf<EtcdFlow>;

/// Version of all tables of this module. A change that an unfinished workflow would not survive makes a new version, beside this
/// one: see [`Plans`](crate::flow::Plans).
pub const PLAN_VERSION: u32 = 1;

/// Reason of a workflow whose HostedEtcd is deleted.
pub const HOSTED_ETCD_DELETED: &str = "HostedEtcdDeleted";

/// The shortest time a step can be given: below it, looking twice would take longer.
const LEAST_TIMEOUT: Duration = Duration::from_secs(30);

/// There is one side, so no row waits for another one.
pub(super) const SIDE_LIMIT: Duration = Duration::MAX;

impl Flow for EtcdFlow {
    type Side = Side;
    type Step = Step;
    type Observed = Observed;
    type Notes = Notes;
    type Effect = Effect;

    const ABORT_FIELD: &'static str = "spec.cancel";

    fn request(observed: &Observed) -> Request {
        let request = &observed.request;
        let deleted = |message: &str| Some(Reason::new(HOSTED_ETCD_DELETED, message));
        let is_aborted = request.cancel || request.deleting.is_some();
        Request {
            paused: request.paused,
            abort: if is_aborted { Abort::Abort } else { Abort::None },
            superseded: None,
            continued: None,
            retry: 0,
            abandoned: match observed.cluster {
                Cluster::Present => None,
                Cluster::Deleting => deleted("the HostedEtcd is being deleted"),
                Cluster::Gone => deleted("the HostedEtcd does not exist any more"),
            },
            step_timeout: request.step_timeout.max(LEAST_TIMEOUT),
        }
    }

    fn cleanup(context: &StepContext<'_, Self>) -> Vec<Effect> {
        let observed = context.observed;
        if observed.lock == Lock::Ours && observed.cluster != Cluster::Gone {
            vec![release(observed)]
        } else if observed.request.finalizer {
            vec![Effect::EnsureFinalizer { present: false }]
        } else {
            Vec::new()
        }
    }

    fn derived(ledger: &LedgerOf<Self>) -> Map<String, Value> {
        notes::derived(ledger)
    }

    fn data_locations(notes: &Notes) -> String {
        let mut places = Vec::new();
        if let Some((volumes, _)) = &notes.old {
            places.push(format!("the old volumes are kept as {volumes}"));
        }
        if let Some(volumes) = &notes.new {
            places.push(format!("the new ones are {volumes}"));
        }
        match (&notes.backup, &notes.proof) {
            (Some(name), Some(proof)) => {
                places.push(format!("backup {name} is verified up to revision {}", proof.revision.0));
            }
            (Some(name), None) => places.push(format!("backup {name} is not verified")),
            (None, _) => {}
        }
        if let Some(replicas) = notes.api_replicas {
            places.push(format!("there were {replicas} API servers"));
        }
        places.join(", ")
    }
}

/// What gives a HostedEtcd back that this workflow has locked: its finalizer first, then its lock.
pub(super) fn release(observed: &Observed) -> Effect {
    if observed.cluster_finalizer {
        Effect::EnsureClusterFinalizer { present: false }
    } else {
        Effect::EnsureLock { held: false }
    }
}
