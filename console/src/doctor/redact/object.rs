//! What is secret in objects.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use repot_certs::inspect::inspect;
use serde_json::{Map, Value};

use super::patterns::{REMOVED, is_telling};
use crate::doctor::certificate_blocks;

/// What kubectl keeps of an object that was applied: all of it, once more.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Objects are not deeper than this. What is deeper goes.
const DEEPEST: usize = 100;

/// Removes what is secret from an object, whatever its kind: data of Secrets, fields and variables with telling names, and what is
/// secret in any text. `managedFields` and the annotation of `kubectl apply` go, too. Bundles of authorities become a summary.
pub fn object(value: &mut Value) {
    walk(value, 0);
}

fn walk(value: &mut Value, depth: usize) {
    if depth > DEEPEST {
        *value = Value::Null;
        return;
    }
    match value {
        Value::Object(fields) => walk_fields(fields, depth),
        Value::Array(items) => walk_items(items, depth),
        Value::String(text) => *text = super::text(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn walk_fields(fields: &mut Map<String, Value>, depth: usize) {
    fields.remove("managedFields");
    fields.remove(LAST_APPLIED);
    if fields.get("kind").and_then(Value::as_str) == Some("Secret") {
        fields.remove("data");
        fields.remove("stringData");
    }
    // A variable of a container, or a header of a probe.
    if fields.get("name").and_then(Value::as_str).is_some_and(is_telling)
        && let Some(value) = fields.get_mut("value")
    {
        *value = REMOVED.into();
    }
    for (name, value) in fields.iter_mut() {
        match value {
            Value::String(text) if name == "caBundle" => *text = summary(text),
            Value::String(_) | Value::Number(_) if is_telling(name) => *value = REMOVED.into(),
            Value::Array(items) if is_telling(name) => {
                for item in items.iter_mut().filter(|item| item.is_string()) {
                    *item = REMOVED.into();
                }
                walk(value, depth + 1);
            }
            _ => walk(value, depth + 1),
        }
    }
    // A key of a map may be a secret, too.
    let changed: Vec<String> = fields.keys().filter(|name| super::text(name) != **name).cloned().collect();
    for name in changed {
        if let Some(value) = fields.remove(&name) {
            fields.insert(super::text(&name), value);
        }
    }
}

/// Also flags of a command line, whose value is the next item.
fn walk_items(items: &mut [Value], depth: usize) {
    let mut is_value = false;
    for item in items {
        let flag = item.as_str().filter(|text| text.starts_with('-') && !text.contains('='));
        let next = flag.is_some_and(is_telling);
        if is_value && item.as_str().is_some_and(|text| !text.starts_with("--")) {
            *item = REMOVED.into();
        } else {
            walk(item, depth + 1);
        }
        is_value = next;
    }
}

/// When the certificates of a bundle end, in place of the bundle.
fn summary(encoded: &str) -> String {
    let compact: String = encoded.split_whitespace().collect();
    let pem =
        STANDARD.decode(compact).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    let ends = certificate_blocks(&pem).filter_map(|block| {
        let until = inspect(block)?.validity.until.unix_timestamp();
        Some(jiff::Timestamp::from_second(until).ok()?.to_string())
    });
    let ends: Vec<String> = ends.take(50).collect();
    match ends.as_slice() {
        [] => format!("{} characters without a certificate that can be read", encoded.len()),
        ends => format!("{} certificates, valid until {}", ends.len(), ends.join(", ")),
    }
}
