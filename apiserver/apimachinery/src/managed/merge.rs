//! An applied configuration laid over the live object.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{
    element::Element,
    form::{Form, by_key, form, items, members},
};
use crate::{
    field::shortened,
    json::{Key, Node},
    schema::Schema,
};

/// More duplicates than this are not looked for: one is enough to refuse a configuration.
const MAX_DUPLICATES: usize = 100;
/// One is shown up to this length, in bytes.
const MAX_SHOWN: usize = 1024;

/// Elements that occur twice in a list of an applied configuration, as `.spec.gardener: duplicate entries for key [name="x"]`.
#[must_use]
pub fn duplicates(config: &Node, schema: &'static Schema) -> Vec<String> {
    let mut found = Vec::new();
    find_duplicates(config, schema, "", &mut found);
    found
}

fn find_duplicates(node: &Node, schema: &'static Schema, path: &str, found: &mut Vec<String>) {
    let form = form(schema);
    match form {
        Form::Leaf => {}
        Form::Record(_) | Form::Map(_) => {
            for (key, value) in members(Some(node)) {
                let element = Element::Field(key.text().to_owned().into());
                if let Some(inner) = form.inner(&element) {
                    find_duplicates(value, inner, &format!("{path}{element}"), found);
                }
            }
        }
        Form::Set(inner) | Form::Keyed(inner, _) => {
            let mut seen = BTreeSet::new();
            for item in items(Some(node)) {
                if found.len() >= MAX_DUPLICATES {
                    return;
                }
                let element = form.element(item);
                find_duplicates(item, inner, &format!("{path}{element}"), found);
                let shown = element.to_string();
                if !seen.insert(element) {
                    let text = format!("{path}: duplicate entries for key {shown}");
                    found.push(shortened(text, MAX_SHOWN));
                }
            }
        }
    }
}

/// The live object with everything in it that a configuration without duplicates says. `None`: nothing is left to say.
#[must_use]
pub fn merge(live: Option<&Node>, config: Option<&Node>, schema: &'static Schema) -> Option<Node> {
    let form = form(schema);
    let empty = match form {
        Form::Leaf => true,
        Form::Record(_) | Form::Map(_) => members(live).is_empty() && members(config).is_empty(),
        Form::Set(_) | Form::Keyed(..) => items(live).is_empty() && items(config).is_empty(),
    };
    match form {
        _ if empty => config.or(live).cloned(),
        Form::Leaf => None,
        Form::Record(_) | Form::Map(_) => merge_members(live, config, form),
        Form::Set(inner) | Form::Keyed(inner, _) => {
            let merged = Zip::new(form, inner, items(live), items(config)).run();
            (!merged.is_empty()).then_some(Node::Array(merged))
        }
    }
}

fn merge_members(live: Option<&Node>, config: Option<&Node>, form: Form) -> Option<Node> {
    let said = by_key(config);
    let mut merged: Vec<(Key, Node)> = Vec::new();
    let mut put = |key: &Key, live, config| {
        let inner = form.inner(&Element::Field(key.text().to_owned().into()))?;
        merged.push((key.clone(), merge(live, config, inner)?));
        Some(())
    };
    for (key, value) in members(live) {
        put(key, Some(value), said.get(key.text()).copied());
    }
    let there = by_key(live);
    for (key, value) in members(config).iter().filter(|(key, _)| !there.contains_key(key.text())) {
        put(key, None, Some(value));
    }
    (!merged.is_empty()).then_some(Node::Object(merged))
}

/// Two lists on their way into one. The order of the configuration wins among the items it names; items that only the live
/// list has stay where they are between them.
struct Zip<'a> {
    inner: &'static Schema,
    live: Vec<(Element, &'a Node)>,
    config: Vec<(Element, &'a Node)>,
    /// The live item of each element; `None`: there are several, and none of them is merged with what is applied.
    live_at: BTreeMap<Element, Option<&'a Node>>,
    config_at: BTreeMap<Element, &'a Node>,
    /// Elements of both lists that are still to come, in the order of the configuration.
    shared: VecDeque<Element>,
}

impl<'a> Zip<'a> {
    fn new(form: Form, inner: &'static Schema, live: &'a [Node], config: &'a [Node]) -> Self {
        let placed = |items: &'a [Node]| items.iter().map(|i| (form.element(i), i)).collect::<Vec<_>>();
        let (live, config) = (placed(live), placed(config));
        let mut live_at = BTreeMap::new();
        for (element, item) in &live {
            live_at.entry(element.clone()).and_modify(|at| *at = None).or_insert(Some(*item));
        }
        let shared = config.iter().map(|(element, _)| element);
        let shared = shared.filter(|element| live_at.contains_key(element)).cloned().collect();
        let config_at = config.iter().cloned().collect();
        Self { inner, live, config, live_at, config_at, shared }
    }

    fn run(mut self) -> Vec<Node> {
        let (mut merged, mut done) = (Vec::new(), BTreeSet::new());
        let (live, config) = (std::mem::take(&mut self.live), std::mem::take(&mut self.config));
        let (mut at_live, mut at_config) = (0, 0);
        loop {
            let next_live = live.get(at_live);
            let next_config = config.get(at_config);
            if let Some((element, item)) = next_live {
                let named = self.config_at.contains_key(element);
                if !named {
                    merged.extend(merge(Some(item), None, self.inner));
                    at_live += 1;
                    continue;
                }
                let same = next_config.is_some_and(|(next, _)| next == element);
                let not_yet = self.shared.front().is_some_and(|next| next != element);
                if !same && not_yet && next_config.is_some() {
                    // It will stand where the configuration has it.
                    at_live += 1;
                    continue;
                }
                at_live += usize::from(same || done.contains(element));
            }
            let Some((element, item)) = next_config else {
                match next_live {
                    Some(_) => continue,
                    None => break,
                }
            };
            let theirs = self.live_at.get(element).copied().flatten();
            merged.extend(merge(theirs, Some(item), self.inner));
            if self.shared.front() == Some(element) {
                self.shared.pop_front();
            }
            done.insert(element.clone());
            at_config += 1;
        }
        merged
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        json::{Findings, decode},
        schema::{Field, ListType, Shape},
    };

    static TEXT: Schema = Schema::string("");
    static NUMBER: Schema = Schema::of("", Shape::Integer);
    static ANY: Schema = Schema::of("", Shape::Opaque);
    static ITEM: Schema = Schema::of(
        "",
        Shape::Object(&[
            Field::required("name", &TEXT),
            Field::optional("a", &NUMBER),
            Field::optional("b", &ANY),
        ]),
    );
    static LIST: Schema = Schema::of("", Shape::List(&ITEM, ListType::Map(&["name"])));
    static SET: Schema = Schema::of("", Shape::List(&TEXT, ListType::Set));
    static MAP: Schema = Schema::of("", Shape::Map(&TEXT));

    fn read(text: &str, schema: &'static Schema) -> Node {
        decode(&Bytes::copy_from_slice(text.as_bytes()), schema, &mut Findings::default()).expect(text)
    }

    fn merged(live: &str, config: &str, schema: &'static Schema) -> String {
        let merged = merge(Some(&read(live, schema)), Some(&read(config, schema)), schema);
        merged.map_or_else(String::new, |node| String::from_utf8_lossy(node.to_raw().bytes()).into_owned())
    }

    #[test]
    fn keeps_the_order_that_the_configuration_asks_for() {
        for (live, config, expected) in [
            (r#"["a","b"]"#, r#"["c","d"]"#, r#"["a","b","c","d"]"#),
            (r#"["a","b","c"]"#, r#"["b"]"#, r#"["a","b","c"]"#),
            (r#"["a","b","c"]"#, r#"["c","a"]"#, r#"["b","c","a"]"#),
            (r#"["a","b","c","d"]"#, r#"["d","b"]"#, r#"["a","c","d","b"]"#),
            (r#"["a","c"]"#, r#"["a","b","c"]"#, r#"["a","b","c"]"#),
            (r#"["x","a","y"]"#, r#"["n","a"]"#, r#"["x","n","a","y"]"#),
            (r#"["a","a","b"]"#, r#"["a"]"#, r#"["a","b"]"#),
            ("[]", r#"["a"]"#, r#"["a"]"#),
            (r#"["a"]"#, "[]", r#"["a"]"#),
        ] {
            assert_eq!(merged(live, config, &SET), expected, "{config} into {live}");
        }
    }

    #[test]
    fn merges_items_field_by_field_and_opaque_parts_as_a_whole() {
        assert_eq!(
            merged(
                r#"[{"name":"x","a":1,"b":{"p":1.50}},{"name":"y"}]"#,
                r#"[{"name":"x","b":{"q":1}},{"name":"z"}]"#,
                &LIST
            ),
            r#"[{"name":"x","a":1,"b":{"q":1}},{"name":"y"},{"name":"z"}]"#
        );
        assert_eq!(
            merged(r#"{"a":"1","b":"2"}"#, r#"{"c":"4","b":"3"}"#, &MAP),
            r#"{"a":"1","b":"3","c":"4"}"#
        );
        assert_eq!(merged("{}", "{}", &MAP), "{}");
    }

    #[test]
    fn an_applied_item_replaces_duplicates() {
        assert_eq!(
            merged(r#"[{"name":"x","a":1},{"name":"x","a":2}]"#, r#"[{"name":"x","b":3}]"#, &LIST),
            r#"[{"name":"x","b":3}]"#
        );
        assert_eq!(
            merged(r#"[{"name":"x","a":1},{"name":"x","a":2}]"#, r#"[{"name":"y"}]"#, &LIST),
            r#"[{"name":"x","a":1},{"name":"x","a":2},{"name":"y"}]"#
        );
    }

    #[test]
    fn finds_duplicates_by_their_keys() {
        assert_eq!(
            duplicates(&read(r#"[{"name":"x"},{"a":1},{"name":""}]"#, &LIST), &LIST),
            [r#": duplicate entries for key [name=""]"#]
        );
        assert_eq!(duplicates(&read(r#"["a","b"]"#, &SET), &SET), [""; 0]);
    }
}
