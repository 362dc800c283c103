//! Conditions of a status, as `metav1.Condition` has them: one for each type, each with one writer.

use repot_apimachinery::{
    field::{FieldError, is_enough},
    json::Node,
    schema::{Field, ListType, Schema, Shape},
    validation,
};

static TYPE: Schema = Schema::string("Type of the condition in CamelCase, such as Ready or Progressing.");
static STATUS: Schema = Schema::choice("Whether the condition holds.", &["True", "False", "Unknown"]);
static OBSERVED: Schema = Schema::of(
    "The metadata.generation that the condition was set for; behind it, the condition is out of date.",
    Shape::Integer,
);
static TRANSITION: Schema =
    Schema::of("When status last changed from one value to another.", Shape::String(Some("date-time")));
static REASON: Schema = Schema::string("Why status has its value: one word in CamelCase, for programs.");
static MESSAGE: Schema =
    Schema::string("The same for people, with what to do next where something is to be done.");

static CONDITION: Schema = Schema {
    name: Some("io.k8s.apimachinery.pkg.apis.meta.v1.Condition"),
    description: "One aspect of the current state of an object.",
    shape: Shape::Object(&[
        Field::required("lastTransitionTime", &TRANSITION),
        // Upstream calls it required and lets it be empty.
        Field::optional("message", &MESSAGE),
        Field::optional("observedGeneration", &OBSERVED),
        Field::required("reason", &REASON),
        Field::required("status", &STATUS),
        Field::required("type", &TYPE),
    ]),
};

/// The shape of a list of conditions.
pub(crate) const LIST: Shape = Shape::List(&CONDITION, ListType::Map(&["type"]));

const MAX_REASON: usize = 1024;
const MAX_MESSAGE: usize = 32 * 1024;

/// What the shape does not tell: names of types, words of reasons, lengths.
pub(crate) fn check(status: &Node, errors: &mut Vec<FieldError>) {
    let conditions = status.member("conditions").map_or(&[][..], Node::items);
    for (at, condition) in conditions.iter().enumerate() {
        if is_enough(errors) {
            return;
        }
        let path = |field: &str| format!("status.conditions[{at}].{field}");
        let text = |field: &str| condition.text(field).filter(|text| !text.is_empty());
        if let Some(kind) = text("type") {
            errors.extend(
                validation::qualified(kind).err().map(|why| FieldError::invalid(path("type"), kind, why)),
            );
        }
        check_reason(condition, &path("reason"), errors);
        for (field, limit) in [("reason", MAX_REASON), ("message", MAX_MESSAGE)] {
            if text(field).is_some_and(|text| text.len() > limit) {
                errors.push(FieldError::too_long(path(field), limit));
            }
        }
    }
}

/// The reason of an object, if it has one, is a word.
pub(crate) fn check_reason(object: &Node, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(reason) = object.text("reason").filter(|reason| !reason.is_empty() && !is_reason(reason)) {
        let why = "must begin with a letter, end with a letter, digit or '_', and hold nothing but letters, digits, '_', ',' and ':'";
        errors.push(FieldError::invalid(path, reason, why));
    }
}

fn is_reason(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b',' | b':');
    let bytes = text.as_bytes();
    let ends = bytes.last().is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    bytes.first().is_some_and(u8::is_ascii_alphabetic) && ends && text.bytes().all(inner)
}

/// `status` and `reason` of the condition of this type.
pub(crate) fn find<'a>(object: &'a Node, kind: &str) -> Option<(&'a str, &'a str)> {
    let conditions = object.member("status")?.member("conditions")?.items();
    let found = conditions.iter().find(|condition| condition.text("type") == Some(kind))?;
    Some((found.text("status")?, found.text("reason").unwrap_or_default()))
}

/// Why something is as it is, as a condition and a step tell it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// One word in CamelCase, for programs.
    pub reason: &'static str,
    /// The same for people.
    pub message: String,
}

impl Reason {
    /// A reason and its message.
    #[must_use]
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_reasons_from_sentences() {
        for good in ["A", "StoreUnreachable", "quorum_lost", "Step:3"] {
            assert!(is_reason(good), "{good}");
        }
        for bad in ["", "two words", "1st", "End:", "dash-ed", "Ünicode"] {
            assert!(!is_reason(bad), "{bad}");
        }
    }
}
