//! An object as a client sent it or as a patch left it: typed metadata, and a tree of everything else.

use std::ops::Range;

use bytes::Bytes;

use crate::{
    json::{self, Census, Findings, Key, Node, Raw, Segments, census},
    kind::Kind,
    meta::ObjectMeta,
    schema::Schema,
};

/// An object in the form of its kind.
#[derive(Debug)]
pub struct Document {
    /// As the client sent it; empty where it did not.
    pub api_version: String,
    /// As the client sent it; empty where it did not.
    pub kind: String,
    /// The object's `metadata`, in typed form.
    pub meta: ObjectMeta,
    /// The other members, such as `spec`.
    pub body: Node,
    /// The text that it was read from, where that is compact: what is printed is a part of it, and not a copy, as long as it is the
    /// same.
    pub source: Option<Raw>,
}

/// The object cannot be read at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not JSON.
    #[error(transparent)]
    Json(#[from] json::Error),
    /// Values of the wrong type, all of them.
    #[error("{}", .0.join(", "))]
    Mismatch(Vec<String>),
}

impl Document {
    /// Reads a request body. The second value: unknown and duplicate fields, as strict decoding words them.
    ///
    /// # Errors
    /// [`Error`].
    pub fn decode(bytes: &Bytes, kind: &Kind) -> Result<(Self, Vec<String>), Error> {
        let mut findings = Findings::default();
        let node = json::decode(bytes, kind.schema, &mut findings)?;
        Self::from_conformed(node, findings)
    }

    /// As [`Document::decode`], for a body that is known to be compact and not too deep, if it takes no more than `most` bytes beside
    /// the text: see [`json::decode_compact`]. Also counts what was read.
    ///
    /// # Errors
    /// [`Error`].
    pub fn decode_compact(
        bytes: &Bytes,
        kind: &Kind,
        most: usize,
    ) -> Result<(Self, Vec<String>, Census), Error> {
        let mut findings = Findings::default();
        let node = json::decode_compact(bytes, kind.schema, &mut findings, most)?;
        let census = census::count_tree(&node, kind.schema);
        let (mut document, strict) = Self::from_conformed(node, findings)?;
        document.source = Some(Raw::from_compact(bytes.clone()));
        Ok((document, strict, census))
    }

    /// Takes over a tree that a patch has worked on.
    ///
    /// # Errors
    /// [`Error`].
    pub fn conform(node: Node, kind: &Kind) -> Result<(Self, Vec<String>), Error> {
        let mut findings = Findings::default();
        let node = json::conform(node, kind.schema, &mut findings)?;
        Self::from_conformed(node, findings)
    }

    fn from_conformed(mut node: Node, mut findings: Findings) -> Result<(Self, Vec<String>), Error> {
        if !matches!(node, Node::Object(_)) && findings.mismatches.is_empty() {
            findings.mismatches.push("the document: expected an object".to_owned());
        }
        let meta = node.take("metadata").map(|meta| serde_json::from_slice(meta.to_raw().bytes()));
        let meta = meta.unwrap_or_else(|| Ok(ObjectMeta::default())).unwrap_or_else(|_| {
            findings.mismatches.push("metadata: not the metadata of an object".to_owned());
            ObjectMeta::default()
        });
        findings.tell_omitted();
        if !findings.mismatches.is_empty() {
            return Err(Error::Mismatch(findings.mismatches));
        }
        let mut text = |key| match node.take(key) {
            Some(Node::String(text)) => text,
            _ => String::new(),
        };
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        Ok((Self { api_version, kind, meta, body: node, source: None }, findings.strict))
    }

    /// The members beside metadata as they rest.
    #[must_use]
    pub fn print(&self) -> Printed {
        Printed::of(&self.body, self.source.as_ref())
    }
}

/// The members of an object beside its metadata.
#[derive(Clone, Debug, Default)]
pub struct Printed {
    /// Compact JSON, joined by commas: `"spec":{...},"status":{...}`.
    pub text: Bytes,
    /// Where in the text its structure has joints.
    pub joints: Vec<usize>,
    /// Name of each member, and where in the text it is.
    pub parts: Vec<(String, Range<usize>)>,
}

impl Printed {
    /// Prints the members of an object. `source`: as in [`Document`].
    #[must_use]
    pub fn of(body: &Node, source: Option<&Raw>) -> Self {
        let Node::Object(members) = body else { return Self::default() };
        let mut segments = Segments::of(source.map(|source| source.bytes().clone()), body.size());
        let mut parts = Vec::new();
        for (key, value) in members {
            if !parts.is_empty() {
                segments.literal(",");
            }
            let start = segments.written();
            segments.members(std::iter::once((key, value)));
            parts.push((key.text().to_owned(), start..segments.written()));
        }
        let (text, joints) = segments.finish();
        Self { text, joints, parts }
    }
}

/// An object at rest as a tree that a patch can work on: nothing but the outermost level is opened.
///
/// `meta`: metadata as JSON; `payload`: the other members, as [`Document::print`] wrote them.
#[must_use]
pub fn tree(api_version: &str, kind: &str, meta: Bytes, payload: &Bytes) -> Node {
    let mut root = Node::object();
    root.set("apiVersion", Node::String(api_version.to_owned()));
    root.set("kind", Node::String(kind.to_owned()));
    root.set("metadata", Node::Raw(Raw::from_compact(meta)));
    for (key, value) in members(payload) {
        root.set(key, Node::Raw(value));
    }
    root
}

/// Counts the members of a payload, which stand there without braces.
#[must_use]
pub fn count_payload(payload: &Bytes, schema: &'static Schema) -> Census {
    census::count_tree(&tree("", "", Bytes::from_static(b"{}"), payload), schema)
}

/// The members in a payload.
fn members(payload: &Bytes) -> Vec<(Key, Raw)> {
    // The walk needs the braces that rest nowhere; a payload has few members, so they are found one by one.
    let mut found = Vec::new();
    let mut rest = payload.clone();
    while !rest.is_empty() {
        let (key, value, after) = Raw::first_member(&rest);
        found.push((Key::from_token(&key), value));
        rest = rest.slice(after.min(rest.len())..);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::KIND_INFO;

    fn decode(text: &str) -> Result<(Document, Vec<String>), Error> {
        Document::decode(&Bytes::copy_from_slice(text.as_bytes()), &KIND_INFO)
    }

    #[test]
    fn rests_and_comes_back_token_for_token() {
        let spec = r#""spec":{"items":[{"name":"a","data":{"x":1.50,"y":[1e3,"\/"]}}],"parts":[]}"#;
        let text = format!(r#"{{"apiVersion":"g/v1","kind":"Sample","metadata":{{"name":"s"}},{spec}}}"#);
        let (document, strict) = decode(&text).expect("an object");
        assert!(strict.is_empty());
        let Printed { text: payload, parts, .. } = document.print();
        assert_eq!(payload, spec);
        assert_eq!(parts, [("spec".to_owned(), 0..spec.len())]);
        let root = tree("g/v1", "Sample", Bytes::from_static(b"{\"name\":\"s\"}"), &payload);
        assert_eq!(root.to_raw().bytes(), text.as_bytes());
        let (again, _) = Document::conform(root, &KIND_INFO).expect("conforms");
        assert_eq!(again.print().text, spec.as_bytes());
    }

    #[test]
    fn reads_several_members() {
        let payload = Bytes::from_static(br#""spec":{"a":[1,"}"]},"status":{"b":"x,y"},"n":1"#);
        let found: Vec<_> =
            members(&payload).into_iter().map(|(k, v)| (k.text().to_owned(), v.into_bytes())).collect();
        assert_eq!(found[0], ("spec".to_owned(), Bytes::from_static(b"{\"a\":[1,\"}\"]}")));
        assert_eq!(found[1], ("status".to_owned(), Bytes::from_static(b"{\"b\":\"x,y\"}")));
        assert_eq!(found[2], ("n".to_owned(), Bytes::from_static(b"1")));
    }

    #[test]
    fn counts_a_payload_with_what_stands_beside_it() {
        let payload = Bytes::from_static(br#""spec":{"parts":[{"kind":"W"},{}]}"#);
        assert_eq!(count_payload(&payload, KIND_INFO.schema).nodes, 1 + 2 + 1 + 1 + 1 + 1 + 1 + 1);
    }

    #[test]
    fn refuses_what_is_no_object() {
        for text in ["[]", "1", "\"x\"", "null"] {
            assert!(matches!(decode(text), Err(Error::Mismatch(_))), "{text}");
        }
        assert!(matches!(decode(r#"{"metadata":{"labels":{"a":1}}}"#), Err(Error::Mismatch(_))));
        assert!(matches!(decode("{"), Err(Error::Json(_))));
    }
}
