//! An object without a set of its fields.

use super::{
    element::Element,
    form::{Form, form, items, members},
    set::Set,
};
use crate::{
    json::{Node, Raw},
    schema::Schema,
};

/// The object without these fields. What had something in it and has nothing left becomes null, which is not absent: its
/// owners keep it until the object is brought back into form.
#[must_use]
pub fn without(object: &Node, fields: &Set, schema: &'static Schema) -> Node {
    let form = form(schema);
    let left = match form {
        Form::Leaf => return object.clone(),
        Form::Record(_) | Form::Map(_) => members_without(object, fields, form),
        Form::Set(inner) | Form::Keyed(inner, _) => items_without(object, fields, form, inner),
    };
    left.unwrap_or_else(|| Node::Raw(Raw::null()))
}

fn members_without(object: &Node, fields: &Set, form: Form) -> Option<Node> {
    let mut left = Vec::new();
    for (key, value) in members(Some(object)) {
        let element = Element::Field(key.text().to_owned().into());
        let value = match (fields.branch(&element), form.inner(&element)) {
            (Some(branch), _) if branch.member => continue,
            (Some(branch), Some(inner)) => without(value, &branch.below, inner),
            _ => value.clone(),
        };
        left.push((key.clone(), value));
    }
    (!left.is_empty()).then_some(Node::Object(left))
}

fn items_without(list: &Node, fields: &Set, form: Form, inner: &'static Schema) -> Option<Node> {
    let mut left = Vec::new();
    for item in items(Some(list)) {
        match fields.branch(&form.element(item)) {
            Some(branch) if branch.member => {}
            // A list has no place for an item without fields.
            Some(branch) => {
                left.extend(Some(without(item, &branch.below, inner)).filter(|item| !item.is_null()))
            }
            None => left.push(item.clone()),
        }
    }
    (!left.is_empty()).then_some(Node::Array(left))
}
