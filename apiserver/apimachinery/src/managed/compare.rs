//! What a write changed, field by field.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use super::{
    element::Element,
    form::{Form, by_key, form, items, members, same},
    set::{Branch, Set},
};
use crate::{
    json::Node,
    schema::{Field, Schema},
};

/// What differs between two states of an object.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Fields that only the later state has.
    pub added: Set,
    /// Fields that both have, with different values.
    pub modified: Set,
    /// Fields that only the earlier state has.
    pub removed: Set,
}

impl Comparison {
    /// Whether no field was added, modified or removed.
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// What the later state says anew: fields it added or modified.
    #[must_use]
    pub fn set_anew(self) -> Set {
        let mut anew = self.added;
        anew.unite(self.modified);
        anew
    }

    /// Adds the difference of one more top-level field.
    pub(super) fn put_field(&mut self, name: &'static str, inner: Comparison) {
        let below = |set: &mut Set, below| set.put(Element::field(name), Branch { member: false, below });
        below(&mut self.added, inner.added);
        below(&mut self.modified, inner.modified);
        below(&mut self.removed, inner.removed);
    }
}

/// Compares two states of an object that have the form of its schema.
#[must_use]
pub fn compare(before: Option<&Node>, after: Option<&Node>, schema: &'static Schema) -> Comparison {
    let delta = delta(before, after, schema);
    Comparison { added: delta.added.below, modified: delta.modified.below, removed: delta.removed.below }
}

/// What differs at one place and below.
#[derive(Default)]
struct Delta {
    added: Branch,
    modified: Branch,
    removed: Branch,
}

impl Delta {
    fn put(&mut self, element: Element, inner: Delta) {
        let places = [
            (&mut self.added, inner.added),
            (&mut self.modified, inner.modified),
            (&mut self.removed, inner.removed),
        ];
        let mut places = places.into_iter().filter(|(_, branch)| !branch.is_empty()).peekable();
        while let Some((place, branch)) = places.next() {
            if places.peek().is_none() {
                place.below.put(element, branch);
                return;
            }
            place.below.put(element.clone(), branch);
        }
    }
}

/// A place that only one state has, with everything below.
fn everything(node: &Node, schema: &'static Schema) -> Branch {
    let form = form(schema);
    let below = match form {
        Form::Leaf => Set::default(),
        Form::Record(fields) => {
            let field = |field: &Field| {
                let value = node.member(field.name)?;
                Some((Element::field(field.name), everything(value, field.schema)))
            };
            fields.iter().filter_map(field).collect()
        }
        Form::Map(inner) => {
            let member = |(key, value): (&str, &Node)| {
                (Element::Field(Cow::Owned(key.to_owned())), everything(value, inner))
            };
            by_key(Some(node)).into_iter().map(member).collect()
        }
        Form::Set(inner) | Form::Keyed(inner, _) => all_items(node, form, inner),
    };
    Branch { member: true, below }
}

/// The items of a list. Nobody can own a part of one that is there twice.
fn all_items(list: &Node, form: Form, inner: &'static Schema) -> Set {
    let mut all: Vec<(Element, &Node)> =
        items(Some(list)).iter().map(|item| (form.element(item), item)).collect();
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut branches = Vec::with_capacity(all.len());
    let mut all = all.into_iter().peekable();
    while let Some((element, item)) = all.next() {
        let mut twice = false;
        while all.next_if(|(next, _)| *next == element).is_some() {
            twice = true;
        }
        branches.push((element, if twice { Branch::leaf() } else { everything(item, inner) }));
    }
    branches.into_iter().collect()
}

fn delta(before: Option<&Node>, after: Option<&Node>, schema: &'static Schema) -> Delta {
    match (before, after) {
        (Some(before), Some(after)) => changed(before, after, schema),
        (None, Some(after)) => Delta { added: everything(after, schema), ..Delta::default() },
        (Some(before), None) => Delta { removed: everything(before, schema), ..Delta::default() },
        (None, None) => Delta::default(),
    }
}

/// What differs where both states have the place.
fn changed(before: &Node, after: &Node, schema: &'static Schema) -> Delta {
    let mut delta = Delta::default();
    let (form, was, is) = (form(schema), Some(before), Some(after));
    let empty = match form {
        Form::Leaf => true,
        Form::Record(_) | Form::Map(_) => members(was).is_empty() && members(is).is_empty(),
        Form::Set(_) | Form::Keyed(..) => items(was).is_empty() && items(is).is_empty(),
    };
    if empty {
        // Empty is not absent: who writes `{}` owns it as a whole.
        delta.modified.member = !same(before, after);
        return delta;
    }
    match form {
        Form::Leaf => {}
        Form::Record(fields) => {
            for field in fields {
                let inner = self::delta(before.member(field.name), after.member(field.name), field.schema);
                delta.put(Element::field(field.name), inner);
            }
        }
        Form::Map(inner) => {
            let (was, is) = (by_key(was), by_key(is));
            let keys: BTreeSet<&str> = was.keys().chain(is.keys()).copied().collect();
            for key in keys {
                let inner = self::delta(was.get(key).copied(), is.get(key).copied(), inner);
                delta.put(Element::Field(Cow::Owned(key.to_owned())), inner);
            }
        }
        Form::Set(inner) | Form::Keyed(inner, _) => compare_items(before, after, form, inner, &mut delta),
    }
    delta
}

/// The items of both states that stand at one element. More than one in a state are duplicates.
#[derive(Default)]
struct Matched<'a> {
    before: Option<&'a Node>,
    more_before: Vec<&'a Node>,
    after: Option<&'a Node>,
    more_after: Vec<&'a Node>,
}

fn compare_items(before: &Node, after: &Node, form: Form, inner: &'static Schema, into: &mut Delta) {
    let mut matched = BTreeMap::<Element, Matched<'_>>::new();
    for item in items(Some(before)) {
        let place = matched.entry(form.element(item)).or_default();
        match place.before {
            None => place.before = Some(item),
            Some(_) => place.more_before.push(item),
        }
    }
    for item in items(Some(after)) {
        let place = matched.entry(form.element(item)).or_default();
        match place.after {
            None => place.after = Some(item),
            Some(_) => place.more_after.push(item),
        }
    }
    for (element, place) in matched {
        into.put(element, place.delta(inner));
    }
}

impl Matched<'_> {
    /// Duplicates are compared as a whole: nobody can own a part of one.
    fn delta(&self, inner: &'static Schema) -> Delta {
        match (self.more_before.is_empty(), self.more_after.is_empty()) {
            (true, true) => delta(self.before, self.after, inner),
            (false, false) => {
                let same = self.more_before.len() == self.more_after.len()
                    && self.before == self.after
                    && self.more_before.iter().zip(&self.more_after).all(|(a, b)| same(a, b));
                let modified = Branch { member: !same, below: Set::default() };
                Delta { modified, ..Delta::default() }
            }
            (false, true) => {
                let mut found = self.after.map_or_else(Delta::default, |item| delta(None, Some(item), inner));
                found.removed.member = true;
                found
            }
            (true, false) => {
                let mut found =
                    self.before.map_or_else(Delta::default, |item| delta(Some(item), None, inner));
                found.added.member = true;
                found
            }
        }
    }
}
