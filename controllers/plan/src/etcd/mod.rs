//! Workflows of a hosted etcd, from the paper on etcd workflows: backup, restore and migration; and two planners that live
//! migration shares with them: [`members`], one membership change at a time, and [`ownership`], who may serve.
//!
//! **What is promised.** Until `EtcdDeleted` is begun nothing of the old etcd is touched, and the way back is to start the API
//! servers. From there until `ApiUp` is begun the old volumes are kept as they are, nobody writes to the new etcd, and the way
//! back is the old etcd on its volumes. `ApiUp` is begun only after the new etcd has proved to hold what the backup holds, and
//! from then on there is no way back, since API servers may have acknowledged writes. Ends are Succeeded, RolledBack, Cancelled,
//! and Failed, with the places of the data and what to do.
//!
//! **When the HostedEtcd is deleted.** A restore or a migration sets a finalizer on the HostedEtcd together with its lock, before
//! it changes anything. So a HostedEtcd that is deleted stays until the workflow has gone back, or has come to its end where there
//! is no way back. Where somebody removes that finalizer by hand, the workflow goes back all the same: it has recorded which Etcd
//! and which Deployment the HostedEtcd referred to. A backup sets none, since it changes nothing.

pub mod backup;
pub mod beginning;
pub mod effect;
pub mod handover;
pub mod members;
pub mod migration;
pub mod observed;
pub mod operator;
pub mod ownership;
pub mod restore;
pub mod retention;
pub mod rolling;
pub mod schedule;

mod notes;
mod rollback;
mod rows;
mod step;

use std::time::Duration;

use serde_json::{Map, Value};

use crate::{
    flow::{Abort, Flow, LedgerOf, Request, StepContext},
    ledger::Reason,
};
use effect::Effect;
pub use notes::{Notes, api_outage};
/// The former path of [`observed`], for crates that still use it.
pub use observed as world;
use observed::{Cluster, Lock, Observed};
pub use rows::BACKUP_ATTEMPTS;
pub use step::{Side, Step};

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
const SIDE_LIMIT: Duration = Duration::MAX;

impl Flow for EtcdFlow {
    type Side = Side;
    type Step = Step;
    type Observed = Observed;
    type Notes = Notes;
    type Effect = Effect;

    fn request(observed: &Observed) -> Request {
        let request = &observed.request;
        let deleted = |message: &str| Some(Reason::new(HOSTED_ETCD_DELETED, message));
        let is_aborted = request.cancel || request.deleting.is_some();
        Request {
            paused: request.paused,
            abort: if is_aborted { Abort::Abort } else { Abort::None },
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
            vec![rows::release(observed)]
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
