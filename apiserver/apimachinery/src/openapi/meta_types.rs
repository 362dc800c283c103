//! Shapes of the request and response types that every kind shares, under their upstream names so that documents merge.

use crate::schema::{Field, ListType, Schema, Shape};

macro_rules! meta {
    ($name:literal) => {
        Some(concat!("io.k8s.apimachinery.pkg.apis.meta.v1.", $name))
    };
}

static TEXT: Schema = Schema::string("");
static TEXTS: Schema = Schema::of("", Shape::List(&TEXT, ListType::Atomic));
static INTEGER: Schema = Schema::of("", Shape::Integer);
static BOOLEAN: Schema = Schema::of("", Shape::Boolean);
static OBJECT: Schema = Schema {
    name: Some("io.k8s.apimachinery.pkg.runtime.RawExtension"),
    description: "An object of any kind.",
    shape: Shape::Opaque,
};

pub(super) static LIST_META: Schema = Schema {
    name: meta!("ListMeta"),
    description: "Metadata of a list.",
    shape: Shape::Object(&[
        Field::optional("continue", &TEXT),
        Field::optional("remainingItemCount", &INTEGER),
        Field::optional("resourceVersion", &TEXT),
        Field::optional("selfLink", &TEXT),
    ]),
};

static PRECONDITIONS: Schema = Schema {
    name: meta!("Preconditions"),
    description: "What must hold for an operation to be carried out.",
    shape: Shape::Object(&[Field::optional("resourceVersion", &TEXT), Field::optional("uid", &TEXT)]),
};

/// The body of a DELETE request.
pub static DELETE_OPTIONS: Schema = Schema {
    name: meta!("DeleteOptions"),
    description: "Options of a deletion.",
    shape: Shape::Object(&[
        Field::optional("apiVersion", &TEXT),
        Field::optional("dryRun", &TEXTS),
        Field::optional("gracePeriodSeconds", &INTEGER),
        Field::optional("ignoreStoreReadErrorWithClusterBreakingPotential", &BOOLEAN),
        Field::optional("kind", &TEXT),
        Field::optional("orphanDependents", &BOOLEAN),
        Field::optional("preconditions", &PRECONDITIONS),
        Field::optional("propagationPolicy", &TEXT),
    ]),
};

static STATUS_CAUSE: Schema = Schema {
    name: meta!("StatusCause"),
    description: "One cause of a failure.",
    shape: Shape::Object(&[
        Field::optional("field", &TEXT),
        Field::optional("message", &TEXT),
        Field::optional("reason", &TEXT),
    ]),
};
static STATUS_CAUSES: Schema = Schema::of("", Shape::List(&STATUS_CAUSE, ListType::Atomic));
static STATUS_DETAILS: Schema = Schema {
    name: meta!("StatusDetails"),
    description: "More about a failure.",
    shape: Shape::Object(&[
        Field::optional("causes", &STATUS_CAUSES),
        Field::optional("group", &TEXT),
        Field::optional("kind", &TEXT),
        Field::optional("name", &TEXT),
        Field::optional("retryAfterSeconds", &INTEGER),
        Field::optional("uid", &TEXT),
    ]),
};

pub(super) static STATUS: Schema = Schema {
    name: meta!("Status"),
    description: "The outcome of a call that returns no other object.",
    shape: Shape::Object(&[
        Field::optional("apiVersion", &TEXT),
        Field::optional("code", &INTEGER),
        Field::optional("details", &STATUS_DETAILS),
        Field::optional("kind", &TEXT),
        Field::optional("message", &TEXT),
        Field::optional("metadata", &LIST_META),
        Field::optional("reason", &TEXT),
        Field::optional("status", &TEXT),
    ]),
};

pub(super) static PATCH: Schema = Schema {
    name: meta!("Patch"),
    description: "A patch, in the form that the request's content type names.",
    shape: Shape::Opaque,
};

pub(super) static WATCH_EVENT: Schema = Schema {
    name: meta!("WatchEvent"),
    description: "A single event of a watch.",
    shape: Shape::Object(&[Field::required("object", &OBJECT), Field::required("type", &TEXT)]),
};

static API_RESOURCE: Schema = Schema {
    name: meta!("APIResource"),
    description: "A resource as discovery shows it.",
    shape: Shape::Object(&[
        Field::optional("categories", &TEXTS),
        Field::optional("group", &TEXT),
        Field::required("kind", &TEXT),
        Field::required("name", &TEXT),
        Field::required("namespaced", &BOOLEAN),
        Field::optional("shortNames", &TEXTS),
        Field::required("singularName", &TEXT),
        Field::optional("storageVersionHash", &TEXT),
        Field::required("verbs", &TEXTS),
        Field::optional("version", &TEXT),
    ]),
};
static API_RESOURCES: Schema = Schema::of("", Shape::List(&API_RESOURCE, ListType::Atomic));

pub(super) static API_RESOURCE_LIST: Schema = Schema {
    name: meta!("APIResourceList"),
    description: "The resources of a group and version.",
    shape: Shape::Object(&[
        Field::optional("apiVersion", &TEXT),
        Field::required("groupVersion", &TEXT),
        Field::optional("kind", &TEXT),
        Field::required("resources", &API_RESOURCES),
    ]),
};
