//! HostedEtcd: one etcd that serves a hosted control plane, and where its life stands. The "cluster resource" of the paper on
//! etcd workflows: what it keeps below `cluster.spec.etcd` and `cluster.status.etcd` is here, on an object of our own.

use repot_apimachinery::{
    field::FieldError,
    json::Node,
    kind::{Cell, Column, Kind},
    meta,
    schema::{Default, Field, Schema, Shape},
    shape,
};

use crate::{
    conditions,
    workflow::{self, API_VERSION, CONDITIONS, KIND, MESSAGE, OBSERVED_GENERATION, SETTINGS, STORE, cell},
};

static ETCD_VERSION: Schema =
    Schema::string("API version of the resource; druid.gardener.cloud/v1alpha1 where it is left out.");
static ETCD_KIND: Schema = Schema::string("Kind of the resource; Etcd where it is left out.");
static API_SERVER_VERSION: Schema =
    Schema::string("API version of the resource; apps/v1 where it is left out.");
static API_SERVER_KIND: Schema = Schema::string("Kind of the resource; Deployment where it is left out.");
static REF_NAME: Schema = Schema::string("Name of the resource, in the same namespace.");
static ETCD_REF: Schema = Schema::of(
    "The Etcd or StatefulSet that runs the members. Cannot be changed.",
    Shape::Object(&[
        Field::defaulted("apiVersion", &ETCD_VERSION, Default::Text("druid.gardener.cloud/v1alpha1")),
        Field::defaulted("kind", &ETCD_KIND, Default::Text("Etcd")),
        Field::required("name", &REF_NAME),
    ]),
);
static API_SERVER_REF: Schema = Schema::of(
    "The Deployment of the API servers in front of this etcd: stopApi scales it to zero and startApi back. Cannot be changed.",
    Shape::Object(&[
        Field::defaulted("apiVersion", &API_SERVER_VERSION, Default::Text("apps/v1")),
        Field::defaulted("kind", &API_SERVER_KIND, Default::Text("Deployment")),
        Field::required("name", &REF_NAME),
    ]),
);
static SPEC: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.HostedEtcdSpec"),
    description: "Which etcd this is, and how it is laid out.",
    shape: Shape::Object(&[
        Field::required("apiServerRef", &API_SERVER_REF),
        Field::optional("backupStore", &STORE),
        Field::required("etcdRef", &ETCD_REF),
        Field::optional("settings", &SETTINGS),
    ]),
};

static LIFECYCLE: Schema = Schema::choice(
    "Where the life of this etcd stands. running: API servers and members run. apiDown: no API server is left, so nothing \
     changes the data. etcdDeleted: the members are gone, and a restore may begin.",
    &["running", "apiDown", "etcdDeleted"],
);
static COMMAND: Schema = Schema::choice(
    "What the workflow asks for next; set by workflow controllers only and cleared when it is done.",
    &["stopApi", "startApi", "deleteEtcd", "startRestore"],
);
static WORKFLOW_KIND: Schema =
    Schema::choice("Kind of the workflow.", &["EtcdBackup", "EtcdRestore", "EtcdMigration"]);
static WORKFLOW_NAME: Schema = Schema::string("Name of the workflow's object, in the same namespace.");
static WORKFLOW_UID: Schema = Schema::string("UID of the workflow's object.");
static CURRENT_WORKFLOW: Schema = Schema::of(
    "The workflow that works on this etcd; while it is set, no other one may begin.",
    Shape::Object(&[
        Field::required("kind", &WORKFLOW_KIND),
        Field::required("name", &WORKFLOW_NAME),
        Field::required("uid", &WORKFLOW_UID),
    ]),
);
static BACKUP_NAME: Schema = Schema::string("The backup from which startRestore restores.");
static READY_REPLICAS: Schema = Schema::of("Number of members that are ready.", Shape::Integer);
static STATUS: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.HostedEtcdStatus"),
    description: "Where the life of this etcd stands; written by controllers.",
    shape: Shape::Object(&[
        Field::optional("backupName", &BACKUP_NAME),
        Field::optional("command", &COMMAND),
        Field::optional("conditions", &CONDITIONS),
        Field::optional("currentWorkflow", &CURRENT_WORKFLOW),
        Field::optional("lifecycleStatus", &LIFECYCLE),
        Field::optional("message", &MESSAGE),
        Field::optional("observedGeneration", &OBSERVED_GENERATION),
        Field::optional("readyReplicas", &READY_REPLICAS),
    ]),
};

static HOSTED_ETCD: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.HostedEtcd"),
    description: "HostedEtcd is one etcd that serves a hosted control plane. Backups, restores and migrations refer to it, and \
                  only one of them works on it at a time.",
    shape: Shape::Object(&[
        Field::optional("apiVersion", &API_VERSION),
        Field::optional("kind", &KIND),
        Field::optional("metadata", &meta::OBJECT_META),
        Field::required("spec", &SPEC),
        Field::optional("status", &STATUS),
    ]),
};

/// The kind HostedEtcd: its names, schema and columns.
pub static KIND_INFO: Kind = Kind {
    kind: "HostedEtcd",
    list_kind: "HostedEtcdList",
    plural: "hostedetcds",
    singular: "hostedetcd",
    short_names: &["hetcd"],
    categories: &["repot"],
    namespaced: true,
    schema: &HOSTED_ETCD,
    columns: &[
        Column {
            name: "Status",
            kind: "string",
            description: "Where the life of this etcd stands.",
            priority: 0,
        },
        Column { name: "Ready", kind: "string", description: "Status of the condition Ready.", priority: 0 },
        Column {
            name: "Workflow",
            kind: "string",
            description: "The workflow that works on it.",
            priority: 0,
        },
        Column {
            name: "Command",
            kind: "string",
            description: "What the workflow asks for next.",
            priority: 1,
        },
        Column {
            name: "Etcd",
            kind: "string",
            description: "The resource that runs the members.",
            priority: 1,
        },
        Column {
            name: "API Server",
            kind: "string",
            description: "The Deployment of the API servers.",
            priority: 1,
        },
        Column { name: "Message", kind: "string", description: "The state in words.", priority: 1 },
    ],
    selectable: &["status.lifecycleStatus", "status.currentWorkflow.name"],
    cells,
};

/// Sets defaults; there is nothing to tell of.
#[must_use]
pub fn normalise(object: &mut Node) -> Vec<String> {
    shape::tidy(object, &HOSTED_ETCD);
    Vec::new()
}

/// Everything that is wrong outside of metadata and status.
#[must_use]
pub fn validate(object: &Node) -> Vec<FieldError> {
    let mut errors = workflow::check_spec(object, &HOSTED_ETCD);
    workflow::check_settings(object, &mut errors);
    if let Some(store) = object.member("spec").and_then(|spec| spec.member("backupStore")) {
        workflow::check_store(store, "spec.backupStore", &mut errors);
    }
    errors
}

/// Whom it stands for cannot be changed: workflows that run would go on with another.
#[must_use]
pub fn validate_change(before: &Node, after: &Node) -> Vec<FieldError> {
    workflow::changed(before, after, &["backupStore", "settings"])
}

/// Everything that is wrong in the status.
#[must_use]
pub fn validate_status(object: &Node) -> Vec<FieldError> {
    workflow::check_status(object, &HOSTED_ETCD)
}

fn cells(object: &Node, _: usize) -> Vec<Cell> {
    let ready = conditions::find(object, "Ready").map_or("", |(status, _)| status);
    vec![
        cell(object, "status.lifecycleStatus"),
        Cell::Text(ready.to_owned()),
        cell(object, "status.currentWorkflow.name"),
        cell(object, "status.command"),
        cell(object, "spec.etcdRef.name"),
        cell(object, "spec.apiServerRef.name"),
        cell(object, "status.message"),
    ]
}
