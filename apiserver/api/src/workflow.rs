//! What the etcd kinds share: references, settings, stores, steps, and the rules that hold for all of their specs.

use repot_apimachinery::{
    field::{FieldError, is_enough},
    formats,
    json::Node,
    kind::{Cell, text_at},
    schema::{Field, ListType, Schema, Shape},
    shape, validation,
};

use crate::conditions;

pub(crate) static API_VERSION: Schema =
    Schema::string("The versioned schema of this representation of an object.");
pub(crate) static KIND: Schema =
    Schema::string("The REST resource this object represents. Cannot be updated.");
pub(crate) static TIME: Schema = Schema {
    name: Some("io.k8s.apimachinery.pkg.apis.meta.v1.Time"),
    description: "A time in RFC 3339, in UTC and whole seconds.",
    shape: Shape::String(Some("date-time")),
};

static CLUSTER_NAME: Schema = Schema::string("Name of the HostedEtcd, in the same namespace.");
pub(crate) static CLUSTER_REF: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.ClusterReference"),
    description: "The HostedEtcd that is meant. Cannot be changed.",
    shape: Shape::Object(&[Field::required("name", &CLUSTER_NAME)]),
};

static STORAGE_CLASS: Schema = Schema::string(
    "StorageClass of the members' volumes. Takes effect when the members are made anew, by a migration.",
);
static SIZE: Schema = Schema::string("Size of each member's volume, such as \"25Gi\".");
static REPLICAS: Schema =
    Schema::of("Number of members; odd, since an even one more bears no further failure.", Shape::Integer);
pub(crate) static SETTINGS: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.EtcdSettings"),
    description: "How the etcd is laid out. What is left out stays as it is.",
    shape: Shape::Object(&[
        Field::optional("replicas", &REPLICAS),
        Field::optional("size", &SIZE),
        Field::optional("storageClassName", &STORAGE_CLASS),
    ]),
};

static PROVIDER: Schema = Schema::choice(
    "Kind of the object store. Local: a directory of the agent's host.",
    &["S3", "GCS", "ABS", "Local"],
);
static CONTAINER: Schema = Schema::string("Bucket, container or directory.");
static PREFIX: Schema =
    Schema::string("Where in the container the backups of this etcd lie; no other etcd may write there.");
static SECRET_NAME: Schema = Schema::string("Name of the Secret, in the same namespace.");
static SECRET_REF: Schema = Schema::of(
    "The Secret with the credentials for the store.",
    Shape::Object(&[Field::required("name", &SECRET_NAME)]),
);
static ENDPOINT: Schema =
    Schema::string("URL of the store's API where it is not the provider's own, such as that of a MinIO.");
pub(crate) static STORE: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.BackupStore"),
    description: "An object store in which backups rest, in the layout of etcd-backup-restore.",
    shape: Shape::Object(&[
        Field::required("container", &CONTAINER),
        Field::optional("endpoint", &ENDPOINT),
        Field::required("prefix", &PREFIX),
        Field::required("provider", &PROVIDER),
        Field::optional("secretRef", &SECRET_REF),
    ]),
};

pub(crate) static PAUSED: Schema = Schema::of(
    "Whether to wait before the next step. The step that runs is brought to its end.",
    Shape::Boolean,
);
pub(crate) static CANCEL: Schema = Schema::of(
    "Whether to stop: what was done is undone as far as that is safe. Cannot be taken back.",
    Shape::Boolean,
);
pub(crate) static STEP_TIMEOUT: Schema =
    Schema::string("How long each step may take before it counts as failed; \"10m\" where it is left out.");

pub(crate) static OBSERVED_GENERATION: Schema =
    Schema::of("The metadata.generation that this status was made for.", Shape::Integer);
pub(crate) static REASON: Schema = Schema::string("Why the phase is what it is: one word in CamelCase.");
pub(crate) static MESSAGE: Schema =
    Schema::string("The same for people, with what to do next where something is to be done.");
pub(crate) static BACKUP_NAME: Schema = Schema::string(
    "Name of the backup: an EtcdBackup's own name, or a random one where a schedule or a migration takes the backup. It is fixed when \
     the workflow begins.",
);
pub(crate) static CONDITIONS: Schema = Schema::of("What holds at the moment, by type.", conditions::LIST);
pub(crate) static PLAN_VERSION: Schema = Schema::of(
    "Version of the table of steps by which the workflow goes; another version of it does not touch the workflow.",
    Shape::Integer,
);
pub(crate) static PAUSED_TIME: Schema =
    Schema::of("Since when the workflow is held up by spec.paused.", Shape::String(Some("date-time")));
pub(crate) static API_DOWN_SECONDS: Schema =
    Schema::of("How long the API could not be reached, in seconds, as measured.", Shape::Integer);
pub(crate) static NEW_VOLUMES: Schema =
    Schema::string("Name of the set of volumes that is filled from the backup.");

static PROOF_REVISION: Schema =
    Schema::of("Revision of etcd up to which the backup reaches.", Shape::Integer);
static PROOF_KEYS: Schema = Schema::of("Number of keys.", Shape::Integer);
static PROOF_HASH: Schema = Schema::string("Hash over keys, values and their versions.");
pub(crate) static PROOF: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.BackupProof"),
    description: "What the verified backup holds, without keys that hang on a lease: those end by themselves.",
    shape: Shape::Object(&[
        Field::required("hash", &PROOF_HASH),
        Field::required("keys", &PROOF_KEYS),
        Field::required("revision", &PROOF_REVISION),
    ]),
};

static API_GENERATION: Schema = Schema::of(
    "metadata.generation of the Deployment of the API servers when none of them was left.",
    Shape::Integer,
);
static API_REPLICAS: Schema = Schema::of("How many API servers were asked for.", Shape::Integer);
static LOCKED: Schema = Schema::of(
    "Whether the workflow had taken the lock, so that there may be something to undo.",
    Shape::Boolean,
);
static SERVED: Schema = Schema::of("Whether the etcd answered when the workflow began.", Shape::Boolean);
static OLD_VOLUMES: Schema = Schema::string(
    "Name of the set of volumes of the old etcd, which is kept until the new one has proved equal.",
);
static API_SERVER_NAME: Schema =
    Schema::string("Name of the Deployment of the API servers to which the HostedEtcd referred.");
static ETCD_NAME: Schema = Schema::string("Name of the Etcd to which the HostedEtcd referred.");
pub(crate) static BEFORE: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.WorkflowBefore"),
    description: "What was there before, and is put back when the workflow fails.",
    shape: Shape::Object(&[
        Field::optional("apiGeneration", &API_GENERATION),
        Field::optional("apiReplicas", &API_REPLICAS),
        Field::optional("apiServerName", &API_SERVER_NAME),
        Field::optional("etcdName", &ETCD_NAME),
        Field::optional("etcdSettings", &SETTINGS),
        Field::optional("locked", &LOCKED),
        Field::optional("served", &SERVED),
        Field::optional("settings", &SETTINGS),
        Field::optional("volumes", &OLD_VOLUMES),
    ]),
};

static STEP_NAME: Schema = Schema::string("Name of the step.");
static STEP_STATE: Schema = Schema::choice(
    "How far the step has come.",
    &["Pending", "Running", "Succeeded", "Failed", "Skipped", "RolledBack"],
);
static STEP_ATTEMPTS: Schema = Schema::of("How often the step was tried.", Shape::Integer);
static STEP_MESSAGE: Schema = Schema::string(
    "What the step waits for and what to do about it, why it failed, or by what it is known to be reached.",
);
static STEP_REASON: Schema = Schema::string("The same in one word in CamelCase, for programs.");
static STEP: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.WorkflowStep"),
    description: "One step of a workflow.",
    shape: Shape::Object(&[
        Field::optional("attempts", &STEP_ATTEMPTS),
        Field::optional("completionTime", &TIME),
        Field::optional("message", &STEP_MESSAGE),
        Field::required("name", &STEP_NAME),
        Field::optional("reason", &STEP_REASON),
        Field::optional("startTime", &TIME),
        Field::required("state", &STEP_STATE),
    ]),
};
/// The shape of a list of steps.
pub(crate) const STEPS: Shape = Shape::List(&STEP, ListType::Map(&["name"]));

/// Fields of a running workflow's spec that may be changed: everything else is what it was begun with.
pub(crate) const STEERING: &[&str] = &["paused", "cancel", "stepTimeout"];

/// What the schema says about everything but metadata and status.
pub(crate) fn check_spec(object: &Node, schema: &'static Schema) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match (object.member("spec"), schema.field("spec")) {
        (Some(spec), Some(field)) => shape::check(spec, field.schema, "spec", &mut errors),
        _ => errors.push(FieldError::required("spec", "")),
    }
    for path in
        ["spec.clusterRef.name", "spec.etcdRef.name", "spec.apiServerRef.name", "spec.source.backupName"]
    {
        check_text(object, path, validation::dns_subdomain, &mut errors);
    }
    check_text(object, "spec.stepTimeout", formats::duration, &mut errors);
    errors
}

/// What is wrong with a status.
pub(crate) fn check_status(object: &Node, schema: &'static Schema) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let (Some(status), Some(field)) = (object.member("status"), schema.field("status")) {
        shape::check(status, field.schema, "status", &mut errors);
        conditions::check(status, &mut errors);
        check_records(status, &mut errors);
    }
    errors
}

/// What the shape does not tell of a ledger: numbers that cannot be, reasons that are sentences.
fn check_records(status: &Node, errors: &mut Vec<FieldError>) {
    check_least(status, "status", "planVersion", 1, errors);
    check_least(status, "status", "apiDownSeconds", 0, errors);
    for (object, field) in
        [("proof", "keys"), ("proof", "revision"), ("before", "apiGeneration"), ("before", "apiReplicas")]
    {
        if let Some(node) = status.member(object) {
            check_least(node, &format!("status.{object}"), field, 0, errors);
        }
    }
    check_steps(status, "status", errors);
}

/// What the shape does not say of the steps in the record at `path`.
pub(crate) fn check_steps(record: &Node, path: &str, errors: &mut Vec<FieldError>) {
    let steps = record.member("steps").map_or(&[][..], Node::items);
    for (at, step) in steps.iter().enumerate() {
        if is_enough(errors) {
            return;
        }
        check_least(step, &format!("{path}.steps[{at}]"), "attempts", 0, errors);
        conditions::check_reason(step, &format!("{path}.steps[{at}].reason"), errors);
    }
}

/// The rule holds for the string at the path, if there is one.
pub(crate) fn check_text(object: &Node, path: &str, rule: validation::Rule, errors: &mut Vec<FieldError>) {
    if let Some(text) = text_at(object, path).filter(|text| !text.is_empty()) {
        errors.extend(rule(text).err().map(|why| FieldError::invalid(path, text, why)));
    }
}

/// The integer at `node.field` is not below `least`.
pub(crate) fn check_least(node: &Node, path: &str, field: &str, least: i64, errors: &mut Vec<FieldError>) {
    if let Some(Node::Integer(number)) = node.member(field)
        && *number < least
    {
        let why = format!("must be greater than or equal to {least}");
        errors.push(FieldError::invalid(format!("{path}.{field}"), number, why));
    }
}

const MOST_MEMBERS: i64 = 9;

/// Settings that an etcd can have.
pub(crate) fn check_settings(object: &Node, errors: &mut Vec<FieldError>) {
    let Some(settings) = object.member("spec").and_then(|spec| spec.member("settings")) else { return };
    check_text(object, "spec.settings.size", formats::storage_size, errors);
    check_text(object, "spec.settings.storageClassName", validation::dns_subdomain, errors);
    if let Some(Node::Integer(replicas)) = settings.member("replicas")
        && (!(1..=MOST_MEMBERS).contains(replicas) || replicas % 2 == 0)
    {
        let why = format!("must be an odd number from 1 to {MOST_MEMBERS}");
        errors.push(FieldError::invalid("spec.settings.replicas", replicas, why));
    }
}

/// A store that backups can rest in.
pub(crate) fn check_store(store: &Node, path: &str, errors: &mut Vec<FieldError>) {
    let prefix = store.text("prefix").unwrap_or_default();
    let climbs = prefix.split('/').any(|part| matches!(part, "." | ".."));
    if !prefix.is_empty() && (climbs || prefix.starts_with('/') || prefix.ends_with('/')) {
        let why = "must be a relative path without \".\" and \"..\", not ending with \"/\"";
        errors.push(FieldError::invalid(format!("{path}.prefix"), prefix, why));
    }
    if store.text("provider") != Some("Local") && store.member("secretRef").is_none() {
        let why = "only a Local store needs no credentials";
        errors.push(FieldError::required(format!("{path}.secretRef"), why));
    }
    let endpoint = store.text("endpoint").unwrap_or_default();
    let url = endpoint.strip_prefix("https://").or_else(|| endpoint.strip_prefix("http://"));
    if !endpoint.is_empty() && url.is_none_or(str::is_empty) {
        let why = "must be a URL that begins with https:// or http://";
        errors.push(FieldError::invalid(format!("{path}.endpoint"), endpoint, why));
    }
}

/// Fields of the spec that differ although they are none of `mutable`.
pub(crate) fn changed(before: &Node, after: &Node, mutable: &[&str]) -> Vec<FieldError> {
    let empty = Node::object();
    let spec = |object| Node::member(object, "spec").unwrap_or(&empty);
    let (before, after) = (spec(before), spec(after));
    let mut fields: Vec<&str> = members(before).chain(members(after)).collect();
    fields.sort_unstable();
    fields.dedup();
    let differs =
        |field: &&str| before.member(field).map(Node::to_raw) != after.member(field).map(Node::to_raw);
    let frozen = |field: &&str| !mutable.contains(field);
    let error = |field: &str| {
        FieldError::forbidden(format!("spec.{field}"), "cannot be changed once the object exists")
    };
    fields.into_iter().filter(frozen).filter(differs).map(error).collect()
}

/// A workflow that is told to stop stays told so.
pub(crate) fn check_cancel(before: &Node, after: &Node, errors: &mut Vec<FieldError>) {
    let cancelled = |object: &Node| {
        object.member("spec").and_then(|spec| spec.member("cancel")) == Some(&Node::Bool(true))
    };
    if cancelled(before) && !cancelled(after) {
        errors.push(FieldError::forbidden("spec.cancel", "cannot be taken back"));
    }
}

fn members(node: &Node) -> impl Iterator<Item = &str> {
    let Node::Object(members) = node else { return [].iter().map(name as fn(&_) -> &str) };
    fn name((key, _): &(repot_apimachinery::json::Key, Node)) -> &str {
        key.text()
    }
    members.iter().map(name as fn(&_) -> &str)
}

/// A cell with the string at a path; empty where there is none.
pub(crate) fn cell(object: &Node, path: &str) -> Cell {
    Cell::Text(text_at(object, path).unwrap_or_default().to_owned())
}

/// The step in a record that runs, if one does.
pub(crate) fn step_of(record: &Node) -> Option<&str> {
    let steps = record.member("steps").map_or(&[][..], Node::items);
    steps.iter().find(|step| step.text("state") == Some("Running"))?.text("name")
}

/// A cell with the step that a workflow is at: the one that runs, or the first that is not done.
pub(crate) fn step_cell(object: &Node) -> Cell {
    let steps =
        object.member("status").and_then(|status| status.member("steps")).map_or(&[][..], Node::items);
    let done = |step: &&Node| matches!(step.text("state"), Some("Succeeded" | "Skipped" | "RolledBack"));
    let runs = |step: &&Node| step.text("state") == Some("Running");
    let current = steps.iter().find(runs).or_else(|| steps.iter().find(|step| !done(step)));
    Cell::Text(current.and_then(|step| step.text("name")).unwrap_or_default().to_owned())
}
