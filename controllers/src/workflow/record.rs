//! The ledger becomes the status, under the version that was read.

use kube::{
    Api, ResourceExt,
    api::{PostParams, TypeMeta},
};
use repot_apimachinery::{schedule, time::Time};
use repot_plan::{
    etcd::{EtcdLedger, Step, backup::Spec},
    ledger::{Phase, State},
    status,
};
use serde_json::Value;

use super::{
    api::{WorkflowObject, WorkflowSpec, WorkflowStatus},
    context::Context,
    error::{Error, Result},
    kinds::{Kind, MANAGER, created},
    observe::Observation,
};

/// Stores the ledger, and gives the object as it is then.
///
/// # Errors
/// [`Error::Write`]; a conflict where somebody changed the object since it was read, and then nothing was stored.
pub async fn record<S: WorkflowSpec>(
    context: &Context,
    object: &WorkflowObject<S>,
    observed: &Observation,
    (before, next): (&EtcdLedger, &EtcdLedger),
) -> Result<WorkflowObject<S>> {
    let changed = WorkflowObject {
        types: Some(TypeMeta::resource::<WorkflowObject<S>>()),
        status: render(context, object, observed, (before, next)),
        ..object.clone()
    };
    let namespace = object.namespace().unwrap_or_default();
    let all = Api::<WorkflowObject<S>>::namespaced(context.clients.own().clone(), &namespace);
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    let stored = all.replace_status(&object.name_any(), &params, &changed).await;
    stored.map_err(|source| Error::Write { task: "record the ledger", source })
}

/// The status with the next ledger; fields that are unknown here stay.
fn render<S: WorkflowSpec>(
    context: &Context,
    object: &WorkflowObject<S>,
    observed: &Observation,
    (before, next): (&EtcdLedger, &EtcdLedger),
) -> WorkflowStatus {
    let plans = S::KIND.plans();
    let mut status = object.status.clone();
    status::fields(plans).for_each(|field| drop(status.ledger.remove(field)));
    let plan = plans.of(next.version).unwrap_or(plans.newest());
    if let Value::Object(ledger) = status::to_status(plan, next) {
        status.ledger.extend(ledger);
    }
    status.observed_generation = object.metadata.generation;
    match S::KIND {
        Kind::Backup => {
            backup_fields(context, observed, (before, next), &mut status);
            let spec = object.spec.backup(created(object));
            status.next_schedule_time = spec.and_then(|spec| due(&spec, next));
        }
        Kind::Restore => {
            if let Some(proof) = &next.notes.proof {
                status.revision = Some(proof.revision.0);
            }
        }
        Kind::Migration => {}
    }
    status
}

/// What is told of the newest backup stays until there is a newer one.
fn backup_fields(
    context: &Context,
    observed: &Observation,
    (before, next): (&EtcdLedger, &EtcdLedger),
    status: &mut WorkflowStatus,
) {
    let verified = next.steps.get(&Step::BackupVerified).filter(|record| record.state == State::Succeeded);
    let is_new = before.state(Step::BackupVerified) != State::Succeeded;
    if let (Some(record), Some(proof), true) = (verified, &next.notes.proof, is_new) {
        status.last_successful_time = record.completed.map(Time::to_rfc3339);
        status.revision = Some(proof.revision.0);
        let name = next.notes.backup.as_deref().unwrap_or_default();
        let bytes = observed.place.as_ref().and_then(|place| context.settled.bytes(&place.url(), name));
        status.size_bytes = bytes.and_then(|bytes| i64::try_from(bytes).ok());
    }
}

fn due(spec: &Spec, ledger: &EtcdLedger) -> Option<String> {
    let schedule = spec.schedule.filter(|_| ledger.phase != Phase::Cancelled)?;
    schedule::next(&schedule, ledger.started.unwrap_or(spec.created)).map(Time::to_rfc3339)
}
