//! How the parts of an object are told apart, by its schema.

use std::{borrow::Cow, collections::BTreeMap};

use super::element::{Element, Keys, Scalar};
use crate::{
    json::{Key, Node},
    schema::{Field, ListType, Schema, Shape},
};

/// How a part of an object is divided among its owners.
#[derive(Clone, Copy)]
pub(super) enum Form {
    /// Not at all.
    Leaf,
    /// By declared fields.
    Record(&'static [Field]),
    /// By free keys.
    Map(&'static Schema),
    /// By the values of its elements.
    Set(&'static Schema),
    /// By key fields of its elements.
    Keyed(&'static Schema, &'static [&'static str]),
}

/// The form of what a schema describes.
pub(super) fn form(schema: &'static Schema) -> Form {
    match &schema.shape {
        Shape::Object(fields) => Form::Record(fields),
        Shape::Map(inner) => Form::Map(inner),
        Shape::List(inner, ListType::Set) => Form::Set(inner),
        Shape::List(inner, ListType::Map(keys)) => Form::Keyed(inner, keys),
        Shape::AtomicObject(_)
        | Shape::List(_, ListType::Atomic)
        | Shape::String(_)
        | Shape::Choice(_)
        | Shape::Integer
        | Shape::Boolean
        | Shape::Opaque => Form::Leaf,
    }
}

impl Form {
    /// What stands at an element; `None`: nothing can.
    pub(super) fn inner(&self, element: &Element) -> Option<&'static Schema> {
        match (self, element) {
            (Self::Record(fields), Element::Field(name)) => {
                fields.iter().find(|field| field.name == name.as_ref()).map(|field| field.schema)
            }
            (Self::Map(inner), Element::Field(_))
            | (Self::Set(inner), Element::Value(_))
            | (Self::Keyed(inner, _), Element::Key(_)) => Some(inner),
            _ => None,
        }
    }

    /// The element at which an item of a list stands.
    pub(super) fn element(&self, item: &Node) -> Element {
        match self {
            Self::Keyed(inner, keys) => Element::Key(keys_of(item, inner, keys)),
            _ => Element::Value(Scalar::of(item)),
        }
    }
}

/// The key fields of an item. One that is absent counts as empty, as the published default says; it is not written.
fn keys_of(item: &Node, schema: &Schema, keys: &[&'static str]) -> Keys {
    let value = |name: &&'static str| {
        let absent = || match schema.field(name).map(|field| &field.schema.shape) {
            Some(Shape::Integer) => Scalar::Integer(0),
            Some(Shape::Boolean) => Scalar::Boolean(false),
            _ => Scalar::Text(String::new()),
        };
        (Cow::Borrowed(*name), item.member(name).map_or_else(absent, Scalar::of))
    };
    let mut keys: Keys = keys.iter().map(value).collect();
    keys.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    keys
}

/// The members of an object; none of what is absent or null.
pub(super) fn members(node: Option<&Node>) -> &[(Key, Node)] {
    node.map_or(&[], Node::members)
}

/// The items of a list; none of what is absent or null.
pub(super) fn items(node: Option<&Node>) -> &[Node] {
    node.map_or(&[], Node::items)
}

/// The members of a map by key.
pub(super) fn by_key(node: Option<&Node>) -> BTreeMap<&str, &Node> {
    members(node).iter().map(|(key, value)| (key.text(), value)).collect()
}

/// Whether two parts hold the same. The order of members means nothing but in opaque parts, which are compared as text.
pub(super) fn same(one: &Node, other: &Node) -> bool {
    match (one, other) {
        (Node::Object(a), Node::Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(key, value)| other.member(key.text()).is_some_and(|o| same(value, o)))
        }
        (Node::Array(a), Node::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(one, other)| same(one, other))
        }
        _ => one == other,
    }
}
