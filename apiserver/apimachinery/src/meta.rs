//! `metav1.ObjectMeta`: its shape, its typed form, its validation.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    field::{FieldError, is_enough},
    schema::{Field, ListType, Schema, Shape},
    validation,
};

/// Keys and values of all annotations of an object, in bytes.
pub const MAX_ANNOTATIONS: usize = 256 * 1024;

static TEXT: Schema = Schema::string("");
static UID: Schema = Schema::string("UID of the referent.");
static TEXTS: Schema = Schema::of("Key value pairs.", Shape::Map(&TEXT));
static INTEGER: Schema = Schema::of("A number.", Shape::Integer);
static BOOLEAN: Schema = Schema::of("A boolean.", Shape::Boolean);
static TIME: Schema = Schema {
    name: Some("io.k8s.apimachinery.pkg.apis.meta.v1.Time"),
    description: "A time in RFC 3339, in UTC and whole seconds.",
    shape: Shape::String(Some("date-time")),
};
static NAMES: Schema = Schema::of(
    "Identifiers of components that have to act before the object is removed from storage.",
    Shape::List(&TEXT, ListType::Set),
);
static NAME: Schema = Schema::string("Name, unique within a namespace and resource. Cannot be updated.");
static GENERATE_NAME: Schema =
    Schema::string("Prefix from which the server makes a unique name if name is not set.");
static NAMESPACE: Schema =
    Schema::string("The space within which each name must be unique. Cannot be updated.");
static SELF_LINK: Schema = Schema::string("No longer populated by the system.");
static OWN_UID: Schema = Schema::string("Unique in time and space; set by the server on creation.");
static RESOURCE_VERSION: Schema = Schema::string(
    "Opaque version of the object for optimistic concurrency, change detection and watches; set by the server.",
);
static GENERATION: Schema = Schema::of(
    "A sequence number of the desired state; set by the server when the spec changes.",
    Shape::Integer,
);
static LABELS: Schema = Schema::of("Keys and values to organise and select objects.", Shape::Map(&TEXT));
static ANNOTATIONS: Schema = Schema::of("Arbitrary metadata set by tools; not queryable.", Shape::Map(&TEXT));
static OWNERS: Schema = Schema::of(
    "Objects this object depends on; when all of them are gone it is garbage collected.",
    Shape::List(&OWNER, ListType::Map(&["uid"])),
);
static OWNER: Schema = Schema {
    name: Some("io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference"),
    description: "An owner of an object.",
    shape: Shape::AtomicObject(&[
        Field::required("apiVersion", &TEXT),
        Field::optional("blockOwnerDeletion", &BOOLEAN),
        Field::optional("controller", &BOOLEAN),
        Field::required("kind", &TEXT),
        Field::required("name", &TEXT),
        Field::required("uid", &UID),
    ]),
};
static FIELDS_V1: Schema = Schema {
    name: Some("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1"),
    description: "A set of fields as a trie in JSON.",
    shape: Shape::Opaque,
};
static MANAGED_FIELDS_ENTRY: Schema = Schema {
    name: Some("io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry"),
    description: "A workflow's set of fields.",
    shape: Shape::Object(&[
        Field::optional("apiVersion", &TEXT),
        Field::optional("fieldsType", &TEXT),
        Field::optional("fieldsV1", &FIELDS_V1),
        Field::optional("manager", &TEXT),
        Field::optional("operation", &TEXT),
        Field::optional("subresource", &TEXT),
        Field::optional("time", &TIME),
    ]),
};
static MANAGED_FIELDS: Schema = Schema::of(
    "Which workflow manages which fields; for server-side apply.",
    Shape::List(&MANAGED_FIELDS_ENTRY, ListType::Atomic),
);

/// The shape of `metadata`.
pub static OBJECT_META: Schema = Schema {
    name: Some("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"),
    description: "Metadata that all persisted objects have.",
    shape: Shape::Object(&[
        Field::optional("annotations", &ANNOTATIONS),
        Field::optional("creationTimestamp", &TIME),
        Field::optional("deletionGracePeriodSeconds", &INTEGER),
        Field::optional("deletionTimestamp", &TIME),
        Field::optional("finalizers", &NAMES),
        Field::optional("generateName", &GENERATE_NAME),
        Field::optional("generation", &GENERATION),
        Field::optional("labels", &LABELS),
        Field::optional("managedFields", &MANAGED_FIELDS),
        Field::optional("name", &NAME),
        Field::optional("namespace", &NAMESPACE),
        Field::optional("ownerReferences", &OWNERS),
        Field::optional("resourceVersion", &RESOURCE_VERSION),
        Field::optional("selfLink", &SELF_LINK),
        Field::optional("uid", &OWN_UID),
    ]),
};

/// Whether this is the shape of `metadata.managedFields`, which is kept as text and worked with as sets.
#[must_use]
pub fn is_managed_fields(schema: &'static Schema) -> bool {
    std::ptr::eq(schema, &raw const MANAGED_FIELDS)
}

/// A string map that is never `null` in JSON; kept for schemas of kinds.
pub static STRING_MAP: &Schema = &TEXTS;

/// The typed form of `metadata`. Everything but `resource_version` rests in the store as it is serialised here.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    /// Object name; empty where the client sent none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Prefix of a name to be made by the server.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub generate_name: String,
    /// Empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Set by the server on creation.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// As a client sent it; never stored, since the store knows it.
    #[serde(skip_serializing)]
    pub resource_version: String,
    /// Raised by the server when the spec changes or deletion begins.
    #[serde(skip_serializing_if = "is_zero")]
    pub generation: i64,
    /// RFC 3339, UTC, whole seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<String>,
    /// Set when deletion waits for finalizers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<String>,
    /// Always 0 where set: the kinds served here are not deleted gracefully.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_grace_period_seconds: Option<i64>,
    /// Labels by key; label selectors match them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations by key, for tools; selectors do not match them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// For the garbage collector.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<OwnerReference>,
    /// Deletion waits until this is empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// Kept as the client sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_fields: Option<Box<RawValue>>,
}

/// An owner of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    /// API version of the owner.
    pub api_version: String,
    /// Kind of the owner.
    pub kind: String,
    /// Name of the owner.
    pub name: String,
    /// UID of the owner.
    pub uid: String,
    /// Whether this is the managing controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    /// Whether foreground deletion of the owner waits for this object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

impl ObjectMeta {
    /// Whether deletion has begun.
    #[must_use]
    pub fn deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// What is wrong with names, labels, annotations, owners and finalizers: all of it, or the first
    /// [`MAX_ERRORS`](crate::field::MAX_ERRORS) and a few.
    #[must_use]
    pub fn validate(&self, namespaced: bool, name_rule: validation::Rule) -> Vec<FieldError> {
        let mut errors = Vec::new();
        self.validate_identity(namespaced, name_rule, &mut errors);
        self.validate_maps(&mut errors);
        self.validate_owners(&mut errors);
        for finalizer in &self.finalizers {
            if is_enough(&errors) {
                break;
            }
            let error = |why| FieldError::invalid("metadata.finalizers", finalizer, why);
            errors.extend(validation::qualified(finalizer).err().map(error));
        }
        errors
    }

    fn validate_maps(&self, errors: &mut Vec<FieldError>) {
        for (key, value) in &self.labels {
            if is_enough(errors) {
                return;
            }
            let field = "metadata.labels";
            errors.extend(validation::qualified(key).err().map(|why| FieldError::invalid(field, key, why)));
            errors.extend(
                validation::label_value(value).err().map(|why| FieldError::invalid(field, value, why)),
            );
        }
        for key in self.annotations.keys() {
            if is_enough(errors) {
                return;
            }
            let error = |why| FieldError::invalid("metadata.annotations", key, why);
            errors.extend(validation::qualified(&key.to_lowercase()).err().map(error));
        }
        let total: usize = self.annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
        if total > MAX_ANNOTATIONS {
            errors.push(FieldError::too_long("metadata.annotations", MAX_ANNOTATIONS));
        }
    }

    fn validate_identity(&self, namespaced: bool, name_rule: validation::Rule, errors: &mut Vec<FieldError>) {
        if self.name.is_empty() {
            errors.push(FieldError::required("metadata.name", "name or generateName is required"));
        } else if let Err(why) = name_rule(&self.name) {
            errors.push(FieldError::invalid("metadata.name", &self.name, why));
        }
        if namespaced {
            if let Err(why) = validation::dns_label(&self.namespace) {
                errors.push(FieldError::invalid("metadata.namespace", &self.namespace, why));
            }
        } else if !self.namespace.is_empty() {
            errors.push(FieldError::forbidden("metadata.namespace", "not allowed on this type"));
        }
    }

    fn validate_owners(&self, errors: &mut Vec<FieldError>) {
        for owner in &self.owner_references {
            if is_enough(errors) {
                return;
            }
            let parts = [
                ("apiVersion", &owner.api_version),
                ("kind", &owner.kind),
                ("name", &owner.name),
                ("uid", &owner.uid),
            ];
            for (part, value) in parts {
                if value.is_empty() {
                    let field = format!("metadata.ownerReferences.{part}");
                    errors.push(FieldError::invalid(field, value, "must not be empty"));
                }
            }
        }
        let controllers = self.owner_references.iter().filter(|owner| owner.controller == Some(true)).count();
        if controllers > 1 {
            let why = "Only one reference can have Controller set to true";
            errors.push(FieldError::invalid("metadata.ownerReferences", controllers, why));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta() -> ObjectMeta {
        ObjectMeta { name: "s".into(), namespace: "garden".into(), ..ObjectMeta::default() }
    }

    fn fields(meta: &ObjectMeta) -> Vec<String> {
        meta.validate(true, validation::dns_label).into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn accepts_plain_metadata() {
        assert_eq!(fields(&meta()), [""; 0]);
    }

    #[test]
    fn finds_all_that_is_wrong_at_once() {
        let mut wrong = meta();
        wrong.name = "Upper_Case".into();
        wrong.labels.insert("a b".into(), "c d".into());
        wrong.annotations.insert("x".into(), "y".repeat(MAX_ANNOTATIONS));
        wrong.finalizers.push("no/two/slashes".into());
        let owner = OwnerReference { controller: Some(true), ..OwnerReference::default() };
        wrong.owner_references = vec![owner.clone(), owner];
        let found = fields(&wrong);
        for field in [
            "metadata.name",
            "metadata.labels",
            "metadata.annotations",
            "metadata.finalizers",
            "metadata.ownerReferences.uid",
            "metadata.ownerReferences",
        ] {
            assert!(found.iter().any(|f| f == field), "{field} is not among {found:?}");
        }
    }

    #[test]
    fn resource_version_is_never_stored() {
        let read: ObjectMeta =
            serde_json::from_str(r#"{"name":"s","resourceVersion":"7"}"#).expect("metadata");
        assert_eq!(read.resource_version, "7");
        assert_eq!(serde_json::to_string(&read).expect("JSON"), r#"{"name":"s"}"#);
    }
}
