//! The members of an object while it is read: unknown and duplicate ones are found, and of duplicates the last one stays.

use std::collections::HashMap;

use super::{
    findings::{Findings, Path},
    node::{Key, Node},
};
use crate::schema::{Schema, Shape};

/// The members of an object read so far.
pub(super) struct ObjectReader {
    schema: &'static Schema,
    members: Vec<Option<(Key, Node)>>,
    seen: Seen,
}

/// Where each key stands. Declared fields are few, and their objects may be many.
enum Seen {
    Fields(Vec<(&'static str, usize)>),
    Keys(HashMap<String, usize>),
}

impl Seen {
    fn place(&self, key: &str) -> Option<usize> {
        match self {
            Self::Fields(fields) => fields.iter().find(|(name, _)| *name == key).map(|(_, at)| *at),
            Self::Keys(keys) => keys.get(key).copied(),
        }
    }
}

impl ObjectReader {
    pub(super) fn new(schema: &'static Schema) -> Self {
        let seen = match &schema.shape {
            Shape::Map(_) => Seen::Keys(HashMap::new()),
            _ => Seen::Fields(Vec::new()),
        };
        Self { schema, members: Vec::new(), seen }
    }

    /// What the member has to look like; `None`: it is unknown.
    pub(super) fn admit(&self, key: &str, path: &Path, findings: &mut Findings) -> Option<&'static Schema> {
        let inner = match &self.schema.shape {
            Shape::Map(inner) => *inner,
            _ => match self.schema.field(key) {
                Some(field) => field.schema,
                None => {
                    findings.unknown(|| format!("unknown field {:?}", path.join(key)));
                    return None;
                }
            },
        };
        if self.seen.place(key).is_some() {
            findings.duplicate(|| format!("duplicate field {:?}", path.join(key)));
        }
        Some(inner)
    }

    /// Takes a member over. Of duplicates the last one stays; null means absent, but for opaque parts.
    pub(super) fn put(&mut self, key: Key, value: Node, schema: &Schema) {
        let absent = value.is_null() && !matches!(schema.shape, Shape::Opaque);
        let (at, key) = self.place(key);
        let member = (!absent).then_some((key, value));
        match self.members.get_mut(at) {
            Some(place) => *place = member,
            None => self.members.push(member),
        }
    }

    /// Where a key stands or is to stand, and the key, which is not a copy of a declared name.
    fn place(&mut self, key: Key) -> (usize, Key) {
        let next = self.members.len();
        let found = self.seen.place(key.text());
        match (&mut self.seen, self.schema.field(key.text())) {
            (Seen::Fields(fields), Some(field)) => {
                if found.is_none() {
                    fields.push((field.name, next));
                }
                (found.unwrap_or(next), Key::from(field.name))
            }
            (Seen::Keys(keys), _) if found.is_none() => {
                keys.insert(key.text().to_owned(), next);
                (next, key)
            }
            _ => (found.unwrap_or(next), key),
        }
    }

    pub(super) fn finish(self) -> Node {
        let mut members: Vec<_> = self.members.into_iter().flatten().collect();
        members.shrink_to_fit();
        Node::Object(members)
    }
}
