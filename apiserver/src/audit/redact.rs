//! Objects without what is secret: the payload of a kind is opaque by its schema, and what the schema does not know may be
//! payload under a wrong name. Only what it knows goes into a log.

use std::{fmt, io::Write};

use repot_apimachinery::schema::{Schema, Shape};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// What stands for a value that was taken out.
pub const MARKER: &str = "REDACTED";
/// Holds whole objects.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Members of a `Status`; an error message names fields, and never shows what is opaque.
const STATUS: &[&str] = &["status", "message", "reason", "details", "code"];
/// Members of an operation of a JSON patch; its value may be anything.
const OPERATION: &[&str] = &["op", "path", "from"];

/// Where a document comes from.
#[derive(Clone, Copy, Debug)]
pub enum Document {
    /// From a client.
    Sent(&'static Schema),
    /// From this server.
    Answered(&'static Schema),
}

/// Redacts JSON: an object of a kind, a list of such, a `Status`, or a patch of one. Nothing is kept in memory but the
/// result. `None`: it is no JSON, or longer than `most` bytes even so.
#[must_use]
pub fn redact(json: &[u8], document: Document, managed_fields: bool, most: usize) -> Option<Vec<u8>> {
    let mut out = Output { text: Vec::new(), most };
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let part = match document {
        Document::Sent(schema) => Part::Root(schema),
        Document::Answered(schema) => Part::Answer(schema),
    };
    let seed = Walk { out: &mut out, part, managed_fields };
    seed.deserialize(&mut deserializer).ok()?;
    deserializer.end().ok()?;
    Some(out.text)
}

/// What is known about a part of the document.
#[derive(Clone, Copy)]
enum Part {
    /// The document; an array is a patch.
    Root(&'static Schema),
    /// The same from this server, which may also be a `Status`.
    Answer(&'static Schema),
    /// Described.
    Of(&'static Schema),
    /// A list of whole objects.
    Items(&'static Schema),
    /// An operation of a patch.
    Operation,
    /// Known to hold nothing secret.
    Open,
    /// Not to be shown.
    Secret,
}

impl Part {
    fn member(self, key: &str) -> Self {
        match self {
            _ if key == LAST_APPLIED => Self::Secret,
            Self::Root(schema) | Self::Answer(schema) => match schema.field(key) {
                Some(field) => Self::Of(field.schema),
                None if key == "items" => Self::Items(schema),
                None if matches!(self, Self::Answer(_)) && STATUS.contains(&key) => Self::Open,
                None => Self::Secret,
            },
            Self::Of(schema) => match (&schema.shape, schema.field(key)) {
                (_, Some(field)) => Self::Of(field.schema),
                (Shape::Map(value), None) => Self::Of(value),
                _ => Self::Secret,
            },
            Self::Operation if OPERATION.contains(&key) => Self::Open,
            Self::Open => Self::Open,
            Self::Items(_) | Self::Operation | Self::Secret => Self::Secret,
        }
    }

    fn element(self) -> Self {
        match self {
            Self::Root(_) => Self::Operation,
            Self::Items(schema) => Self::Root(schema),
            Self::Of(Schema { shape: Shape::List(element, _), .. }) => Self::Of(element),
            Self::Open => Self::Open,
            Self::Answer(_) | Self::Of(_) | Self::Operation | Self::Secret => Self::Secret,
        }
    }

    fn secret(self) -> bool {
        matches!(self, Self::Secret | Self::Of(Schema { shape: Shape::Opaque, .. }))
    }

    /// Where the schema says object or list, a scalar is a mistake that may hold anything.
    fn shows_scalars(self) -> bool {
        match self {
            Self::Open => true,
            Self::Of(schema) => matches!(schema.shape, Shape::String(_) | Shape::Integer | Shape::Boolean),
            Self::Root(_) | Self::Answer(_) | Self::Items(_) | Self::Operation | Self::Secret => false,
        }
    }
}

struct Output {
    text: Vec<u8>,
    most: usize,
}

impl Output {
    fn put<E: serde::de::Error>(&mut self, text: &[u8]) -> Result<(), E> {
        if self.text.len() + text.len() > self.most {
            return Err(E::custom("too long"));
        }
        self.text.extend_from_slice(text);
        Ok(())
    }

    fn string<E: serde::de::Error>(&mut self, text: &str) -> Result<(), E> {
        let quoted = serde_json::to_vec(text).map_err(E::custom)?;
        self.put(&quoted)
    }
}

struct Walk<'a> {
    out: &'a mut Output,
    part: Part,
    managed_fields: bool,
}

impl Walk<'_> {
    fn inner(&mut self, part: Part) -> Walk<'_> {
        Walk { out: self.out, part, managed_fields: self.managed_fields }
    }

    fn scalar<E: serde::de::Error>(self, value: impl fmt::Display) -> Result<(), E> {
        if !self.part.shows_scalars() {
            return self.out.string(MARKER);
        }
        let mut text = Vec::new();
        write!(text, "{value}").map_err(E::custom)?;
        self.out.put(&text)
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.part.secret() {
            deserializer.deserialize_ignored_any(IgnoredAny)?;
            return self.out.string(MARKER);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        self.out.put(b"{")?;
        let mut first = true;
        while let Some(key) = map.next_key::<String>()? {
            if key == "managedFields" && !self.managed_fields {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let part = self.part.member(&key);
            self.out.put(if std::mem::take(&mut first) { b"" } else { b"," })?;
            // Names that nobody declared can be payload, too.
            self.out.string(if part.secret() && key.len() > 64 { MARKER } else { &key })?;
            self.out.put(b":")?;
            map.next_value_seed(self.inner(part))?;
        }
        self.out.put(b"}")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        let part = self.part.element();
        self.out.put(b"[")?;
        let mut first = true;
        loop {
            // The comma is taken back where nothing follows it.
            let before = self.out.text.len();
            self.out.put(if first { b"" } else { b"," })?;
            if seq.next_element_seed(self.inner(part))?.is_none() {
                self.out.text.truncate(before);
                break;
            }
            first = false;
        }
        self.out.put(b"]")
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        self.out.string(if self.part.shows_scalars() { value } else { MARKER })
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        self.scalar(value)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.scalar(value)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.scalar(value)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        self.scalar(value)
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        // Says that something is absent, and nothing else.
        self.out.put(b"null")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const SENT: Document = Document::Sent(repot_api::shoot_state::KIND_INFO.schema);
    const ANSWERED: Document = Document::Answered(repot_api::shoot_state::KIND_INFO.schema);

    fn redacted(document: &Value, from: Document, managed_fields: bool) -> Value {
        let text = redact(document.to_string().as_bytes(), from, managed_fields, 1 << 20).expect("JSON");
        serde_json::from_slice(&text).expect("JSON again")
    }

    fn object() -> Value {
        json!({
            "apiVersion": "core.gardener.cloud/v1alpha1", "kind": "ShootState",
            "metadata": {
                "name": "a", "generation": 7, "labels": {"state": "kept"},
                "annotations": {"x": "y", LAST_APPLIED: "{\"spec\":\"SECRET\"}"},
                "managedFields": [{"manager": "m", "operation": "Update"}],
            },
            "spec": {
                "gardener": [{"name": "ca", "type": "secret", "labels": {"l": "v"}, "data": {"ca.key": "SECRET"}}],
                "extensions": [{"kind": "Worker", "name": "w", "state": "SECRET"}],
                "dtaa": {"ca": "SECRET"},
                "resources": "SECRET",
            },
        })
    }

    #[test]
    fn payload_and_what_may_be_payload_is_taken_out() {
        let shown = redacted(&object(), SENT, true);
        assert!(!shown.to_string().contains("SECRET"), "{shown}");
        assert_eq!(shown["metadata"]["labels"], json!({"state": "kept"}));
        assert_eq!(shown["metadata"]["annotations"], json!({"x": "y", LAST_APPLIED: MARKER}));
        assert_eq!(
            shown["spec"]["gardener"],
            json!([{"name": "ca", "type": "secret", "labels": {"l": "v"}, "data": MARKER}])
        );
        assert_eq!(shown["spec"]["extensions"][0], json!({"kind": "Worker", "name": "w", "state": MARKER}));
        assert_eq!((&shown["spec"]["dtaa"], &shown["spec"]["resources"]), (&json!(MARKER), &json!(MARKER)));
        assert_eq!(shown["metadata"]["managedFields"][0]["manager"], "m");
        assert!(redacted(&object(), SENT, false)["metadata"]["managedFields"].is_null());
    }

    #[test]
    fn lists_patches_and_errors_are_redacted_as_what_they_are() {
        let list = redacted(
            &json!({"kind": "ShootStateList", "metadata": {"resourceVersion": "5"}, "items": [object()]}),
            ANSWERED,
            true,
        );
        assert!(
            !list.to_string().contains("SECRET") && list["items"][0]["metadata"]["name"] == "a",
            "{list}"
        );
        let patch = redacted(
            &json!([{"op": "add", "path": "/spec/gardener/0/data", "value": {"k": "SECRET"}}, {"op": "test"}]),
            SENT,
            true,
        );
        assert_eq!(
            patch,
            json!([{"op": "add", "path": "/spec/gardener/0/data", "value": MARKER}, {"op": "test"}])
        );
        let status = json!({"kind": "Status", "code": 404, "message": "no", "details": {"name": "a"}, "status": "Failure"});
        assert_eq!(redacted(&status, ANSWERED, true), status);
        let claimed = redacted(&json!({"kind": "Status", "message": "SECRET"}), SENT, true);
        assert_eq!(claimed["message"], MARKER);
    }

    #[test]
    fn what_is_no_json_or_too_long_is_left_out() {
        for text in ["SECRET", "{\"kind\": SECRET", "{} SECRET", ""] {
            assert_eq!(redact(text.as_bytes(), SENT, true, 1000), None, "{text}");
        }
        assert_eq!(redact(object().to_string().as_bytes(), SENT, true, 20), None);
    }
}
