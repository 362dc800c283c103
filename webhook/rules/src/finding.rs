//! What rules answer: findings, and changes to an object.

use repot_apimachinery::value::at;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// What a finding means for the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The change is refused.
    Refuse,
    /// The change goes through, and whoever makes it is told.
    Warn,
}

/// Something that a rule has to say about a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule, by its name in the table; set when the rule has been asked.
    pub rule: &'static str,
    /// Where in the object, such as `spec.seedName` or `metadata.annotations[key]`.
    pub field: String,
    /// What it means for the change.
    pub verdict: Verdict,
    /// Why the rule refuses or warns, in words.
    pub reason: String,
    /// What the user can do about it, in words.
    pub advice: String,
}

impl Finding {
    /// The change cannot be made.
    pub fn refuse(field: impl Into<String>, reason: impl Into<String>, advice: impl Into<String>) -> Self {
        let (field, reason, advice) = (field.into(), reason.into(), advice.into());
        Self { rule: "", field, verdict: Verdict::Refuse, reason, advice }
    }

    /// The change can be made, but mind this.
    pub fn warn(field: impl Into<String>, reason: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { verdict: Verdict::Warn, ..Self::refuse(field, reason, advice) }
    }

    /// Reason and advice in one sentence.
    #[must_use]
    pub fn message(&self) -> String {
        format!("{}; {}", self.reason, self.advice)
    }
}

/// The path of an annotation, as messages have it.
#[must_use]
pub fn annotation_path(key: &str) -> String {
    format!("metadata.annotations[{key}]")
}

/// One operation of a JSON Patch (RFC 6902).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum PatchOp {
    /// Sets a member or inserts an item.
    Add {
        /// JSON pointer.
        path: String,
        /// What is put there.
        value: Value,
    },
    /// Takes a member away.
    Remove {
        /// JSON pointer.
        path: String,
    },
}

/// The changes that bring the entries of `metadata.<map>` to the given values (none: away). Empty where they are so already.
#[must_use]
pub fn set_entries(object: &Value, map: &str, entries: &[(String, Option<String>)]) -> Vec<PatchOp> {
    let path = format!("/metadata/{map}");
    let Some(present) = at(object, &path).and_then(Value::as_object) else {
        let wanted = entries.iter().filter_map(|(key, value)| Some((key.clone(), json!(value.as_ref()?))));
        let wanted: Map<String, Value> = wanted.collect();
        // Without metadata there is nothing to hang them on; the API server would not let that through.
        let fits = !wanted.is_empty() && object.get("metadata").is_some_and(Value::is_object);
        return if fits { vec![PatchOp::Add { path, value: wanted.into() }] } else { Vec::new() };
    };
    let op = |(key, value): &(String, Option<String>)| {
        let path = format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
        match (present.get(key), value) {
            (Some(now), Some(value)) if now == value => None,
            (_, Some(value)) => Some(PatchOp::Add { path, value: json!(value) }),
            (Some(_), None) => Some(PatchOp::Remove { path }),
            (None, None) => None,
        }
    };
    entries.iter().filter_map(op).collect()
}

/// Makes the changes. An operation whose place is not there is left out: rules look before they write.
pub fn apply(object: &mut Value, patch: &[PatchOp]) {
    for op in patch {
        let (PatchOp::Add { path, .. } | PatchOp::Remove { path }) = op;
        let Some((parent, key)) = path.rsplit_once('/') else { continue };
        let key = key.replace("~1", "/").replace("~0", "~");
        match (object.pointer_mut(parent), op) {
            (Some(Value::Object(members)), PatchOp::Add { value, .. }) => {
                members.insert(key, value.clone());
            }
            (Some(Value::Object(members)), PatchOp::Remove { .. }) => {
                members.remove(&key);
            }
            (Some(Value::Array(items)), PatchOp::Add { value, .. }) if key == "-" => {
                items.push(value.clone())
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brings_entries_to_their_values_and_is_then_silent() {
        let entries = [("a.b/c~d".to_owned(), Some("1".to_owned())), ("gone".to_owned(), None)];
        for mut object in [
            json!({"metadata": {}}),
            json!({"metadata": {"annotations": null}}),
            json!({"metadata": {"annotations": {"gone": "x", "kept": "y"}}}),
        ] {
            let patch = set_entries(&object, "annotations", &entries);
            apply(&mut object, &patch);
            assert_eq!(object["metadata"]["annotations"]["a.b/c~d"], "1", "{object}");
            assert!(object["metadata"]["annotations"].get("gone").is_none(), "{object}");
            assert!(set_entries(&object, "annotations", &entries).is_empty());
        }
        assert!(set_entries(&json!(7), "annotations", &entries).is_empty());
    }

    #[test]
    fn is_a_json_patch_on_the_wire() {
        let ops =
            [PatchOp::Add { path: "/a".into(), value: json!(1) }, PatchOp::Remove { path: "/b".into() }];
        let text = serde_json::to_string(&ops).expect("JSON");
        assert_eq!(text, r#"[{"op":"add","path":"/a","value":1},{"op":"remove","path":"/b"}]"#);
    }
}
