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
use crate::{
    meta::is_managed_fields,
    schema::{Schema, Shape},
};

/// The text is not JSON.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// With line and column, and never with payload.
    #[error("invalid JSON: {0}")]
    Syntax(String),
    /// See [`super::raw::MAX_DEPTH`].
    #[error(transparent)]
    TooDeep(#[from] super::raw::TooDeep),
    /// See [`decode_compact`].
    #[error("what is read of the JSON takes more than {0} bytes")]
    TooMuch(usize),
}

/// Reads a whole document.
///
/// # Errors
/// When the bytes are not one JSON value in UTF-8. What merely does not fit the schema goes to `findings`.
pub fn decode(bytes: &Bytes, schema: &'static Schema, findings: &mut Findings) -> Result<Node, Error> {
    read(bytes, ReadOptions::ANY, schema, &mut Path::default(), findings)
}

/// Reads a whole document that is known to have no whitespace between its tokens, and to be no deeper than
/// [`super::raw::MAX_DEPTH`]. Gives up where the tree, and the metadata that is made of it, may take more than `most` bytes beside the
/// text: a client may send few long strings as well as many short ones.
///
/// # Errors
/// As [`decode`], and [`Error::TooMuch`].
pub fn decode_compact(
    bytes: &Bytes,
    schema: &'static Schema,
    findings: &mut Findings,
    most: usize,
) -> Result<Node, Error> {
    read(bytes, ReadOptions { compact: true, most }, schema, &mut Path::default(), findings)
}

/// What is said of a text before it is read, and how much of it is to be read.
#[derive(Clone, Copy, Debug)]
struct ReadOptions {
    /// There is no whitespace between tokens, and values are not nested too deeply.
    compact: bool,
    /// Bytes that what is read may take beside the text.
    most: usize,
}

/// What a value at a declared place, or a key of a map, takes while the tree is made, at the most, in bytes.
const VALUE: usize = 256;
/// How often a string is held: in the tree, in metadata as text and typed, and where it is unescaped.
const COPIES: usize = 4;

impl ReadOptions {
    const ANY: Self = Self { compact: false, most: usize::MAX };
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
        (Node::Raw(raw), _) => read(raw.bytes(), ReadOptions::ANY, schema, path, findings),
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
        (node, _) => read(node.to_raw().bytes(), ReadOptions::ANY, schema, path, findings),
    }
}

fn read(
    bytes: &Bytes,
    options: ReadOptions,
    schema: &'static Schema,
    path: &mut Path,
    findings: &mut Findings,
) -> Result<Node, Error> {
    let text = std::str::from_utf8(bytes).map_err(|e| Error::Syntax(format!("invalid UTF-8: {e}")))?;
    let mut parser = serde_json::Deserializer::from_str(text);
    let (mut too_deep, mut left) = (None, options.most);
    let compact = options.compact;
    let reader =
        Reader { schema, source: bytes, compact, path, findings, too_deep: &mut too_deep, left: &mut left };
    let node = reader.deserialize(&mut parser).and_then(|node| parser.end().map(|()| node));
    match (too_deep, node) {
        (Some(error), _) => Err(error.into()),
        (None, Err(_)) if left == 0 => Err(Error::TooMuch(options.most)),
        (None, node) => node.map_err(|e| Error::Syntax(redact(&e))),
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
    compact: bool,
    path: &'a mut Path,
    findings: &'a mut Findings,
    too_deep: &'a mut Option<super::raw::TooDeep>,
    /// Bytes that what comes may still take.
    left: &'a mut usize,
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(mut self, deserializer: D) -> Result<Node, D::Error> {
        self.count(0)?;
        if !matches!(self.schema.shape, Shape::Opaque) {
            return deserializer.deserialize_any(self);
        }
        let text: &'de RawValue = serde::Deserialize::deserialize(deserializer)?;
        if is_managed_fields(self.schema) {
            self.count(text.get().len())?;
        }
        // The deserializer borrows from `source`, so this is a slice of it and not a copy.
        let text = self.source.slice_ref(text.get().as_bytes());
        let raw = if self.compact { Ok(Raw::from_compact(text)) } else { Raw::from_valid(text) };
        match raw {
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
            compact: self.compact,
            path: self.path,
            findings: self.findings,
            too_deep: self.too_deep,
            left: self.left,
        }
    }

    /// Counts a value or a key, of which so many bytes are copied.
    fn count<E: serde::de::Error>(&mut self, copied: usize) -> Result<(), E> {
        let takes = copied.saturating_mul(COPIES).saturating_add(VALUE);
        let left = self.left.checked_sub(takes);
        *self.left = left.unwrap_or_default();
        // The message is not seen: nothing is left then.
        left.map(drop).ok_or_else(|| E::custom("it takes too much"))
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

    fn visit_str<E: serde::de::Error>(mut self, value: &str) -> Result<Node, E> {
        match self.schema.shape {
            Shape::String(_) | Shape::Choice(_) => {
                self.count(value.len())?;
                Ok(Node::String(value.to_owned()))
            }
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
            if matches!(self.schema.shape, Shape::Map(_)) {
                self.count(key.len())?;
            }
            let outside = self.path.enter_field(&key);
            let value = map.next_value_seed(self.inner(inner))?;
            self.path.leave_to(outside);
            object.put(Key::from(key), value, inner);
        }
        Ok(object.finish())
    }
}

#[cfg(test)]
mod tests;
