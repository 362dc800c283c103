//! Reading objects as JSON values of any shape: what is missing or has another type counts as absent.

use serde_json::Value;

/// The value of an annotation; empty counts as absent, so that a Shoot can be freed of one by setting it to nothing.
#[must_use]
pub fn annotation_of<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    raw_annotation_of(object, key).filter(|value| !value.is_empty())
}

/// The value of an annotation as it is, for those of others that count by their presence.
#[must_use]
pub fn raw_annotation_of<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

/// Whether an object is on its way out.
#[must_use]
pub fn is_ending(object: &Value) -> bool {
    at(object, "/metadata/deletionTimestamp").is_some_and(|time| !time.is_null())
}

/// What is at a path of members, such as `/spec/seedName`. Unlike a JSON pointer it knows no escapes and enters no lists.
#[must_use]
pub fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('/').skip(1).try_fold(object, |value, member| value.get(member))
}

/// A string at a path; empty counts as absent, as everywhere in Kubernetes.
#[must_use]
pub fn text_at<'a>(object: &'a Value, path: &str) -> Option<&'a str> {
    at(object, path)?.as_str().filter(|text| !text.is_empty())
}

/// Items of a list at a path; none where there is no list.
#[must_use]
pub fn items_at<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A boolean as Go reads it from text.
#[must_use]
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Whether an annotation says yes.
#[must_use]
pub fn says_yes(object: &Value, annotation: &str) -> bool {
    annotation_of(object, annotation).and_then(parse_bool) == Some(true)
}
