//! A kind for tests: lists by keys, opaque parts, and an older shape that is read and not published.

use crate::{
    kind::Kind,
    meta,
    schema::{Field, ListType, Schema, Shape},
};

static TEXT: Schema = Schema::string("");
static TEXTS: Schema = Schema::of("", Shape::Map(&TEXT));
static ANY: Schema = Schema::of("", Shape::Opaque);
static ITEM: Schema = Schema {
    name: Some("org.example.v1.Item"),
    description: "Data under a name.",
    shape: Shape::Object(&[
        Field::required("data", &ANY),
        Field::optional("labels", &TEXTS),
        Field::required("name", &TEXT),
        Field::required("type", &TEXT),
    ]),
};
static PART: Schema = Schema {
    name: Some("org.example.v1.Part"),
    description: "The state of something else.",
    shape: Shape::Object(&[
        Field::required("kind", &TEXT),
        Field::optional("name", &TEXT),
        Field::optional("purpose", &TEXT),
        Field::optional("state", &ANY),
    ]),
};
static ITEMS: Schema = Schema::of("Items by name.", Shape::List(&ITEM, ListType::Map(&["name"])));
static PARTS: Schema =
    Schema::of("Parts by their keys.", Shape::List(&PART, ListType::Map(&["kind", "name", "purpose"])));
static SPEC: Schema = Schema {
    name: Some("org.example.v1.SampleSpec"),
    description: "What is kept.",
    shape: Shape::Object(&[Field::optional("items", &ITEMS), Field::optional("parts", &PARTS)]),
};
static OLD_ITEM: Schema =
    Schema::of("", Shape::Object(&[Field::required("name", &TEXT), Field::required("data", &ANY)]));
static OLD_ITEMS: Schema = Schema::of("", Shape::List(&OLD_ITEM, ListType::Atomic));
static OLD: Schema = Schema::of("", Shape::Object(&[Field::optional("items", &OLD_ITEMS)]));
static SAMPLE: Schema = Schema {
    name: Some("org.example.v1.Sample"),
    description: "An object for tests.",
    shape: Shape::Object(&[
        Field::optional("apiVersion", &TEXT),
        Field::optional("kind", &TEXT),
        Field::optional("metadata", &meta::OBJECT_META),
        Field::optional("spec", &SPEC),
        Field::hidden("old", &OLD),
        Field::hidden("parts", &PARTS),
    ]),
};

/// The kind `Sample` of the group `example.org`.
pub(crate) static KIND_INFO: Kind = Kind {
    kind: "Sample",
    list_kind: "SampleList",
    plural: "samples",
    singular: "sample",
    short_names: &["smp"],
    categories: &[],
    namespaced: true,
    schema: &SAMPLE,
    columns: &[],
    selectable: &[],
    cells: |_, _| Vec::new(),
};
