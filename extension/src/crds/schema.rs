//! Structural schemas, as short functions.

use serde_json::{Value, json};

pub(super) fn string() -> Value {
    json!({"type": "string"})
}

pub(super) fn boolean() -> Value {
    json!({"type": "boolean"})
}

pub(super) fn int32() -> Value {
    json!({"type": "integer", "format": "int32"})
}

pub(super) fn int64() -> Value {
    json!({"type": "integer", "format": "int64"})
}

pub(super) fn time() -> Value {
    json!({"type": "string", "format": "date-time"})
}

pub(super) fn int_or_string() -> Value {
    json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]})
}

/// An object of which nothing is pruned.
pub(super) fn raw() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Any JSON, of which nothing is pruned.
pub(super) fn any() -> Value {
    json!({"x-kubernetes-preserve-unknown-fields": true})
}

pub(super) fn list(items: Value) -> Value {
    json!({"type": "array", "items": items})
}

pub(super) fn strings() -> Value {
    list(string())
}

pub(super) fn map(values: Value) -> Value {
    json!({"type": "object", "additionalProperties": values})
}

pub(super) fn object(properties: Value, required: &[&str]) -> Value {
    let mut schema = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// Reference to a Secret by namespace and name.
pub(super) fn secret_ref() -> Value {
    let mut schema = object(json!({"name": string(), "namespace": string()}), &[]);
    schema["x-kubernetes-map-type"] = "atomic".into();
    schema
}

/// A spec with what all kinds have.
pub(super) fn spec(mut own: Value) -> Value {
    own["type"] = string();
    own["class"] = json!({
        "type": "string",
        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "Value is immutable"}],
    });
    own["providerConfig"] = raw();
    own
}

/// A status with what all kinds have.
pub(super) fn status(mut own: Value) -> Value {
    own["providerStatus"] = raw();
    own["state"] = any();
    own["observedGeneration"] = int64();
    own["conditions"] = list(object(
        json!({
            "type": string(), "status": string(), "reason": string(), "message": string(), "codes": strings(),
            "lastTransitionTime": time(), "lastUpdateTime": time(),
        }),
        &["lastTransitionTime", "lastUpdateTime", "message", "reason", "status", "type"],
    ));
    own["lastError"] = object(
        json!({"description": string(), "taskID": string(), "codes": strings(), "lastUpdateTime": time()}),
        &["description"],
    );
    own["lastOperation"] = object(
        json!({
            "description": string(), "lastUpdateTime": time(), "progress": int32(), "state": string(), "type": string(),
        }),
        &["description", "lastUpdateTime", "progress", "state", "type"],
    );
    let mut reference =
        object(json!({"apiVersion": string(), "kind": string(), "name": string()}), &["kind", "name"]);
    reference["x-kubernetes-map-type"] = "atomic".into();
    own["resources"] =
        list(object(json!({"name": string(), "resourceRef": reference}), &["name", "resourceRef"]));
    own
}
