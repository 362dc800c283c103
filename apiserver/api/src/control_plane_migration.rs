//! ControlPlaneMigration: moves the control plane of a Shoot from one seed to another. One object is one attempt, and runs once.

use repot_apimachinery::{
    field::{FieldError, is_enough},
    json::Node,
    kind::{Cell, Column, Kind, text_at},
    meta,
    schema::{Default, Field, Schema, Shape},
    shape, validation,
};

use crate::{
    conditions, late_snapshot,
    workflow::{
        self, API_VERSION, CONDITIONS, KIND, MESSAGE, OBSERVED_GENERATION, PAUSED, PAUSED_TIME, PLAN_VERSION,
        REASON, STEP_TIMEOUT, STEPS, TIME, cell, step_of,
    },
};

/// Parts of the status that are written by the controller of one side each, in the order in which steps are looked for.
const SIDES: [&str; 3] = ["garden", "source", "destination"];
/// Fields of the spec that may be changed while the migration runs.
const MUTABLE: &[&str] = &["abort", "forceShrinkEtcd", "paused", "retry", "stepTimeout"];

static SHOOT_NAME: Schema = Schema::string("Name of the Shoot, in the same namespace.");
static SHOOT_UID: Schema = Schema::string(
    "UID of the Shoot. A migration ends where another Shoot has the name. The garden controller fills it in where it is left out.",
);
static SHOOT_REF: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.ShootReference"),
    description: "The Shoot whose control plane moves. Cannot be changed.",
    shape: Shape::Object(&[Field::required("name", &SHOOT_NAME), Field::optional("uid", &SHOOT_UID)]),
};
static SOURCE_SEED: Schema =
    Schema::string("Name of the seed that hosts the control plane before the migration.");
static DESTINATION_SEED: Schema =
    Schema::string("Name of the seed that hosts the control plane after the migration.");
static MODE: Schema = Schema::choice(
    "How the control plane moves. Classic: the source stops before the destination serves. Forced: the source cannot be reached. \
     Live: both serve while the etcd moves member by member.",
    &["Classic", "Forced", "Live"],
);
static EXECUTOR: Schema = Schema::choice(
    "Who runs the steps. Repot: its own controllers. Gardenlet: the gardenlet of the destination, which Repot steers; in mode Forced \
     alone.",
    &["Repot", "Gardenlet"],
);
static ABORT: Schema = Schema::choice(
    "A request to roll back. Abort: where the mode grants it. Force: until the point of no return. Cannot be taken back.",
    &["Abort", "Force"],
);
static RETRY: Schema = Schema::of(
    "Number of a request to try again. Each time it is raised, each side of a failed migration goes on where it stood. It cannot be lowered.",
    Shape::Integer,
);
static FORCE_SHRINK: Schema = Schema::of(
    "Whether a live migration may remove members of the source although the etcd has no spare member then.",
    Shape::Boolean,
);
static SPEC: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.ControlPlaneMigrationSpec"),
    description: "Which control plane moves, and how. Only abort, forceShrinkEtcd, paused, retry and stepTimeout can be changed.",
    shape: Shape::Object(&[
        Field::optional("abort", &ABORT),
        Field::required("destinationSeed", &DESTINATION_SEED),
        Field::defaulted("executor", &EXECUTOR, Default::Text("Repot")),
        Field::optional("forceShrinkEtcd", &FORCE_SHRINK),
        Field::defaulted("mode", &MODE, Default::Text("Classic")),
        Field::optional("paused", &PAUSED),
        Field::optional("retry", &RETRY),
        Field::required("shootRef", &SHOOT_REF),
        Field::required("sourceSeed", &SOURCE_SEED),
        Field::defaulted("stepTimeout", &STEP_TIMEOUT, Default::Text("10m")),
    ]),
};

static PHASE: Schema = Schema::choice(
    "How far the migration, or this side of it, has come. RolledBack: it failed, and the source serves as before.",
    &["Pending", "Running", "Succeeded", "RollingBack", "RolledBack", "Failed", "Cancelled"],
);
static OBSERVED_TIME: Schema = Schema::of(
    "When the controller of this side wrote last. It writes at least once a minute while the migration runs.",
    Shape::String(Some("date-time")),
);
static FAILED_PHASE: Schema = Schema::choice(
    "The phase in which this side failed; a retry goes on there.",
    &["Running", "RollingBack"],
);
static SIDE_RETRY: Schema = Schema::of("The spec.retry that this side has followed last.", Shape::Integer);
static RETRIED_TIME: Schema = Schema::of("When this side followed it.", Shape::String(Some("date-time")));
static SIDE_STEPS: Schema = Schema::of(
    "The steps of this side that were started, those of the rollback last; docs/reference/classic-migration.md and forced-migration.md have them all.",
    STEPS,
);
static COUNT: Schema = Schema::of("Number of replicas.", Shape::Integer);
static API_SERVERS: Schema =
    Schema::of("Replicas of the kube-apiservers before they were stopped, by workload.", Shape::Map(&COUNT));
static API_ANSWERED: Schema = Schema::of(
    "When the kube-apiservers of the source answered last before the outage.",
    Shape::String(Some("date-time")),
);
static API_DNS_WRITTEN: Schema = Schema::of(
    "When the DNS record of the API was written with the destination, by the clock of its controller.",
    Shape::String(Some("date-time")),
);
static CONTROLLERS: Schema =
    Schema::of("Replicas of the controllers before they were stopped, by workload.", Shape::Map(&COUNT));
static API_TTL: Schema =
    Schema::of("TTL of the DNS record of the API before it was lowered, in seconds.", Shape::Integer);
static CHANGED: Schema =
    Schema::of("Whether this side has changed something that may have to be rolled back.", Shape::Boolean);
static DNS_MIGRATED: Schema =
    Schema::of("Whether migrate was requested of the DNSRecords at the source.", Shape::Boolean);
static HIBERNATED: Schema =
    Schema::of("Garden: whether the Shoot was hibernated at the start.", Shape::Boolean);
static WORKERLESS: Schema =
    Schema::of("Garden: whether the Shoot had no workers when the migration was recorded.", Shape::Boolean);
static ETCD_REPLICAS: Schema = Schema::of("Members of the etcd at the source.", Shape::Integer);
static SIDE_EPOCH: Schema =
    Schema::of("Epoch of the owner record that this side wrote or deleted last.", Shape::Integer);
static OWNERSHIP_ENDED: Schema =
    Schema::of("Whether ownership was ended, so that the volumes never serve again.", Shape::Boolean);
static VOLUMES: Schema =
    Schema::string("Name of the set of volumes that the etcd of this side is restored to.");
static SNAPSHOT_NAME: Schema = Schema::string("Name of the snapshot in its bucket.");
static SNAPSHOT_REVISION: Schema = Schema::of("Revision of etcd that it holds.", Shape::Integer);
static SNAPSHOT_EPOCH: Schema = Schema::of("Epoch of the owner record that it ends.", Shape::Integer);
static FINAL_SNAPSHOT: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.FinalSnapshot"),
    description: "The snapshot that ends the ownership of the source.",
    shape: Shape::Object(&[
        Field::required("epoch", &SNAPSHOT_EPOCH),
        Field::required("name", &SNAPSHOT_NAME),
        Field::required("revision", &SNAPSHOT_REVISION),
    ]),
};
static LOSS_SNAPSHOT: Schema = Schema::string("Name of the newest snapshot in the bucket of the source.");
static LOSS_TIME: Schema = Schema::of("When the snapshot was begun.", Shape::String(Some("date-time")));
static LOSS_EPOCH: Schema = Schema::of("The highest epoch that the source was seen to have.", Shape::Integer);
static LOSS: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.SourceLoss"),
    description: "Forced: what the source stored after this snapshot may be lost.",
    shape: Shape::Object(&[
        Field::required("epoch", &LOSS_EPOCH),
        Field::required("revision", &SNAPSHOT_REVISION),
        Field::required("snapshot", &LOSS_SNAPSHOT),
        Field::required("time", &LOSS_TIME),
    ]),
};
static OPERATION_TYPE: Schema = Schema::string("Type of the operation, such as Reconcile.");
static OPERATION_STATE: Schema = Schema::string("State of the operation, such as Succeeded.");
static FORMER_OPERATION: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.FormerOperation"),
    description: "Garden: the last operation of the Shoot before the migration.",
    shape: Shape::Object(&[
        Field::required("state", &OPERATION_STATE),
        Field::required("type", &OPERATION_TYPE),
    ]),
};
static FORMER_SHOOT_SEED: Schema = Schema::string("spec.seedName of the Shoot.");
static FORMER_ENTRY_SEED: Schema = Schema::string("spec.seedName of the BackupEntry.");
static FORMER_ENTRY_STATUS: Schema = Schema::string("status.seedName of the BackupEntry.");
static FORMER_SEEDS: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.FormerSeeds"),
    description: "Garden, executor Gardenlet: the seeds before the migration, which a rollback writes back.",
    shape: Shape::Object(&[
        Field::optional("backupEntry", &FORMER_ENTRY_SEED),
        Field::optional("backupEntryStatus", &FORMER_ENTRY_STATUS),
        Field::optional("shoot", &FORMER_SHOOT_SEED),
    ]),
};
static SIDE: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.MigrationSide"),
    description: "What the controller of one side has recorded. Only that controller writes it.",
    shape: Shape::Object(&[
        Field::optional("apiAnsweredTime", &API_ANSWERED),
        Field::optional("apiDnsWrittenTime", &API_DNS_WRITTEN),
        Field::optional("apiServers", &API_SERVERS),
        Field::optional("apiTtlSeconds", &API_TTL),
        Field::optional("changed", &CHANGED),
        Field::optional("completionTime", &TIME),
        Field::optional("conditions", &CONDITIONS),
        Field::optional("controllers", &CONTROLLERS),
        Field::optional("dnsRecordsMigrated", &DNS_MIGRATED),
        Field::optional("etcdReplicas", &ETCD_REPLICAS),
        Field::optional("failedPhase", &FAILED_PHASE),
        Field::optional("finalSnapshot", &FINAL_SNAPSHOT),
        Field::optional("formerOperation", &FORMER_OPERATION),
        Field::optional("formerSeeds", &FORMER_SEEDS),
        Field::optional("hibernated", &HIBERNATED),
        Field::optional("loss", &LOSS),
        Field::optional("message", &MESSAGE),
        Field::optional("observedTime", &OBSERVED_TIME),
        Field::optional("ownerEpoch", &SIDE_EPOCH),
        Field::optional("ownershipEnded", &OWNERSHIP_ENDED),
        Field::optional("pausedTime", &PAUSED_TIME),
        Field::optional("phase", &PHASE),
        Field::optional("planVersion", &PLAN_VERSION),
        Field::optional("reason", &REASON),
        Field::optional("retriedTime", &RETRIED_TIME),
        Field::optional("retry", &SIDE_RETRY),
        Field::optional("startTime", &TIME),
        Field::optional("steps", &SIDE_STEPS),
        Field::optional("volumes", &VOLUMES),
        Field::optional("workerless", &WORKERLESS),
    ]),
};

static OUTAGE_FROM: Schema = Schema::of(
    "When the kube-apiservers of the source answered last, or were told to stop where nobody saw that.",
    Shape::String(Some("date-time")),
);
static OUTAGE_TO: Schema =
    Schema::of("When the DNS record of the API named the destination.", Shape::String(Some("date-time")));
static OUTAGE_SECONDS: Schema = Schema::of("How long that was, in seconds.", Shape::Integer);
static OUTAGE: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.ApiOutage"),
    description: "When clients could not reach the API of the Shoot.",
    shape: Shape::Object(&[
        Field::optional("from", &OUTAGE_FROM),
        Field::optional("seconds", &OUTAGE_SECONDS),
        Field::optional("to", &OUTAGE_TO),
    ]),
};
static OWNER_EPOCH: Schema =
    Schema::of("The highest epoch of the owner record of this migration.", Shape::Integer);
static POINT_OF_NO_RETURN: Schema = Schema::of(
    "When the point of no return was started; from then on the migration does not roll back.",
    Shape::String(Some("date-time")),
);
static CONTINUED_BY: Schema = Schema::string(
    "Name of the forced migration that goes on from the destination of this one. Each side has ended where it stood.",
);
static SUPERSEDED_BY: Schema = Schema::string(
    "Name of the forced migration that goes on in place of this one, which only undoes what it has made.",
);
static STATUS: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.ControlPlaneMigrationStatus"),
    description: "How far the migration has come; written by controllers.",
    shape: Shape::Object(&[
        Field::optional("apiOutage", &OUTAGE),
        Field::optional("conditions", &CONDITIONS),
        Field::optional("continuedBy", &CONTINUED_BY),
        Field::optional("destination", &SIDE),
        Field::optional("garden", &SIDE),
        Field::optional("lateSnapshot", &late_snapshot::SCHEMA),
        Field::optional("message", &MESSAGE),
        Field::optional("observedGeneration", &OBSERVED_GENERATION),
        Field::optional("ownerEpoch", &OWNER_EPOCH),
        Field::optional("phase", &PHASE),
        Field::optional("pointOfNoReturn", &POINT_OF_NO_RETURN),
        Field::optional("reason", &REASON),
        Field::optional("source", &SIDE),
        Field::optional("supersededBy", &SUPERSEDED_BY),
    ]),
};
static CONTROL_PLANE_MIGRATION: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.ControlPlaneMigration"),
    description: "ControlPlaneMigration moves the control plane of a Shoot from one seed to another. One object is one attempt; it \
                  stays as the history of that attempt.",
    shape: Shape::Object(&[
        Field::optional("apiVersion", &API_VERSION),
        Field::optional("kind", &KIND),
        Field::optional("metadata", &meta::OBJECT_META),
        Field::required("spec", &SPEC),
        Field::optional("status", &STATUS),
    ]),
};

/// The kind ControlPlaneMigration: its names, schema and columns.
pub static KIND_INFO: Kind = Kind {
    kind: "ControlPlaneMigration",
    list_kind: "ControlPlaneMigrationList",
    plural: "controlplanemigrations",
    singular: "controlplanemigration",
    short_names: &["cpm"],
    categories: &["repot"],
    namespaced: true,
    schema: &CONTROL_PLANE_MIGRATION,
    columns: &[
        Column { name: "Shoot", kind: "string", description: "The Shoot.", priority: 0 },
        Column { name: "Mode", kind: "string", description: "How the control plane moves.", priority: 0 },
        Column { name: "From", kind: "string", description: "The seed before the migration.", priority: 0 },
        Column { name: "To", kind: "string", description: "The seed after the migration.", priority: 0 },
        Column { name: "Phase", kind: "string", description: "How far the migration has come.", priority: 0 },
        Column { name: "Step", kind: "string", description: "The first step that runs.", priority: 0 },
        Column {
            name: "Outage",
            kind: "string",
            description: "How long the API could not be reached.",
            priority: 0,
        },
        Column { name: "Reason", kind: "string", description: "Why the phase is what it is.", priority: 1 },
        Column { name: "Message", kind: "string", description: "The reason in words.", priority: 1 },
    ],
    selectable: &["spec.shootRef.name", "spec.sourceSeed", "spec.destinationSeed", "status.phase"],
    cells,
};

/// Sets defaults; it has no warnings.
#[must_use]
pub fn normalise(object: &mut Node) -> Vec<String> {
    shape::tidy(object, &CONTROL_PLANE_MIGRATION);
    Vec::new()
}

/// Everything that is wrong outside of metadata and status.
#[must_use]
pub fn validate(object: &Node) -> Vec<FieldError> {
    let mut errors = workflow::check_spec(object, &CONTROL_PLANE_MIGRATION);
    for path in ["spec.shootRef.name", "spec.sourceSeed", "spec.destinationSeed"] {
        workflow::check_text(object, path, validation::dns_subdomain, &mut errors);
    }
    let destination = text_at(object, "spec.destinationSeed").filter(|seed| !seed.is_empty());
    if let Some(seed) = destination.filter(|seed| text_at(object, "spec.sourceSeed") == Some(seed)) {
        errors.push(FieldError::invalid(
            "spec.destinationSeed",
            seed,
            "must be another seed than spec.sourceSeed",
        ));
    }
    if let Some(spec) = object.member("spec") {
        workflow::check_least(spec, "spec", "retry", 0, &mut errors);
    }
    errors.extend(check_executor(object));
    errors
}

/// Nothing is left to steer where the source answers: its gardenlet migrates a Shoot as soon as that is bound to another seed.
fn check_executor(object: &Node) -> Option<FieldError> {
    let is_refused = text_at(object, "spec.executor") == Some("Gardenlet")
        && text_at(object, "spec.mode") != Some("Forced");
    is_refused.then(|| {
        let message = "is for mode Forced alone; where the source answers, bind the Shoot to the destination and let gardenlet \
                       migrate it, or leave the executor out";
        FieldError::invalid("spec.executor", "Gardenlet", message)
    })
}

/// The spec stays as it was created, but for requests to the running migration.
#[must_use]
pub fn validate_change(before: &Node, after: &Node) -> Vec<FieldError> {
    let mut errors = workflow::changed(before, after, MUTABLE);
    let rank = |object| match text_at(object, "spec.abort") {
        Some("Force") => 2,
        Some("Abort") => 1,
        _ => 0,
    };
    if rank(after) < rank(before) {
        errors.push(FieldError::forbidden("spec.abort", "cannot be taken back"));
    }
    if retry(after) < retry(before) {
        errors.push(FieldError::forbidden("spec.retry", "cannot be lowered"));
    }
    // The garden controller fills it in once.
    let uid = |object| text_at(object, "spec.shootRef.uid").unwrap_or_default().to_owned();
    let name = |object| text_at(object, "spec.shootRef.name").unwrap_or_default().to_owned();
    if uid(before).is_empty() && name(before) == name(after) {
        errors.retain(|error| error.field != "spec.shootRef");
    }
    errors
}

fn retry(object: &Node) -> i64 {
    match object.member("spec").and_then(|spec| spec.member("retry")) {
        Some(Node::Integer(number)) => *number,
        _ => 0,
    }
}

/// Everything that is wrong in the status.
#[must_use]
pub fn validate_status(object: &Node) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(status) = object.member("status") else { return errors };
    shape::check(status, &STATUS, "status", &mut errors);
    conditions::check(status, &mut errors);
    for side in SIDES {
        if is_enough(&errors) {
            break;
        }
        if let Some(record) = status.member(side) {
            check_side(record, &format!("status.{side}"), &mut errors);
        }
    }
    errors
}

fn check_side(record: &Node, path: &str, errors: &mut Vec<FieldError>) {
    workflow::check_least(record, path, "planVersion", 1, errors);
    for field in ["apiTtlSeconds", "etcdReplicas", "ownerEpoch", "retry"] {
        workflow::check_least(record, path, field, 0, errors);
    }
    workflow::check_steps(record, path, errors);
}

fn cells(object: &Node, _: usize) -> Vec<Cell> {
    let status = object.member("status");
    let seconds =
        status.and_then(|status| status.member("apiOutage")).and_then(|outage| outage.member("seconds"));
    let outage = match seconds {
        Some(Node::Integer(seconds)) => format!("{seconds}s"),
        _ => String::new(),
    };
    vec![
        cell(object, "spec.shootRef.name"),
        cell(object, "spec.mode"),
        cell(object, "spec.sourceSeed"),
        cell(object, "spec.destinationSeed"),
        cell(object, "status.phase"),
        Cell::Text(current_step(object).to_owned()),
        Cell::Text(outage),
        cell(object, "status.reason"),
        cell(object, "status.message"),
    ]
}

/// The first step that runs, of any side.
fn current_step(object: &Node) -> &str {
    let status = object.member("status");
    let sides = SIDES.iter().filter_map(|side| status?.member(side));
    sides.filter_map(step_of).next().unwrap_or_default()
}
