//! EtcdMigration: makes a hosted etcd anew from a backup of itself, with other settings. It runs once.

use repot_apimachinery::{
    field::FieldError,
    json::Node,
    kind::{Cell, Column, Kind},
    meta,
    schema::{Default, Field, Schema, Shape},
    shape,
};

use crate::workflow::{
    self, API_DOWN_SECONDS, API_VERSION, BACKUP_NAME, BEFORE, CANCEL, CLUSTER_REF, CONDITIONS, KIND, MESSAGE,
    NEW_VOLUMES, OBSERVED_GENERATION, PAUSED, PAUSED_TIME, PLAN_VERSION, PROOF, REASON, SETTINGS, STEERING,
    STEP_TIMEOUT, STEPS, TIME, cell, step_cell,
};

static SPEC: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.EtcdMigrationSpec"),
    description: "What is to be migrated, and to which settings. Nothing but paused, cancel and stepTimeout can be changed.",
    shape: Shape::Object(&[
        Field::optional("cancel", &CANCEL),
        Field::required("clusterRef", &CLUSTER_REF),
        Field::optional("paused", &PAUSED),
        Field::required("settings", &SETTINGS),
        Field::defaulted("stepTimeout", &STEP_TIMEOUT, Default::Text("10m")),
    ]),
};

static PHASE: Schema = Schema::choice(
    "How far the migration has come. RolledBack: it failed, and the etcd runs as it did before.",
    &["Pending", "Running", "Succeeded", "RollingBack", "RolledBack", "Failed", "Cancelled"],
);
static MIGRATION_STEPS: Schema = Schema::of(
    "The steps that were begun, in their order, then those of the way back; docs/reference/etcd-workflows.md has them all.",
    STEPS,
);
static STATUS: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.EtcdMigrationStatus"),
    description: "How far the migration has come; written by controllers.",
    shape: Shape::Object(&[
        Field::optional("apiDownSeconds", &API_DOWN_SECONDS),
        Field::optional("backupName", &BACKUP_NAME),
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
        Field::optional("startTime", &TIME),
        Field::optional("steps", &MIGRATION_STEPS),
    ]),
};

static ETCD_MIGRATION: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.EtcdMigration"),
    description: "EtcdMigration moves a hosted etcd to settings that cannot be changed in place, such as another storage class: \
                  it stops the API servers, takes a backup, deletes the members, restores them with the new settings and starts \
                  the API servers again.",
    shape: Shape::Object(&[
        Field::optional("apiVersion", &API_VERSION),
        Field::optional("kind", &KIND),
        Field::optional("metadata", &meta::OBJECT_META),
        Field::required("spec", &SPEC),
        Field::optional("status", &STATUS),
    ]),
};

/// The kind EtcdMigration: its names, schema and columns.
pub static KIND_INFO: Kind = Kind {
    kind: "EtcdMigration",
    list_kind: "EtcdMigrationList",
    plural: "etcdmigrations",
    singular: "etcdmigration",
    short_names: &["emig"],
    categories: &["repot"],
    namespaced: true,
    schema: &ETCD_MIGRATION,
    columns: &[
        Column { name: "Cluster", kind: "string", description: "The HostedEtcd.", priority: 0 },
        Column { name: "Phase", kind: "string", description: "How far the migration has come.", priority: 0 },
        Column { name: "Step", kind: "string", description: "The step that is not done yet.", priority: 0 },
        Column { name: "Reason", kind: "string", description: "Why the phase is what it is.", priority: 0 },
        Column {
            name: "Backup",
            kind: "string",
            description: "The backup that is taken and restored.",
            priority: 1,
        },
        Column {
            name: "API Down",
            kind: "string",
            description: "How long the API could not be reached.",
            priority: 1,
        },
        Column { name: "Message", kind: "string", description: "The reason in words.", priority: 1 },
    ],
    selectable: &["spec.clusterRef.name", "status.phase", "status.backupName"],
    cells,
};

/// Sets defaults; there is nothing to tell of.
#[must_use]
pub fn normalise(object: &mut Node) -> Vec<String> {
    shape::tidy(object, &ETCD_MIGRATION);
    Vec::new()
}

/// Everything that is wrong outside of metadata and status.
#[must_use]
pub fn validate(object: &Node) -> Vec<FieldError> {
    let mut errors = workflow::check_spec(object, &ETCD_MIGRATION);
    workflow::check_settings(object, &mut errors);
    let settings = object.member("spec").and_then(|spec| spec.member("settings"));
    if matches!(settings, Some(Node::Object(fields)) if fields.is_empty()) {
        let why = "at least one of replicas, size and storageClassName must be set";
        errors.push(FieldError::required("spec.settings", why));
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
    workflow::check_status(object, &ETCD_MIGRATION)
}

fn cells(object: &Node, _: usize) -> Vec<Cell> {
    let down = match object.member("status").and_then(|status| status.member("apiDownSeconds")) {
        Some(Node::Integer(seconds)) => format!("{seconds}s"),
        _ => String::new(),
    };
    vec![
        cell(object, "spec.clusterRef.name"),
        cell(object, "status.phase"),
        step_cell(object),
        cell(object, "status.reason"),
        cell(object, "status.backupName"),
        Cell::Text(down),
        cell(object, "status.message"),
    ]
}
