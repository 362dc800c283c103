//! EtcdRestore: puts a hosted etcd back to a backup. It runs once.

use repot_apimachinery::{
    field::FieldError,
    json::Node,
    kind::{Cell, Column, Kind, text_at},
    meta,
    schema::{Default, Field, Schema, Shape},
    shape,
};

use crate::workflow::{
    self, API_DOWN_SECONDS, API_VERSION, BEFORE, CANCEL, CLUSTER_REF, CONDITIONS, KIND, MESSAGE, NEW_VOLUMES,
    OBSERVED_GENERATION, PAUSED, PAUSED_TIME, PLAN_VERSION, PROOF, REASON, STEERING, STEP_TIMEOUT, STEPS,
    STORE, TIME, cell, step_cell,
};

static SOURCE_NAME: Schema = Schema::string(
    "Name of a backup in the store of the HostedEtcd, as an EtcdBackup has it in status.backupName.",
);
static SOURCE: Schema = Schema::of(
    "Which backup: the name of one, or a store with a prefix, of which the newest is taken. Exactly one of them.",
    Shape::Object(&[Field::optional("backupName", &SOURCE_NAME), Field::optional("store", &STORE)]),
);
static SPEC: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.EtcdRestoreSpec"),
    description: "What is to be restored, and from which backup. Nothing but paused, cancel and stepTimeout can be changed.",
    shape: Shape::Object(&[
        Field::optional("cancel", &CANCEL),
        Field::required("clusterRef", &CLUSTER_REF),
        Field::optional("paused", &PAUSED),
        Field::required("source", &SOURCE),
        Field::defaulted("stepTimeout", &STEP_TIMEOUT, Default::Text("10m")),
    ]),
};

static PHASE: Schema = Schema::choice(
    "How far the restore has come. RolledBack: it failed, and the etcd is what it was before.",
    &["Pending", "Running", "Succeeded", "RollingBack", "RolledBack", "Failed", "Cancelled"],
);
static RESTORE_STEPS: Schema = Schema::of("The steps, in their order.", STEPS);
static REVISION: Schema = Schema::of("Revision of etcd that was restored.", Shape::Integer);
static RESTORED: Schema = Schema::string("The backup that is restored, once it is chosen and verified.");
static STATUS: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.EtcdRestoreStatus"),
    description: "How far the restore has come; written by controllers.",
    shape: Shape::Object(&[
        Field::optional("apiDownSeconds", &API_DOWN_SECONDS),
        Field::optional("backupName", &RESTORED),
        Field::optional("before", &BEFORE),
        Field::optional("completionTime", &TIME),
        Field::optional("conditions", &CONDITIONS),
        Field::optional("message", &MESSAGE),
        Field::optional("newVolumes", &NEW_VOLUMES),
        Field::optional("observedGeneration", &OBSERVED_GENERATION),
        Field::optional("pausedTime", &PAUSED_TIME),
        Field::optional("phase", &PHASE),
        Field::optional("planVersion", &PLAN_VERSION),
        Field::optional("proof", &PROOF),
        Field::optional("reason", &REASON),
        Field::optional("revision", &REVISION),
        Field::optional("startTime", &TIME),
        Field::optional("steps", &RESTORE_STEPS),
    ]),
};

static ETCD_RESTORE: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.EtcdRestore"),
    description: "EtcdRestore puts a hosted etcd back to a backup: it stops the API servers, verifies the backup, makes the \
                  members anew from it and starts the API servers again.",
    shape: Shape::Object(&[
        Field::optional("apiVersion", &API_VERSION),
        Field::optional("kind", &KIND),
        Field::optional("metadata", &meta::OBJECT_META),
        Field::required("spec", &SPEC),
        Field::optional("status", &STATUS),
    ]),
};

/// The kind EtcdRestore: its names, schema and columns.
pub static KIND_INFO: Kind = Kind {
    kind: "EtcdRestore",
    list_kind: "EtcdRestoreList",
    plural: "etcdrestores",
    singular: "etcdrestore",
    short_names: &["erest"],
    categories: &["repot"],
    namespaced: true,
    schema: &ETCD_RESTORE,
    columns: &[
        Column { name: "Cluster", kind: "string", description: "The HostedEtcd.", priority: 0 },
        Column { name: "Phase", kind: "string", description: "How far the restore has come.", priority: 0 },
        Column { name: "Step", kind: "string", description: "The step that is not done yet.", priority: 0 },
        Column { name: "Reason", kind: "string", description: "Why the phase is what it is.", priority: 0 },
        Column { name: "Source", kind: "string", description: "The backup, or where it lies.", priority: 1 },
        Column { name: "Message", kind: "string", description: "The reason in words.", priority: 1 },
    ],
    selectable: &["spec.clusterRef.name", "status.phase"],
    cells,
};

/// Sets defaults; there is nothing to tell of.
#[must_use]
pub fn normalise(object: &mut Node) -> Vec<String> {
    shape::tidy(object, &ETCD_RESTORE);
    Vec::new()
}

/// Everything that is wrong outside of metadata and status.
#[must_use]
pub fn validate(object: &Node) -> Vec<FieldError> {
    let mut errors = workflow::check_spec(object, &ETCD_RESTORE);
    let Some(source) = object.member("spec").and_then(|spec| spec.member("source")) else { return errors };
    let named = source.text("backupName").is_some_and(|name| !name.is_empty());
    match (named, source.member("store")) {
        (false, None) => errors.push(FieldError::required("spec.source", "backupName or store must be set")),
        (true, Some(_)) => {
            errors.push(FieldError::forbidden("spec.source.store", "may not be set beside backupName"));
        }
        (false, Some(store)) => workflow::check_store(store, "spec.source.store", &mut errors),
        (true, None) => {}
    }
    errors
}

/// It is begun with its spec.
#[must_use]
pub fn validate_change(before: &Node, after: &Node) -> Vec<FieldError> {
    let mut errors = workflow::changed(before, after, STEERING);
    workflow::check_cancel(before, after, &mut errors);
    errors
}

/// Everything that is wrong in the status.
#[must_use]
pub fn validate_status(object: &Node) -> Vec<FieldError> {
    workflow::check_status(object, &ETCD_RESTORE)
}

fn cells(object: &Node, _: usize) -> Vec<Cell> {
    let store = |part| text_at(object, &format!("spec.source.store.{part}"));
    let source = match (text_at(object, "spec.source.backupName"), store("container"), store("prefix")) {
        (Some(name), _, _) => name.to_owned(),
        (None, Some(container), Some(prefix)) => format!("{container}/{prefix}"),
        _ => String::new(),
    };
    vec![
        cell(object, "spec.clusterRef.name"),
        cell(object, "status.phase"),
        step_cell(object),
        cell(object, "status.reason"),
        Cell::Text(source),
        cell(object, "status.message"),
    ]
}
