//! The ledger becomes the status, under the version that was read.

use kube::{
    Api, ResourceExt,
    api::{DynamicObject, PostParams},
};
use repot_plan::{
    etcd::{EtcdLedger, Step, backup::Spec, schedule},
    ledger::{Phase, State},
    status,
    time::Time,
};
use serde_json::{Map, Value, json};

use super::{
    context::Context,
    error::{Error, Result},
    kinds::{self, Kind, MANAGER},
    observe::Observation,
};

/// Stores the ledger, and gives the object as it is then.
///
/// # Errors
/// [`Error::Write`]; a conflict where somebody changed the object since it was read, and then nothing was stored.
pub async fn record(
    context: &Context,
    kind: Kind,
    object: &DynamicObject,
    observed: &Observation,
    (before, next): (&EtcdLedger, &EtcdLedger),
) -> Result<DynamicObject> {
    let mut changed = object.clone();
    changed.data["status"] = render(context, kind, object, observed, (before, next));
    let namespace = object.namespace().unwrap_or_default();
    let all =
        Api::<DynamicObject>::namespaced_with(context.clients.own().clone(), &namespace, &kind.resource());
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    let stored = all.replace_status(&object.name_any(), &params, &changed).await;
    stored.map_err(|source| Error::Write { task: "record the ledger", source })
}

fn render(
    context: &Context,
    kind: Kind,
    object: &DynamicObject,
    observed: &Observation,
    (before, next): (&EtcdLedger, &EtcdLedger),
) -> Value {
    let mut fields = match kinds::status(object) {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    status::fields(kind.plans()).for_each(|field| drop(fields.remove(field)));
    let plan = kind.plans().of(next.version).unwrap_or(kind.plans().newest());
    if let Value::Object(ledger) = status::to_status(plan, next) {
        fields.extend(ledger);
    }
    fields.insert("observedGeneration".to_owned(), json!(object.metadata.generation));
    match kind {
        Kind::Backup => backup_fields(context, object, observed, (before, next), &mut fields),
        Kind::Restore => {
            if let Some(proof) = &next.notes.proof {
                fields.insert("revision".to_owned(), json!(proof.revision.0));
            }
        }
        Kind::Migration => {}
    }
    Value::Object(fields)
}

/// What is told of the newest backup stays until there is a newer one.
fn backup_fields(
    context: &Context,
    object: &DynamicObject,
    observed: &Observation,
    (before, next): (&EtcdLedger, &EtcdLedger),
    fields: &mut Map<String, Value>,
) {
    let verified = next.steps.get(&Step::BackupVerified).filter(|record| record.state == State::Succeeded);
    let is_new = before.state(Step::BackupVerified) != State::Succeeded;
    if let (Some(record), Some(proof), true) = (verified, &next.notes.proof, is_new) {
        fields.insert("lastSuccessfulTime".to_owned(), json!(record.completed.map(Time::to_rfc3339)));
        fields.insert("revision".to_owned(), json!(proof.revision.0));
        let name = next.notes.backup.as_deref().unwrap_or_default();
        let bytes = observed.place.as_ref().and_then(|place| context.settled.bytes(&place.url(), name));
        fields.remove("sizeBytes");
        fields.extend(bytes.map(|bytes| ("sizeBytes".to_owned(), json!(bytes))));
    }
    fields.remove("nextScheduleTime");
    fields.extend(
        due(&kinds::backup_spec(object), next).map(|time| ("nextScheduleTime".to_owned(), json!(time))),
    );
}

fn due(spec: &Spec, ledger: &EtcdLedger) -> Option<String> {
    let schedule = spec.schedule.filter(|_| ledger.phase != Phase::Cancelled)?;
    schedule::next(&schedule, ledger.started.unwrap_or(spec.created)).map(Time::to_rfc3339)
}
