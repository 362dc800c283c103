//! Brings JSON into the form of a schema: declared parts become a tree, opaque parts stay text, and everything that
//! does not fit is found in one pass.

use std::fmt;

use bytes::Bytes;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{
    findings::{Findings, Path},
    members::ObjectReader,
    node::{Key, Node},
    raw::Raw,
};
use crate::schema::{Schema, Shape};

/// The text is not JSON.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// With line and column, and never with payload.
    #[error("invalid JSON: {0}")]
    Syntax(String),
    /// See [`super::raw::MAX_DEPTH`].
    #[error(transparent)]
    TooDeep(#[from] super::raw::TooDeep),
}

/// Reads a whole document.
///
/// # Errors
/// When the bytes are not one JSON value in UTF-8. What merely does not fit the schema goes to `findings`.
pub fn decode(bytes: &Bytes, schema: &'static Schema, findings: &mut Findings) -> Result<Node, Error> {
    read(bytes, schema, &mut Path::default(), findings)
}

/// Reads a whole document without looking into it.
///
/// # Errors
/// As [`decode`].
pub fn decode_opaque(bytes: &Bytes) -> Result<Raw, Error> {
    static OPAQUE: Schema = Schema::of("", Shape::Opaque);
    Ok(decode(bytes, &OPAQUE, &mut Findings::default())?.to_raw())
}

/// Brings a tree into the form of a schema, after a patch has opened or replaced parts of it. Parts that are already in
/// form are not read again.
///
/// # Errors
/// As [`decode`].
pub fn conform(node: Node, schema: &'static Schema, findings: &mut Findings) -> Result<Node, Error> {
    conform_at(node, schema, &mut Path::default(), findings)
}

fn conform_at(
    node: Node,
    schema: &'static Schema,
    path: &mut Path,
    findings: &mut Findings,
) -> Result<Node, Error> {
    match (node, &schema.shape) {
        (node, Shape::Opaque) => Ok(Node::Raw(node.to_raw())),
        (Node::Raw(raw), _) => read(raw.bytes(), schema, path, findings),
        (Node::Object(members), Shape::Object(_) | Shape::AtomicObject(_) | Shape::Map(_)) => {
            let mut object = ObjectReader::new(schema);
            for (key, value) in members {
                let Some(inner) = object.admit(key.text(), path, findings) else { continue };
                let value = path.within_field(key.text(), |path| conform_at(value, inner, path, findings))?;
                object.put(key, value, inner);
            }
            Ok(object.finish())
        }
        (Node::Array(items), Shape::List(inner, _)) => {
            let each = |(at, item)| path.within_item(at, |path| conform_at(item, inner, path, findings));
            Ok(Node::Array(items.into_iter().enumerate().map(each).collect::<Result<_, _>>()?))
        }
        (node @ Node::String(_), Shape::String(_) | Shape::Choice(_))
        | (node @ Node::Integer(_), Shape::Integer)
        | (node @ Node::Bool(_), Shape::Boolean) => Ok(node),
        (node, _) => read(node.to_raw().bytes(), schema, path, findings),
    }
}

fn read(
    bytes: &Bytes,
    schema: &'static Schema,
    path: &mut Path,
    findings: &mut Findings,
) -> Result<Node, Error> {
    let text = std::str::from_utf8(bytes).map_err(|e| Error::Syntax(format!("invalid UTF-8: {e}")))?;
    let mut parser = serde_json::Deserializer::from_str(text);
    let mut too_deep = None;
    let reader = Reader { schema, source: bytes, path, findings, too_deep: &mut too_deep };
    let node = reader.deserialize(&mut parser).and_then(|node| parser.end().map(|()| node));
    match too_deep {
        Some(error) => Err(error.into()),
        None => node.map_err(|e| Error::Syntax(redact(&e))),
    }
}

/// The parser's own words may quote a value; its category and place are enough.
fn redact(error: &serde_json::Error) -> String {
    let place = format!("at line {} column {}", error.line(), error.column());
    let text = error.to_string();
    let syntax =
        matches!(error.classify(), serde_json::error::Category::Syntax | serde_json::error::Category::Eof);
    if syntax { text } else { format!("unreadable value {place}") }
}

struct Reader<'a> {
    schema: &'static Schema,
    source: &'a Bytes,
    path: &'a mut Path,
    findings: &'a mut Findings,
    too_deep: &'a mut Option<super::raw::TooDeep>,
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        if !matches!(self.schema.shape, Shape::Opaque) {
            return deserializer.deserialize_any(self);
        }
        let text: &'de RawValue = serde::Deserialize::deserialize(deserializer)?;
        // The deserializer borrows from `source`, so this is a slice of it and not a copy.
        match Raw::from_valid(self.source.slice_ref(text.get().as_bytes())) {
            Ok(raw) => Ok(Node::Raw(raw)),
            Err(error) => {
                *self.too_deep = Some(error);
                Ok(Node::Raw(Raw::null()))
            }
        }
    }
}

impl Reader<'_> {
    fn inner(&mut self, schema: &'static Schema) -> Reader<'_> {
        Reader {
            schema,
            source: self.source,
            path: self.path,
            findings: self.findings,
            too_deep: self.too_deep,
        }
    }

    fn mismatch<E>(self, got: &str) -> Result<Node, E> {
        let (path, expected) = (self.path.whole(), self.schema.expected());
        self.findings.mismatch(|| format!("{path}: expected {expected}, got {got}"));
        Ok(Node::Raw(Raw::null()))
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.schema.expected())
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        match self.schema.shape {
            Shape::Boolean => Ok(Node::Bool(value)),
            _ => self.mismatch("a boolean"),
        }
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        match self.schema.shape {
            Shape::Integer => Ok(Node::Integer(value)),
            _ => self.mismatch("a number"),
        }
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        match (i64::try_from(value), &self.schema.shape) {
            (Ok(value), Shape::Integer) => Ok(Node::Integer(value)),
            _ => self.mismatch("a number"),
        }
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        // 3.0 is an integer to the JSON readers of this field.
        let whole = value.fract() == 0.0 && value.abs() < 9e15;
        match self.schema.shape {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "checked to be whole and within the exact range"
            )]
            Shape::Integer if whole => Ok(Node::Integer(value as i64)),
            _ => self.mismatch("a number"),
        }
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        match self.schema.shape {
            Shape::String(_) | Shape::Choice(_) => Ok(Node::String(value.to_owned())),
            _ => self.mismatch("a string"),
        }
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        // As in Go, a null stands for an absent value; the caller drops it.
        Ok(Node::Raw(Raw::null()))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Node, A::Error> {
        let Shape::List(inner, _) = &self.schema.shape else {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            return self.mismatch("an array");
        };
        let mut items = Vec::new();
        loop {
            let outside = self.path.enter_item(items.len());
            let item = seq.next_element_seed(self.inner(inner))?;
            self.path.leave_to(outside);
            match item {
                Some(item) => items.push(item),
                None => {
                    items.shrink_to_fit();
                    return Ok(Node::Array(items));
                }
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Node, A::Error> {
        if !matches!(self.schema.shape, Shape::Object(_) | Shape::AtomicObject(_) | Shape::Map(_)) {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return self.mismatch("an object");
        }
        let mut object = ObjectReader::new(self.schema);
        while let Some(key) = map.next_key::<String>()? {
            let Some(inner) = object.admit(&key, self.path, self.findings) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let outside = self.path.enter_field(&key);
            let value = map.next_value_seed(self.inner(inner))?;
            self.path.leave_to(outside);
            object.put(Key::from(key), value, inner);
        }
        Ok(object.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Field, ListType};

    static TEXT: Schema = Schema::string("");
    static NUMBER: Schema = Schema::of("", Shape::Integer);
    static ANY: Schema = Schema::of("", Shape::Opaque);
    static ITEM: Schema =
        Schema::of("", Shape::Object(&[Field::required("name", &TEXT), Field::optional("state", &ANY)]));
    static ITEMS: Schema = Schema::of("", Shape::List(&ITEM, ListType::Map(&["name"])));
    static LABELS: Schema = Schema::of("", Shape::Map(&TEXT));
    static ROOT: Schema = Schema::of(
        "",
        Shape::Object(&[
            Field::optional("items", &ITEMS),
            Field::optional("count", &NUMBER),
            Field::optional("labels", &LABELS),
        ]),
    );

    fn read(text: &str) -> (String, Findings) {
        let mut findings = Findings::default();
        let node = decode(&Bytes::copy_from_slice(text.as_bytes()), &ROOT, &mut findings).expect("JSON");
        (String::from_utf8(node.to_raw().bytes().to_vec()).expect("UTF-8"), findings)
    }

    #[test]
    fn keeps_opaque_parts_token_for_token() {
        let text = r#"{"items":[{"name":"a","state":{"x":1.50,"x":1E+2,"\u0061":"\/"}}],"count":3}"#;
        assert_eq!(read(text), (text.to_owned(), Findings::default()));
    }

    #[test]
    fn finds_everything_at_once() {
        let (kept, findings) = read(
            r#"{"items":[{"name":1,"x":{}},{"name":"b","name":"c"}],"count":"no","labels":{"a":"1","a":"2"},"y":1}"#,
        );
        assert_eq!(kept, r#"{"items":[{},{"name":"c"}],"labels":{"a":"2"}}"#);
        assert_eq!(
            findings.strict,
            [
                r#"unknown field "items[0].x""#,
                r#"duplicate field "items[1].name""#,
                r#"duplicate field "labels.a""#,
                r#"unknown field "y""#,
            ]
        );
        assert_eq!(
            findings.mismatches,
            ["items[0].name: expected a string, got a number", "count: expected an integer, got a string"]
        );
    }

    #[test]
    fn null_means_absent_except_in_opaque_parts() {
        assert_eq!(
            read(r#"{"count":null,"labels":null,"items":[{"name":"a","state":null}]}"#).0,
            r#"{"items":[{"name":"a","state":null}]}"#
        );
    }

    #[test]
    fn refuses_what_is_not_json() {
        for text in ["", "{", "{}{}", "[1,]", "{\"a\":nul}", "\u{feff}{}"] {
            let result = decode(&Bytes::copy_from_slice(text.as_bytes()), &ROOT, &mut Findings::default());
            assert!(matches!(result, Err(Error::Syntax(_))), "{text:?} was accepted");
        }
        let invalid = Bytes::from_static(b"{\"items\":[{\"name\":\"\xff\"}]}");
        assert!(decode(&invalid, &ROOT, &mut Findings::default()).is_err());
    }

    #[test]
    fn conforms_what_a_patch_has_opened() {
        let text = r#"{"items":[{"name":"a","state":{"x":[1.0,{"k":1e0}]}}]}"#;
        let mut node = Node::Raw(Raw::from_valid(Bytes::from_static(text.as_bytes())).expect("bearable"));
        node.open();
        node.member_mut("items").expect("items").open();
        let Some(Node::Array(items)) = node.member_mut("items") else { panic!("an array") };
        items[0].open();
        items[0].member_mut("state").expect("state").open();
        let mut findings = Findings::default();
        let conformed = conform(node, &ROOT, &mut findings).expect("conforms");
        assert_eq!(findings, Findings::default());
        assert_eq!(conformed.to_raw().bytes(), text.as_bytes());
        assert!(matches!(
            conformed.member("items").expect("items").items()[0].member("state"),
            Some(Node::Raw(_))
        ));
    }
}
