//! EtcdBackup: a backup of one hosted etcd, taken once or by schedule.

use repot_apimachinery::{
    field::FieldError,
    json::Node,
    kind::{Cell, Column, Kind},
    meta,
    schedule::Schedule,
    schema::{Default, Field, Schema, Shape},
    shape,
};

use crate::workflow::{
    self, API_VERSION, BACKUP_NAME, CANCEL, CLUSTER_REF, CONDITIONS, KIND, MESSAGE, OBSERVED_GENERATION,
    PAUSED, PAUSED_TIME, PLAN_VERSION, PROOF, REASON, STEERING, STEP_TIMEOUT, STEPS, TIME, cell,
};

static SCHEDULE: Schema = Schema::string(
    "When to take backups, in the five fields of cron and in UTC, or a name such as @daily. Without it one backup is taken, at \
     once.",
);
static RETENTION_POLICY: Schema = Schema::choice(
    "LimitBased, where it is left out: the newest ones up to the limit. Exponential: all of the last hour, one an hour for a day, one a day for a \
     week, one a week for a month.",
    &["Exponential", "LimitBased"],
);
static RETENTION_LIMIT: Schema = Schema::of("How many backups LimitBased keeps.", Shape::Integer);
static RETENTION: Schema = Schema::of(
    "Which backups of the schedule are kept. Without it all are.",
    Shape::Object(&[
        Field::optional("limit", &RETENTION_LIMIT),
        Field::defaulted("policy", &RETENTION_POLICY, Default::Text("LimitBased")),
    ]),
);
static DELETION_POLICY: Schema = Schema::choice(
    "What becomes of the stored backups when this object is deleted; Retain where it is left out.",
    &["Retain", "Delete"],
);
static SPEC: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.EtcdBackupSpec"),
    description: "What is to be backed up, and when. Of a single backup nothing but paused, cancel, stepTimeout and \
                  deletionPolicy can be changed.",
    shape: Shape::Object(&[
        Field::optional("cancel", &CANCEL),
        Field::required("clusterRef", &CLUSTER_REF),
        Field::defaulted("deletionPolicy", &DELETION_POLICY, Default::Text("Retain")),
        Field::optional("paused", &PAUSED),
        Field::optional("retention", &RETENTION),
        Field::optional("schedule", &SCHEDULE),
        Field::defaulted("stepTimeout", &STEP_TIMEOUT, Default::Text("10m")),
    ]),
};

static PHASE: Schema = Schema::choice(
    "How far the backup has come. Scheduled: the next one is waited for.",
    &["Pending", "Scheduled", "Running", "Succeeded", "Failed", "Cancelled"],
);
static BACKUP_STEPS: Schema = Schema::of("The steps of the backup that runs, or ran last.", STEPS);
static REVISION: Schema =
    Schema::of("Revision of etcd up to which the newest backup reaches.", Shape::Integer);
static SIZE: Schema = Schema::of("Size of the newest backup in its store, in bytes.", Shape::Integer);
static LAST_SUCCESS: Schema = Schema::of("When a backup last succeeded.", Shape::String(Some("date-time")));
static NEXT: Schema =
    Schema::of("When the schedule next asks for a backup.", Shape::String(Some("date-time")));
static STATUS: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.EtcdBackupStatus"),
    description: "How far the backup has come; written by controllers.",
    shape: Shape::Object(&[
        Field::optional("backupName", &BACKUP_NAME),
        Field::optional("completionTime", &TIME),
        Field::optional("conditions", &CONDITIONS),
        Field::optional("lastSuccessfulTime", &LAST_SUCCESS),
        Field::optional("message", &MESSAGE),
        Field::optional("nextScheduleTime", &NEXT),
        Field::optional("observedGeneration", &OBSERVED_GENERATION),
        Field::optional("pausedTime", &PAUSED_TIME),
        Field::optional("phase", &PHASE),
        Field::optional("planVersion", &PLAN_VERSION),
        Field::optional("proof", &PROOF),
        Field::optional("reason", &REASON),
        Field::optional("revision", &REVISION),
        Field::optional("sizeBytes", &SIZE),
        Field::optional("startTime", &TIME),
        Field::optional("steps", &BACKUP_STEPS),
    ]),
};

static ETCD_BACKUP: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.EtcdBackup"),
    description: "EtcdBackup takes a backup of a hosted etcd, once or by schedule, into the store that the HostedEtcd names.",
    shape: Shape::Object(&[
        Field::optional("apiVersion", &API_VERSION),
        Field::optional("kind", &KIND),
        Field::optional("metadata", &meta::OBJECT_META),
        Field::required("spec", &SPEC),
        Field::optional("status", &STATUS),
    ]),
};

/// The kind EtcdBackup: its names, schema and columns.
pub static KIND_INFO: Kind = Kind {
    kind: "EtcdBackup",
    list_kind: "EtcdBackupList",
    plural: "etcdbackups",
    singular: "etcdbackup",
    short_names: &["ebak"],
    categories: &["repot"],
    namespaced: true,
    schema: &ETCD_BACKUP,
    columns: &[
        Column { name: "Cluster", kind: "string", description: "The HostedEtcd.", priority: 0 },
        Column { name: "Schedule", kind: "string", description: "When backups are taken.", priority: 0 },
        Column { name: "Phase", kind: "string", description: "How far the backup has come.", priority: 0 },
        Column { name: "Reason", kind: "string", description: "Why the phase is what it is.", priority: 0 },
        Column { name: "Backup", kind: "string", description: "Name of the newest backup.", priority: 1 },
        Column {
            name: "Revision",
            kind: "string",
            description: "How far the newest backup reaches.",
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
    shape::tidy(object, &ETCD_BACKUP);
    Vec::new()
}

/// Everything that is wrong outside of metadata and status.
#[must_use]
pub fn validate(object: &Node) -> Vec<FieldError> {
    let mut errors = workflow::check_spec(object, &ETCD_BACKUP);
    let schedule = |text: &str| Schedule::parse(text).map(drop);
    workflow::check_text(object, "spec.schedule", schedule, &mut errors);
    let Some(retention) = object.member("spec").and_then(|spec| spec.member("retention")) else {
        return errors;
    };
    workflow::check_least(retention, "spec.retention", "limit", 1, &mut errors);
    match (retention.text("policy"), retention.member("limit")) {
        (Some("LimitBased"), None) => {
            errors.push(FieldError::required("spec.retention.limit", "LimitBased needs to know how many"));
        }
        (Some("Exponential"), Some(_)) => {
            errors.push(FieldError::forbidden(
                "spec.retention.limit",
                "only LimitBased keeps a number of backups",
            ));
        }
        _ => {}
    }
    if !is_scheduled(object) {
        errors.push(FieldError::forbidden("spec.retention", "a single backup is kept until it is deleted"));
    }
    errors
}

/// A single backup is begun with its spec; a schedule may become another, but not none.
#[must_use]
pub fn validate_change(before: &Node, after: &Node) -> Vec<FieldError> {
    let mut mutable = [STEERING, &["deletionPolicy"]].concat();
    if is_scheduled(before) && is_scheduled(after) {
        mutable.extend(["schedule", "retention"]);
    }
    let mut errors = workflow::changed(before, after, &mutable);
    workflow::check_cancel(before, after, &mut errors);
    errors
}

/// Everything that is wrong in the status.
#[must_use]
pub fn validate_status(object: &Node) -> Vec<FieldError> {
    workflow::check_status(object, &ETCD_BACKUP)
}

fn is_scheduled(object: &Node) -> bool {
    repot_apimachinery::kind::text_at(object, "spec.schedule").is_some_and(|text| !text.is_empty())
}

fn cells(object: &Node, _: usize) -> Vec<Cell> {
    let schedule =
        if is_scheduled(object) { cell(object, "spec.schedule") } else { Cell::Text("once".to_owned()) };
    let revision = match object.member("status").and_then(|status| status.member("revision")) {
        Some(Node::Integer(revision)) => revision.to_string(),
        _ => String::new(),
    };
    vec![
        cell(object, "spec.clusterRef.name"),
        schedule,
        cell(object, "status.phase"),
        cell(object, "status.reason"),
        cell(object, "status.backupName"),
        Cell::Text(revision),
        cell(object, "status.message"),
    ]
}
