//! ShootState: the state of a Shoot's control plane that has to survive a move to another Seed.
//!
//! Fields as Gardener has them today. The older shape of GEP-7 (`gardenlet.secrets[]` and `extensions[]` beside
//! `metadata`) is accepted and brought into today's.

use bytes::Bytes;
use repot_apimachinery::{
    field::{FieldError, is_enough},
    json::{Node, Raw},
    kind::{Cell, Column, Kind, human_bytes},
    meta,
    schema::{Field, ListType, Schema, Shape},
};

static API_VERSION: Schema = Schema::string("The versioned schema of this representation of an object.");
static KIND: Schema = Schema::string("The REST resource this object represents. Cannot be updated.");
static NAME: Schema = Schema::string("Name of the data.");
static TYPE: Schema = Schema::string("Type of the data, such as \"secret\" or \"machine-state\".");
static DATA: Schema = Schema::of("The data itself, kept token for token.", Shape::Opaque);
static LABELS: Schema = Schema::of("Labels of the data, as on the resource it was taken from.", meta_texts());
static EXTENSION_KIND: Schema = Schema::string("Kind of the extension resource, such as Worker.");
static EXTENSION_NAME: Schema = Schema::string("Name of the extension resource.");
static PURPOSE: Schema = Schema::string("Purpose of the extension resource.");
static STATE: Schema = Schema::of("State of the extension resource, kept token for token.", Shape::Opaque);
static REF_NAME: Schema = Schema::string("Name of the referenced resource.");
static REF_KIND: Schema = Schema::string("Kind of the referenced resource.");
static REF_VERSION: Schema = Schema::string("API version of the referenced resource.");

const fn meta_texts() -> Shape {
    static TEXT: Schema = Schema::string("");
    Shape::Map(&TEXT)
}

static REFERENCE: Schema = Schema {
    name: Some("cloud.gardener.core.v1alpha1.CrossVersionObjectReference"),
    description: "A resource in the control plane namespace.",
    shape: Shape::Object(&[
        Field::required("apiVersion", &REF_VERSION),
        Field::required("kind", &REF_KIND),
        Field::required("name", &REF_NAME),
    ]),
};
static NAMED_REFERENCE: Schema = Schema {
    name: Some("cloud.gardener.core.v1alpha1.NamedResourceReference"),
    description: "A named reference to a resource.",
    shape: Shape::Object(&[Field::required("name", &NAME), Field::required("resourceRef", &REFERENCE)]),
};
static NAMED_REFERENCES: Schema =
    Schema::of("Resources the extension's state refers to.", Shape::List(&NAMED_REFERENCE, ListType::Atomic));

static GARDENER_DATA: Schema = Schema {
    name: Some("cloud.gardener.core.v1alpha1.GardenerResourceData"),
    description: "Data from which gardenlet generates or deploys resources of the control plane.",
    shape: Shape::Object(&[
        Field::required("data", &DATA),
        Field::optional("labels", &LABELS),
        Field::required("name", &NAME),
        Field::required("type", &TYPE),
    ]),
};
static EXTENSION_STATE: Schema = Schema {
    name: Some("cloud.gardener.core.v1alpha1.ExtensionResourceState"),
    description: "State of an extension resource.",
    shape: Shape::Object(&[
        Field::required("kind", &EXTENSION_KIND),
        Field::optional("name", &EXTENSION_NAME),
        Field::optional("purpose", &PURPOSE),
        Field::optional("resources", &NAMED_REFERENCES),
        Field::optional("state", &STATE),
    ]),
};
static RESOURCE_DATA: Schema = Schema {
    name: Some("cloud.gardener.core.v1alpha1.ResourceData"),
    description: "A whole resource that extensions refer to.",
    shape: Shape::Object(&[
        Field::required("apiVersion", &REF_VERSION),
        Field::required("data", &DATA),
        Field::required("kind", &REF_KIND),
        Field::required("name", &REF_NAME),
    ]),
};

static GARDENER: Schema = Schema::of(
    "Data required to generate or deploy resources of the control plane, by name.",
    Shape::List(&GARDENER_DATA, ListType::Map(&["name"])),
);
static EXTENSIONS: Schema = Schema::of(
    "States of extension resources, by kind, name and purpose.",
    Shape::List(&EXTENSION_STATE, ListType::Map(&["kind", "name", "purpose"])),
);
static RESOURCES: Schema = Schema::of(
    "Resources that extension states refer to, by reference.",
    Shape::List(&RESOURCE_DATA, ListType::Map(&["kind", "name", "apiVersion"])),
);
static SPEC: Schema = Schema {
    name: Some("cloud.gardener.core.v1alpha1.ShootStateSpec"),
    description: "The state itself.",
    shape: Shape::Object(&[
        Field::optional("extensions", &EXTENSIONS),
        Field::optional("gardener", &GARDENER),
        Field::optional("resources", &RESOURCES),
    ]),
};

static OLD_SECRET: Schema = Schema::of(
    "",
    Shape::Object(&[
        Field::required("name", &NAME),
        Field::required("data", &DATA),
        Field::optional("labels", &LABELS),
    ]),
);
static OLD_SECRETS: Schema = Schema::of("", Shape::List(&OLD_SECRET, ListType::Atomic));
static OLD_GARDENLET: Schema = Schema::of("", Shape::Object(&[Field::optional("secrets", &OLD_SECRETS)]));

static SHOOT_STATE: Schema = Schema {
    name: Some("cloud.gardener.core.v1alpha1.ShootState"),
    description: "ShootState holds the state of a Shoot's control plane that has to survive a move to another Seed.",
    shape: Shape::Object(&[
        Field::optional("apiVersion", &API_VERSION),
        Field::optional("kind", &KIND),
        Field::optional("metadata", &meta::OBJECT_META),
        Field::optional("spec", &SPEC),
        Field::hidden("gardenlet", &OLD_GARDENLET),
        Field::hidden("extensions", &EXTENSIONS),
    ]),
};

/// The kind ShootState: its names, schema and columns.
pub static KIND_INFO: Kind = Kind {
    kind: "ShootState",
    list_kind: "ShootStateList",
    plural: "shootstates",
    singular: "shootstate",
    // Where gardener-apiserver serves shootstates as well, kubectl takes the plural for Gardener's; this name is only here.
    short_names: &["shst"],
    categories: &["all"],
    namespaced: true,
    schema: &SHOOT_STATE,
    columns: &[
        Column {
            name: "Gardener Data",
            kind: "integer",
            description: "Number of entries of spec.gardener.",
            priority: 0,
        },
        Column {
            name: "Extension States",
            kind: "integer",
            description: "Number of entries of spec.extensions.",
            priority: 0,
        },
        Column { name: "Size", kind: "string", description: "Size of the state as JSON.", priority: 0 },
        Column {
            name: "Resources",
            kind: "integer",
            description: "Number of entries of spec.resources.",
            priority: 1,
        },
    ],
    selectable: &[],
    cells,
};

/// Brings the older shape into today's; tells clients what it did.
#[must_use]
pub fn normalise(object: &mut Node) -> Vec<String> {
    let mut warnings = Vec::new();
    if object.member("spec").is_none() {
        object.set("spec", Node::object());
    }
    if let Some(mut gardenlet) = object.take("gardenlet") {
        let secrets = gardenlet.take("secrets");
        let entries = secrets.iter().flat_map(Node::items).map(secret_entry).collect();
        extend(object, "gardener", entries);
        warnings.push(
            "gardenlet.secrets is the older shape of spec.gardener; stored as entries of type \"secret\""
                .to_owned(),
        );
    }
    if let Some(Node::Array(states)) = object.take("extensions") {
        extend(object, "extensions", states);
        warnings.push("extensions beside metadata is the older shape; stored as spec.extensions".to_owned());
    }
    warnings
}

/// `{name, data: {key: base64}}` becomes `{name, type: secret, data: {data: {key: base64}}}`: what gardenlet reads today.
fn secret_entry(secret: &Node) -> Node {
    let data = secret.member("data").map_or_else(Raw::null, Node::to_raw);
    let wrapped = [b"{\"data\":", data.bytes().as_ref(), b"}"].concat();
    let mut entry = Node::object();
    entry.set("data", Node::Raw(Raw::from_compact(Bytes::from(wrapped))));
    for field in ["labels", "name"] {
        if let Some(value) = secret.member(field) {
            entry.set(field, value.clone());
        }
    }
    entry.set("type", Node::String("secret".to_owned()));
    entry
}

fn extend(object: &mut Node, list: &'static str, more: Vec<Node>) {
    let Some(spec) = object.member_mut("spec") else { return };
    match spec.member_mut(list) {
        Some(Node::Array(items)) => items.extend(more),
        _ => spec.set(list, Node::Array(more)),
    }
}

/// What is wrong outside of metadata: all of it, or the first [`MAX_ERRORS`](repot_apimachinery::field::MAX_ERRORS) and a few.
#[must_use]
pub fn validate(object: &Node) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(spec) = object.member("spec") else { return errors };
    for (at, data) in list(spec, "gardener").iter().enumerate() {
        let why = "name of data required to generate resources cannot be empty";
        required(data, "name", || format!("spec.gardener[{at}]"), why, &mut errors);
        if is_enough(&errors) {
            return errors;
        }
    }
    for (at, state) in list(spec, "extensions").iter().enumerate() {
        validate_extension(state, at, &mut errors);
        if is_enough(&errors) {
            return errors;
        }
    }
    for (at, resource) in list(spec, "resources").iter().enumerate() {
        validate_reference(resource, || format!("spec.resources[{at}]"), &mut errors);
        if is_enough(&errors) {
            return errors;
        }
    }
    errors
}

fn validate_extension(state: &Node, at: usize, errors: &mut Vec<FieldError>) {
    let path = || format!("spec.extensions[{at}]");
    required(state, "kind", path, "extension resource kind cannot be empty", errors);
    if state.text("purpose") == Some("") {
        let why = "extension resource purpose cannot be empty";
        errors.push(FieldError::required(format!("{}.purpose", path()), why));
    }
    for (at, reference) in list(state, "resources").iter().enumerate() {
        if is_enough(errors) {
            return;
        }
        let path = || format!("{}.resources[{at}]", path());
        required(reference, "name", path, "name of the reference cannot be empty", errors);
        let nothing = Node::object();
        let target = reference.member("resourceRef").unwrap_or(&nothing);
        validate_reference(target, || format!("{}.resourceRef", path()), errors);
    }
}

fn validate_reference(reference: &Node, path: impl Fn() -> String, errors: &mut Vec<FieldError>) {
    for field in ["kind", "name", "apiVersion"] {
        let why = match field {
            "kind" => "kind of the referenced resource cannot be empty",
            "name" => "name of the referenced resource cannot be empty",
            _ => "apiVersion of the referenced resource cannot be empty",
        };
        required(reference, field, &path, why, errors);
    }
}

fn required(node: &Node, field: &str, path: impl Fn() -> String, why: &str, errors: &mut Vec<FieldError>) {
    if node.text(field).unwrap_or_default().is_empty() {
        errors.push(FieldError::required(format!("{}.{field}", path()), why));
    }
}

fn cells(object: &Node, size: usize) -> Vec<Cell> {
    let count = |field| {
        let length = object.member("spec").map_or(0, |spec| list(spec, field).len());
        Cell::Integer(length as u64)
    };
    vec![count("gardener"), count("extensions"), Cell::Text(human_bytes(size)), count("resources")]
}

fn list<'a>(node: &'a Node, field: &str) -> &'a [Node] {
    node.member(field).map_or(&[], Node::items)
}

#[cfg(test)]
mod tests {
    use super::*;
    use repot_apimachinery::{
        field::MAX_ERRORS,
        json::{Findings, decode},
    };

    fn read(text: &str) -> Node {
        let mut findings = Findings::default();
        let node =
            decode(&Bytes::copy_from_slice(text.as_bytes()), KIND_INFO.schema, &mut findings).expect("JSON");
        assert_eq!(findings, Findings::default());
        node
    }

    #[test]
    fn brings_the_older_shape_into_todays() {
        let mut old = read(
            r#"{"gardenlet":{"secrets":[{"name":"ca","data":{"ca.crt":"AA=="}}]},"extensions":[{"kind":"Worker","state":1.0}],"spec":{"extensions":[{"kind":"Network"}]}}"#,
        );
        assert_eq!(normalise(&mut old).len(), 2);
        assert_eq!(
            old.to_raw().bytes(),
            r#"{"spec":{"extensions":[{"kind":"Network"},{"kind":"Worker","state":1.0}],"gardener":[{"data":{"data":{"ca.crt":"AA=="}},"name":"ca","type":"secret"}]}}"#.as_bytes()
        );
    }

    #[test]
    fn leaves_todays_shape_alone() {
        let text = r#"{"spec":{"gardener":[{"name":"ca","type":"secret","data":{}}]}}"#;
        let mut today = read(text);
        assert_eq!(normalise(&mut today), [""; 0]);
        assert_eq!(today.to_raw().bytes(), text.as_bytes());
    }

    #[test]
    fn finds_everything_that_is_wrong() {
        let wrong = read(
            r#"{"spec":{"gardener":[{"type":"secret"}],"extensions":[{"purpose":""},{"kind":"Worker","resources":[{"name":"","resourceRef":{"kind":"Secret"}}]}],"resources":[{"name":"x"}]}}"#,
        );
        let fields: Vec<String> = validate(&wrong).into_iter().map(|e| e.field).collect();
        assert_eq!(
            fields,
            [
                "spec.gardener[0].name",
                "spec.extensions[0].kind",
                "spec.extensions[0].purpose",
                "spec.extensions[1].resources[0].name",
                "spec.extensions[1].resources[0].resourceRef.name",
                "spec.extensions[1].resources[0].resourceRef.apiVersion",
                "spec.resources[0].kind",
                "spec.resources[0].apiVersion",
            ]
        );
    }

    #[test]
    fn stops_where_nobody_would_read_on() {
        let wrong = |text: &str| validate(&read(text)).len();
        for list in ["gardener", "extensions", "resources"] {
            let found = wrong(&format!(r#"{{"spec":{{"{list}":[{}]}}}}"#, vec!["{}"; 5000].join(",")));
            assert!((MAX_ERRORS + 1..MAX_ERRORS + 10).contains(&found), "{list}: {found}");
        }
        let references = vec!["{}"; 5000].join(",");
        let found =
            wrong(&format!(r#"{{"spec":{{"extensions":[{{"kind":"W","resources":[{references}]}}]}}}}"#));
        assert!((MAX_ERRORS + 1..MAX_ERRORS + 10).contains(&found), "{found}");
    }

    #[test]
    fn counts_its_cells() {
        let object =
            read(r#"{"spec":{"gardener":[{"name":"a"},{"name":"b"}],"extensions":[{"kind":"Worker"}]}}"#);
        assert_eq!(
            (KIND_INFO.cells)(&object, 2048),
            [Cell::Integer(2), Cell::Integer(1), Cell::Text("2Ki".into()), Cell::Integer(0)]
        );
    }
}
