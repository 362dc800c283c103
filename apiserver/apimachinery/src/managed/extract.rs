//! The set of all fields of an object.

use std::{borrow::Cow, collections::BTreeMap};

use super::{
    element::Element,
    form::{Form, form, items, members},
    set::{Branch, Set},
};
use crate::{json::Node, schema::Schema};

/// The fields of an object that has the form of its schema.
#[must_use]
pub fn fields(object: &Node, schema: &'static Schema) -> Set {
    branch(object, schema).below
}

fn branch(node: &Node, schema: &'static Schema) -> Branch {
    let form = form(schema);
    match form {
        Form::Leaf => Branch::leaf(),
        Form::Record(_) | Form::Map(_) => Branch { member: false, below: of_members(node, form) },
        Form::Set(inner) | Form::Keyed(inner, _) => {
            Branch { member: false, below: of_items(node, form, inner) }
        }
    }
}

fn of_members(node: &Node, form: Form) -> Set {
    let part = |(key, value): &(crate::json::Key, Node)| {
        let element = Element::Field(Cow::Owned(key.text().to_owned()));
        let mut branch = branch(value, form.inner(&element)?);
        // Keys of a map are owned by themselves; a declared field only through what is in it, where there is something.
        branch.member |= matches!(form, Form::Map(_)) || is_empty_object(value);
        Some((element, branch))
    };
    members(Some(node)).iter().filter_map(part).collect()
}

fn is_empty_object(node: &Node) -> bool {
    node.is_null() || matches!(node, Node::Object(members) if members.is_empty())
}

fn of_items(node: &Node, form: Form, inner: &'static Schema) -> Set {
    let mut found = BTreeMap::<Element, Option<&Node>>::new();
    for item in items(Some(node)) {
        // Of duplicates nothing can be owned but the place they stand at.
        found.entry(form.element(item)).and_modify(|single| *single = None).or_insert(Some(item));
    }
    let part = |(element, item): (Element, Option<&Node>)| {
        let below = item.map_or_else(Set::default, |item| branch(item, inner).below);
        (element, Branch { member: true, below })
    };
    found.into_iter().map(part).collect()
}
