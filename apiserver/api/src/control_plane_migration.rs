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
    migration_side::{self, PHASE, SIDE},
    workflow::{
        self, API_VERSION, CONDITIONS, KIND, MESSAGE, OBSERVED_GENERATION, PAUSED, REASON, STEP_TIMEOUT,
        cell, step_of,
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
    "Who runs the steps. Repot: its own controllers. Gardenlet: the gardenlets, which Repot steers; in modes Classic and Forced.",
    &["Repot", "Gardenlet"],
);
static ABORT: Schema = Schema::choice(
    "A request to roll back. Abort: where the mode grants it. Force: until the point of no return; with executor Gardenlet and mode Classic \
     it ends, after the Shoot was bound, that anybody waits for gardenlet. Cannot be taken back.",
    &["Abort", "Force"],
);
static RETRY: Schema = Schema::of(
    "Number of a request to try again. Each time it is raised, each side of a failed migration goes on where it stood. It cannot be lowered, and is 1000000 at most.",
    Shape::Integer,
);
/// The highest number of a request to try again.
const MOST_RETRIES: i64 = 1_000_000;
static FORCE_SHRINK: Schema = Schema::of(
    "Whether a live migration gives the source up where kube-apiservers of the destination do not start beside it: its members leave first, and the API is away until clients find the destination. Obeyed while the step ApiServes runs.",
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

static OUTAGE_FROM: Schema = Schema::of(
    "When the kube-apiservers of the source answered last, or were told to stop where nobody saw that. Executor Gardenlet: when none of them \
     was ready any more, or when a person said that the source is off.",
    Shape::String(Some("date-time")),
);
static OUTAGE_TO: Schema = Schema::of(
    "When the DNS record of the API named the destination. Executor Gardenlet: when a kube-apiserver of the destination was ready.",
    Shape::String(Some("date-time")),
);
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
        errors.extend(check_retry(spec));
    }
    errors.extend(check_executor(object));
    errors
}

/// It is only ever raised, so one that is far too high by mistake would allow no other.
fn check_retry(spec: &Node) -> Option<FieldError> {
    let Some(Node::Integer(number)) = spec.member("retry") else { return None };
    let why = format!("must be from 0 to {MOST_RETRIES}");
    (!(0..=MOST_RETRIES).contains(number)).then(|| FieldError::invalid("spec.retry", number, &why))
}

/// No gardenlet has a live migration yet.
fn check_executor(object: &Node) -> Option<FieldError> {
    let is_refused =
        text_at(object, "spec.executor") == Some("Gardenlet") && text_at(object, "spec.mode") == Some("Live");
    is_refused.then(|| {
        let message = "is for modes Classic and Forced; gardenlet knows no live migration";
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
            migration_side::check(record, &format!("status.{side}"), &mut errors);
        }
    }
    errors
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
