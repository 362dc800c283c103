//! ZoneIsolation: a zone of a Shoot is left, and used again later. One object is one isolation, from its beginning to its end.

use repot_apimachinery::{
    field::{FieldError, is_enough},
    formats,
    json::Node,
    kind::{Cell, Column, Kind, text_at},
    meta,
    schema::{Default, Field, Schema, Shape},
    shape, validation,
};

use crate::{
    conditions,
    workflow::{
        self, API_VERSION, CONDITIONS, KIND, MESSAGE, OBSERVED_GENERATION, PLAN_VERSION, REASON,
        STEP_TIMEOUT, STEPS, TIME, cell, step_of,
    },
};

/// Parts of the status that are written by the controller of one side each, in the order in which steps are looked for.
const SIDES: [&str; 2] = ["seed", "garden"];
/// Fields of the spec that may be changed while the zone is isolated.
const MUTABLE: &[&str] = &["drainTimeout", "expiresAt", "stepTimeout"];
/// No provider's ID of a zone is longer.
const LONGEST_ZONE: usize = 63;

static SHOOT_NAME: Schema = Schema::string("Name of the Shoot, in the same namespace.");
static SHOOT_UID: Schema = Schema::string(
    "UID of the Shoot. An isolation ends where another Shoot has the name. The garden controller fills it in where it is left out.",
);
static SHOOT_REF: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.IsolatedShootReference"),
    description: "The Shoot whose zone is left. Cannot be changed.",
    shape: Shape::Object(&[Field::required("name", &SHOOT_NAME), Field::optional("uid", &SHOOT_UID)]),
};
static ZONE_ID: Schema = Schema::string(
    "The provider's ID of the zone, such as \"euc1-az1\": a zone may have another code in each account. Cannot be changed.",
);
static EXPIRES: Schema = Schema::of(
    "When the zone is used again by itself. May be put off, and taken away. Without it the isolation lasts until the annotation \
     shoot.gardener.cloud/isolated-zone is removed from the Shoot, or this object is deleted.",
    Shape::String(Some("date-time")),
);
static DRAIN_TIMEOUT: Schema = Schema::string(
    "How long machines of the zone are drained before they are deleted without waiting for their Pods; \"1h\" where it is left out.",
);
static SPEC: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.ZoneIsolationSpec"),
    description: "Which zone of which Shoot is left. Only drainTimeout, expiresAt and stepTimeout can be changed.",
    shape: Shape::Object(&[
        Field::defaulted("drainTimeout", &DRAIN_TIMEOUT, Default::Text("1h")),
        Field::optional("expiresAt", &EXPIRES),
        Field::required("isolatedZoneID", &ZONE_ID),
        Field::required("shootRef", &SHOOT_REF),
        Field::defaulted("stepTimeout", &STEP_TIMEOUT, Default::Text("10m")),
    ]),
};

static LEDGER_PHASE: Schema = Schema::choice(
    "How far this side has come. It runs as long as the isolation lasts.",
    &["Pending", "Running", "Succeeded", "RollingBack", "RolledBack", "Failed", "Cancelled"],
);
static OBSERVED_TIME: Schema = Schema::of(
    "When the controller of this side wrote last. It writes at least once a minute.",
    Shape::String(Some("date-time")),
);
static SIDE_STEPS: Schema =
    Schema::of("The steps of this side that were started; docs/reference/zone-isolation.md has all.", STEPS);
static BEGUN: Schema = Schema::of(
    "Garden: whether it has begun. One that was called off while it waited for another isolation changes nothing.",
    Shape::Boolean,
);
static COUNT: Schema = Schema::of("Number of machines.", Shape::Integer);
static MACHINES: Schema =
    Schema::of("Seed: machines of each pool before anything was changed.", Shape::Map(&COUNT));
static SUBNET_SEED: Schema =
    Schema::string("Seed: name of the seed in which the SubnetIsolation was requested.");
static ISOLATED: Schema = Schema::of("Seed: whether the zone was isolated.", Shape::Boolean);
static WORKER_CHANGED: Schema = Schema::of("Seed: whether the Worker may have been changed.", Shape::Boolean);
static ZONE_CODE: Schema =
    Schema::string("The code of the zone in the account of the Shoot, such as \"eu-central-1a\".");
static SIDE: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.IsolationSide"),
    description: "What the controller of one side has recorded. Only that controller writes it.",
    shape: Shape::Object(&[
        Field::optional("begun", &BEGUN),
        Field::optional("completionTime", &TIME),
        Field::optional("conditions", &CONDITIONS),
        Field::optional("isolated", &ISOLATED),
        Field::optional("machines", &MACHINES),
        Field::optional("message", &MESSAGE),
        Field::optional("observedTime", &OBSERVED_TIME),
        Field::optional("phase", &LEDGER_PHASE),
        Field::optional("planVersion", &PLAN_VERSION),
        Field::optional("reason", &REASON),
        Field::optional("startTime", &TIME),
        Field::optional("steps", &SIDE_STEPS),
        Field::optional("subnetSeed", &SUBNET_SEED),
        Field::optional("workerChanged", &WORKER_CHANGED),
        Field::optional("zoneCode", &ZONE_CODE),
    ]),
};

static CONTINUED_BY: Schema = Schema::string(
    "Name of the ZoneIsolation that goes on from here: the zone was to be left again before it was used again.",
);
static PHASE: Schema = Schema::choice(
    "Which way the isolation goes, as in status.zoneIsolation of the Shoot.",
    &["Failover", "Failback"],
);
static SEED_NAME: Schema = Schema::string("Name of the seed that has the control plane of the Shoot.");
static TECHNICAL_ID: Schema = Schema::string("Namespace of the control plane in that seed.");
static STATUS_WORD: Schema = Schema::choice(
    "How far it has come in that direction. Aborting: it was called off before the zone was isolated. Failed: a step takes longer than \
     spec.stepTimeout; it is worked on all the same.",
    &["Pending", "InProgress", "Aborting", "Done", "Failed"],
);
static STATUS: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.ZoneIsolationStatus"),
    description: "How far the isolation has come; written by controllers.",
    shape: Shape::Object(&[
        Field::optional("conditions", &CONDITIONS),
        Field::optional("continuedBy", &CONTINUED_BY),
        Field::optional("garden", &SIDE),
        Field::optional("isolatedZoneCode", &ZONE_CODE),
        Field::optional("message", &MESSAGE),
        Field::optional("observedGeneration", &OBSERVED_GENERATION),
        Field::optional("phase", &PHASE),
        Field::optional("reason", &REASON),
        Field::optional("seed", &SIDE),
        Field::optional("seedName", &SEED_NAME),
        Field::optional("status", &STATUS_WORD),
        Field::optional("technicalID", &TECHNICAL_ID),
    ]),
};
static ZONE_ISOLATION: Schema = Schema {
    name: Some("cloud.gardener.migration.v1alpha1.ZoneIsolation"),
    description: "ZoneIsolation leaves a zone of a Shoot: machines go to other zones, and the networks of the zone are cut off. All of \
                  that is undone when it ends; then it stays as history.",
    shape: Shape::Object(&[
        Field::optional("apiVersion", &API_VERSION),
        Field::optional("kind", &KIND),
        Field::optional("metadata", &meta::OBJECT_META),
        Field::required("spec", &SPEC),
        Field::optional("status", &STATUS),
    ]),
};

/// The kind ZoneIsolation: its names, schema and columns.
pub static KIND_INFO: Kind = Kind {
    kind: "ZoneIsolation",
    list_kind: "ZoneIsolationList",
    plural: "zoneisolations",
    singular: "zoneisolation",
    short_names: &["zi"],
    categories: &["repot"],
    namespaced: true,
    schema: &ZONE_ISOLATION,
    columns: &[
        Column { name: "Shoot", kind: "string", description: "The Shoot.", priority: 0 },
        Column { name: "Zone", kind: "string", description: "The provider's ID of the zone.", priority: 0 },
        Column { name: "Code", kind: "string", description: "Its code in the account.", priority: 0 },
        Column { name: "Phase", kind: "string", description: "Which way it goes.", priority: 0 },
        Column { name: "Status", kind: "string", description: "How far it has come.", priority: 0 },
        Column { name: "Step", kind: "string", description: "The first step that runs.", priority: 0 },
        Column { name: "Expires", kind: "string", description: "When it ends by itself.", priority: 0 },
        Column { name: "Reason", kind: "string", description: "Why the status is what it is.", priority: 1 },
        Column { name: "Message", kind: "string", description: "The reason in words.", priority: 1 },
    ],
    selectable: &["spec.shootRef.name", "spec.isolatedZoneID", "status.phase", "status.status"],
    cells,
};

/// Sets defaults; it has no warnings.
#[must_use]
pub fn normalise(object: &mut Node) -> Vec<String> {
    shape::tidy(object, &ZONE_ISOLATION);
    Vec::new()
}

/// Everything that is wrong outside of metadata and status.
#[must_use]
pub fn validate(object: &Node) -> Vec<FieldError> {
    let mut errors = workflow::check_spec(object, &ZONE_ISOLATION);
    workflow::check_text(object, "spec.shootRef.name", validation::dns_subdomain, &mut errors);
    workflow::check_text(object, "spec.drainTimeout", formats::duration, &mut errors);
    let zone = text_at(object, "spec.isolatedZoneID").unwrap_or_default();
    if !is_zone(zone) {
        let why = "must be the provider's ID of one zone, such as euc1-az1";
        errors.push(FieldError::invalid("spec.isolatedZoneID", zone, why));
    }
    errors
}

/// The same form as that of the annotation of the Shoot.
fn is_zone(id: &str) -> bool {
    let inner =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_' | b'.');
    let outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = id.as_bytes();
    id.len() <= LONGEST_ZONE && id.bytes().all(inner) && outer(bytes.first()) && outer(bytes.last())
}

/// The spec stays as it was created, but for times.
#[must_use]
pub fn validate_change(before: &Node, after: &Node) -> Vec<FieldError> {
    let mut errors = workflow::changed(before, after, MUTABLE);
    // The garden controller fills it in once.
    let uid = |object| text_at(object, "spec.shootRef.uid").unwrap_or_default().to_owned();
    let name = |object| text_at(object, "spec.shootRef.name").unwrap_or_default().to_owned();
    if uid(before).is_empty() && name(before) == name(after) {
        errors.retain(|error| error.field != "spec.shootRef");
    }
    errors
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
            let path = format!("status.{side}");
            workflow::check_least(record, &path, "planVersion", 1, &mut errors);
            workflow::check_steps(record, &path, &mut errors);
        }
    }
    errors
}

fn cells(object: &Node, _: usize) -> Vec<Cell> {
    let status = object.member("status");
    let mut sides = SIDES.iter().filter_map(|side| status?.member(side));
    let step = sides.find_map(step_of).unwrap_or_default().to_owned();
    vec![
        cell(object, "spec.shootRef.name"),
        cell(object, "spec.isolatedZoneID"),
        cell(object, "status.isolatedZoneCode"),
        cell(object, "status.phase"),
        cell(object, "status.status"),
        Cell::Text(step),
        cell(object, "spec.expiresAt"),
        cell(object, "status.reason"),
        cell(object, "status.message"),
    ]
}
