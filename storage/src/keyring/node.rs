//! YAML or JSON as a tree with paths, so that every mistake is told by the field it is in and never by what is in it.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use zeroize::Zeroizing;

use super::Error;

/// A node of the tree. Wiped from memory when dropped: it may be a secret.
pub(super) enum Node {
    Nothing,
    Text(Zeroizing<String>),
    /// A number or a boolean; none is wanted anywhere.
    Other,
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

/// A node and how to get there.
pub(super) struct At<'a> {
    node: &'a Node,
    path: String,
}

/// A map whose fields are taken one by one; those left over are a mistake.
pub(super) struct Fields<'a> {
    path: String,
    entries: Vec<(&'a str, &'a Node)>,
}

/// Reads YAML or JSON.
pub(super) fn parse(text: &str) -> Result<Node, Error> {
    let mistake = |what: String| Error::Config { at: "file".into(), what };
    if text.trim().is_empty() {
        return Err(mistake("is empty; write an EncryptionConfiguration".into()));
    }
    // No snippets: they would print the secrets near the mistake.
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let place = error
            .location()
            .map_or(String::new(), |l| format!(" at line {} column {}", l.line(), l.column()));
        let duplicate = matches!(error.without_snippet(), serde_saphyr::Error::DuplicateMappingKey { .. });
        let what = if duplicate { "a field is given twice" } else { "is not valid YAML or JSON" };
        mistake(format!("{what}{place}"))
    })
}

impl<'a> At<'a> {
    /// The root of a tree.
    pub(super) fn root(node: &'a Node) -> Self {
        Self { node, path: String::new() }
    }

    /// A mistake here.
    pub(super) fn error(&self, what: impl Into<String>) -> Error {
        let at = if self.path.is_empty() { "file" } else { &self.path };
        Error::Config { at: at.into(), what: what.into() }
    }

    /// Whether nothing stands here, as after `name:`.
    pub(super) fn is_nothing(&self) -> bool {
        matches!(self.node, Node::Nothing)
    }

    /// The node as text.
    pub(super) fn text(&self) -> Result<&'a str, Error> {
        match self.node {
            Node::Text(text) => Ok(text),
            Node::Nothing | Node::Other | Node::List(_) | Node::Map(_) => Err(self.error("must be a string")),
        }
    }

    /// The node as a list with something in it.
    pub(super) fn list(&self) -> Result<Vec<At<'a>>, Error> {
        match self.node {
            Node::List(nodes) if nodes.is_empty() => Err(self.error("must not be empty")),
            Node::List(nodes) => {
                let at = |(index, node)| At { node, path: format!("{}[{index}]", self.path) };
                Ok(nodes.iter().enumerate().map(at).collect())
            }
            Node::Nothing | Node::Other | Node::Text(_) | Node::Map(_) => Err(self.error("must be a list")),
        }
    }

    /// The node as a map.
    pub(super) fn fields(&self) -> Result<Fields<'a>, Error> {
        let entries = match self.node {
            Node::Map(entries) => entries.iter().map(|(name, node)| (name.as_str(), node)).collect(),
            Node::Nothing => Vec::new(),
            Node::Other | Node::Text(_) | Node::List(_) => return Err(self.error("must be a map")),
        };
        Ok(Fields { path: self.path.clone(), entries })
    }
}

impl<'a> Fields<'a> {
    /// Takes a field that must be there.
    pub(super) fn take(&mut self, name: &str) -> Result<At<'a>, Error> {
        let path = if self.path.is_empty() { name.into() } else { format!("{}.{name}", self.path) };
        let found = self.entries.iter().position(|(own, _)| *own == name);
        match found {
            Some(index) => Ok(At { node: self.entries.swap_remove(index).1, path }),
            None => Err(Error::Config { at: path, what: "is missing".into() }),
        }
    }

    /// Takes a field that may be there; one with nothing in it is not.
    pub(super) fn maybe(&mut self, name: &str) -> Option<At<'a>> {
        let path = if self.path.is_empty() { name.into() } else { format!("{}.{name}", self.path) };
        let index = self.entries.iter().position(|(own, _)| *own == name)?;
        let node = self.entries.swap_remove(index).1;
        (!matches!(node, Node::Nothing)).then_some(At { node, path })
    }

    /// The names that are left.
    pub(super) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.entries.iter().map(|(name, _)| *name)
    }

    /// Says that nothing may be left.
    pub(super) fn done(self, known: &str) -> Result<(), Error> {
        let Some((name, _)) = self.entries.first() else { return Ok(()) };
        let at = if self.path.is_empty() { "file".into() } else { self.path };
        Err(Error::Config { at, what: format!("unknown field {}; known: {known}", shown(name)) })
    }
}

/// A field name as it may be shown: a secret in the place of a name is longer than any field is.
pub(super) fn shown(name: &str) -> String {
    if name.len() <= 20 && name.chars().all(|c| c.is_ascii_alphabetic()) {
        format!("{name:?}")
    } else {
        "(not shown)".into()
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a node")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Nothing)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Node, E> {
        Ok(Node::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Node, E> {
        Ok(Node::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Node, E> {
        Ok(Node::Other)
    }

    fn visit_i128<E>(self, _: i128) -> Result<Node, E> {
        Ok(Node::Other)
    }

    fn visit_u128<E>(self, _: u128) -> Result<Node, E> {
        Ok(Node::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
        Ok(Node::Other)
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Text(Zeroizing::new(text.into())))
    }

    fn visit_string<E>(self, text: String) -> Result<Node, E> {
        Ok(Node::Text(Zeroizing::new(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = seq.next_element()? {
            nodes.push(node);
        }
        Ok(Node::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Map(entries))
    }
}
