//! What a text will take in memory once it is read by a schema, counted before it is read: nothing is kept while counting.
//!
//! Opaque parts stay slices of the text and count for nothing, however large they are. Everything else becomes nodes, copies of
//! strings, and entries in sets of owned fields; a body of N bytes may hold N / 3 nodes, so they are counted one by one.

use std::{fmt, ops::AddAssign};

use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::node::Node;
use crate::{
    meta::is_managed_fields,
    schema::{Schema, Shape},
};

/// The nodes, copied bytes and paths of a body, counted before it is decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Values at declared places, and keys of maps.
    pub nodes: u64,
    /// Bytes that are copied: strings, keys of maps, and what comes in an older shape.
    pub copied: u64,
    /// Paths in `managedFields`, and entries there.
    pub paths: u64,
}

impl AddAssign for Census {
    fn add_assign(&mut self, other: Self) {
        self.nodes += other.nodes;
        self.copied += other.copied;
        self.paths += other.paths;
    }
}

/// Counts a whole document. Where it is not JSON, what comes before that is counted, as decoding reads no further either.
#[must_use]
pub fn count(text: &[u8], schema: &'static Schema) -> Census {
    let mut census = Census::default();
    read(text, schema, &mut census);
    census
}

/// Counts a tree: what was read of a text, or what a patch has worked on.
#[must_use]
pub fn count_tree(node: &Node, schema: &'static Schema) -> Census {
    let mut census = Census::default();
    tree(node, schema, &mut census);
    census
}

fn tree(node: &Node, schema: &'static Schema, census: &mut Census) {
    match (node, &schema.shape) {
        (Node::Raw(_), Shape::Opaque) => {}
        (node, _) if is_managed_fields(schema) => read(node.to_raw().bytes(), schema, census),
        (Node::Raw(raw), _) => read(raw.bytes(), schema, census),
        // What a patch has opened is written again.
        (node, Shape::Opaque) => census.copied += node.size() as u64,
        (Node::Object(members), shape) => {
            census.nodes += 1;
            for (key, value) in members {
                census.copied += key.copied() as u64;
                match shape {
                    Shape::Map(inner) => {
                        census.nodes += 1;
                        tree(value, inner, census);
                    }
                    _ => {
                        let Some(field) = schema.field(key.text()) else { continue };
                        if field.hidden {
                            census.copied += value.size() as u64;
                        }
                        tree(value, field.schema, census);
                    }
                }
            }
        }
        (Node::Array(items), Shape::List(inner, _)) => {
            census.nodes += 1;
            items.iter().for_each(|item| tree(item, inner, census));
        }
        (node, _) => {
            census.nodes += 1;
            census.copied += node.size() as u64;
        }
    }
}

fn read(text: &[u8], schema: &'static Schema, census: &mut Census) {
    let mut parser = serde_json::Deserializer::from_slice(text);
    let _ = Counter { schema, census }.deserialize(&mut parser);
}

struct Counter<'a> {
    schema: &'static Schema,
    census: &'a mut Census,
}

impl Counter<'_> {
    fn inner(&mut self, schema: &'static Schema) -> Counter<'_> {
        Counter { schema, census: self.census }
    }

    fn scalar<E>(self) -> Result<(), E> {
        self.census.nodes += 1;
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Counter<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if is_managed_fields(self.schema) {
            let text = <&'de RawValue as serde::Deserialize>::deserialize(deserializer)?.get();
            self.census.copied += text.len() as u64;
            // Each entry and each path is an object.
            self.census.paths += memchr::memchr_iter(b'{', text.as_bytes()).count() as u64;
            return Ok(());
        }
        match self.schema.shape {
            Shape::Opaque => IgnoredAny::deserialize(deserializer).map(drop),
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Counter<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        self.scalar()
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        self.scalar()
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        self.scalar()
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.scalar()
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.census.copied += text.len() as u64;
        self.scalar()
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.scalar()
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        self.census.nodes += 1;
        let Shape::List(inner, _) = &self.schema.shape else {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(());
        };
        while seq.next_element_seed(self.inner(inner))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        self.census.nodes += 1;
        while let Some(key) = map.next_key::<String>()? {
            match &self.schema.shape {
                Shape::Map(inner) => {
                    self.census.nodes += 1;
                    self.census.copied += key.len() as u64;
                    map.next_value_seed(self.inner(inner))?;
                }
                _ => match self.schema.field(&key) {
                    Some(field) if field.hidden => {
                        let text = map.next_value::<&'de RawValue>()?.get();
                        self.census.copied += text.len() as u64;
                        read(text.as_bytes(), field.schema, self.census);
                    }
                    Some(field) => map.next_value_seed(self.inner(field.schema))?,
                    None => drop(map.next_value::<IgnoredAny>()?),
                },
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::json::{Findings, Raw, decode, decode_opaque};
    use crate::sample::KIND_INFO;

    fn counted(text: &str) -> (u64, u64, u64) {
        let Census { nodes, copied, paths } = count(text.as_bytes(), KIND_INFO.schema);
        (nodes, copied, paths)
    }

    #[test]
    fn opaque_and_unknown_parts_count_for_nothing() {
        let many = "[".to_owned() + &"{\"a\":[1,2]},".repeat(1000) + "1]";
        for text in [
            format!(r#"{{"spec":{{"items":[{{"data":{many}}}]}}}}"#),
            format!(r#"{{"spec":{{"parts":[{{"state":{many}}}]}}}}"#),
            format!(r#"{{"spec":{{"parts":[{{}}],"unknown":{many}}}}}"#),
        ] {
            assert_eq!(counted(&text), (4, 0, 0), "{}", &text[..60]);
        }
    }

    #[test]
    fn everything_else_is_counted() {
        for (text, expected) in [
            ("{}", (1, 0, 0)),
            (r#"{"spec":{"parts":[{},{},{}]}}"#, (6, 0, 0)),
            (r#"{"sp\u0065c":{"parts":[{},{},{}]}}"#, (6, 0, 0)),
            (r#"{"spec":{"parts":[[],0,null,"abc",true]}}"#, (8, 3, 0)),
            (r#"{"spec":{"parts":[{"kind":"W","name":"xyz"}]}}"#, (6, 4, 0)),
            (r#"{"metadata":{"labels":{"a":"b","c":"d"}}}"#, (7, 4, 0)),
            (r#"{"metadata":{"managedFields":[{"fieldsV1":{"f:a":{}}},{}]}}"#, (2, 28, 4)),
            // Of what is no JSON as much is read as comes before.
            (r#"{"spec":{"parts":[{},{},"#, (5, 0, 0)),
        ] {
            assert_eq!(counted(text), expected, "{text}");
        }
    }

    #[test]
    fn an_older_shape_is_copied() {
        let state = format!(r#"{{"name":"a","data":{{"x":"{}"}}}}"#, "y".repeat(1000));
        let (nodes, copied, _) = counted(&format!(r#"{{"old":{{"items":[{state}]}}}}"#));
        assert!(copied > 1000 && nodes == 5, "{nodes} {copied}");
    }

    #[test]
    fn a_tree_counts_as_its_text_does() {
        let text =
            r#"{"metadata":{"labels":{"a":"b"}},"spec":{"parts":[{"kind":"W","state":{"a":[1,2]}},{}]}}"#;
        let raw = decode_opaque(&Bytes::from_static(text.as_bytes())).expect("JSON");
        let whole = count_tree(&Node::Raw(raw.clone()), KIND_INFO.schema);
        assert_eq!(whole, count(text.as_bytes(), KIND_INFO.schema));
        let mut opened = Node::Raw(raw);
        opened.open();
        opened.member_mut("spec").expect("a spec").open();
        assert_eq!(count_tree(&opened, KIND_INFO.schema).nodes, whole.nodes);
        let bytes = Bytes::from_static(text.as_bytes());
        let read = decode(&bytes, KIND_INFO.schema, &mut Findings::default()).expect("JSON");
        assert_eq!(count_tree(&read, KIND_INFO.schema).nodes, whole.nodes);
        let mut entries = Node::Raw(Raw::from_compact(Bytes::from_static(br#"[{"fieldsV1":{"f:a":{}}}]"#)));
        entries.open();
        let mut meta = Node::object();
        meta.set("managedFields", entries);
        assert_eq!(count_tree(&meta, &crate::meta::OBJECT_META).paths, 3);
        // What a patch opens below an opaque part is copied.
        let mut state = Node::Raw(Raw::from_compact(Bytes::from_static(b"[1,2,3]")));
        state.open();
        let mut item = Node::object();
        item.set("state", state);
        let mut spec = Node::object();
        spec.set("parts", Node::Array(vec![item]));
        let mut root = Node::object();
        root.set("spec", spec);
        assert!(count_tree(&root, KIND_INFO.schema).copied >= 7);
    }
}
