//! What the schema alone says about an object: defaults, one order of fields, and what is missing, doubled or not allowed.

use std::collections::BTreeSet;

use crate::{
    field::{FieldError, is_enough},
    formats,
    json::Node,
    schema::{Default, Field, ListType, Schema, Shape},
};

/// Sets what writers left out and puts fields into the order of the schema, so that equal objects are equal text.
pub fn tidy(node: &mut Node, schema: &Schema) {
    match (node, &schema.shape) {
        (Node::Object(members), Shape::Object(fields)) => {
            let absent = |field: &&Field| !members.iter().any(|(key, _)| key.text() == field.name);
            let set = |field: &Field| Some((field.name.into(), value(field.default?)));
            let defaults: Vec<_> = fields.iter().filter(absent).filter_map(set).collect();
            members.extend(defaults);
            for (key, value) in members.iter_mut() {
                if let Some(field) = schema.field(key.text()) {
                    tidy(value, field.schema);
                }
            }
            members.sort_by_key(|(key, _)| fields.iter().position(|field| field.name == key.text()));
        }
        (Node::Object(members), Shape::Map(inner)) => {
            members.iter_mut().for_each(|(_, value)| tidy(value, inner));
            members.sort_by(|(a, _), (b, _)| a.text().cmp(b.text()));
        }
        (Node::Array(items), Shape::List(inner, _)) => items.iter_mut().for_each(|item| tidy(item, inner)),
        _ => {}
    }
}

fn value(default: Default) -> Node {
    match default {
        Default::Text(text) => Node::String(text.to_owned()),
        Default::Integer(number) => Node::Integer(number),
        Default::Boolean(value) => Node::Bool(value),
    }
}

/// Everything below `path` that the schema forbids: required fields that are missing or empty, strings that are none of the
/// allowed ones or no time, elements that a set or a keyed list holds twice. It ends where there are [enough](is_enough).
pub fn check(node: &Node, schema: &Schema, path: &str, errors: &mut Vec<FieldError>) {
    if is_enough(errors) {
        return;
    }
    match (node, &schema.shape) {
        (Node::Object(members), Shape::Object(fields)) => {
            for field in fields.iter().filter(|field| field.required) {
                let missing = node.member(field.name).is_none() || node.text(field.name) == Some("");
                if missing {
                    errors.push(FieldError::required(join(path, field.name), ""));
                }
            }
            for (key, value) in members {
                if let Some(field) = schema.field(key.text()) {
                    check(value, field.schema, &join(path, key.text()), errors);
                }
            }
        }
        (Node::Object(members), Shape::Map(inner)) => {
            for (key, value) in members {
                check(value, inner, &format!("{path}[{}]", key.text()), errors);
            }
        }
        (Node::Array(items), Shape::List(inner, kind)) => {
            for (at, item) in items.iter().enumerate() {
                if is_enough(errors) {
                    return;
                }
                check(item, inner, &format!("{path}[{at}]"), errors);
            }
            check_unique(items, *kind, path, errors);
        }
        // An empty required string is told of already, and an optional one is as good as absent.
        (Node::String(text), _) if text.is_empty() => {}
        (Node::String(text), Shape::Choice(choices)) if !choices.contains(&text.as_str()) => {
            errors.push(FieldError::not_supported(path, text, choices));
        }
        (Node::String(text), Shape::String(Some("date-time"))) => {
            errors.extend(formats::date_time(text).err().map(|why| FieldError::invalid(path, text, why)));
        }
        _ => {}
    }
}

fn check_unique(items: &[Node], kind: ListType, path: &str, errors: &mut Vec<FieldError>) {
    let identity = |item: &Node| match kind {
        ListType::Atomic => None,
        ListType::Set => Some(String::from_utf8_lossy(item.to_raw().bytes()).into_owned()),
        ListType::Map(keys) => {
            let key = |key: &&str| format!("{key}={}", item.text(key).unwrap_or_default());
            Some(keys.iter().map(key).collect::<Vec<_>>().join(","))
        }
    };
    let mut seen = BTreeSet::new();
    for (at, item) in items.iter().enumerate() {
        let Some(identity) = identity(item).filter(|_| !is_enough(errors)) else { return };
        if !seen.insert(identity.clone()) {
            errors.push(FieldError::duplicate(format!("{path}[{at}]"), identity));
        }
    }
}

fn join(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::json::{Findings, decode};

    static NAME: Schema = Schema::string("");
    static STATE: Schema = Schema::choice("", &["On", "Off"]);
    static TIME: Schema = Schema::of("", Shape::String(Some("date-time")));
    static ITEM: Schema = Schema::of(
        "",
        Shape::Object(&[
            Field::required("name", &NAME),
            Field::defaulted("state", &STATE, Default::Text("On")),
            Field::optional("time", &TIME),
        ]),
    );
    static ITEMS: Schema = Schema::of("", Shape::List(&ITEM, ListType::Map(&["name"])));
    static WORDS: Schema = Schema::of("", Shape::List(&NAME, ListType::Set));
    static ROOT: Schema =
        Schema::of("", Shape::Object(&[Field::optional("items", &ITEMS), Field::optional("words", &WORDS)]));

    fn read(text: &str) -> Node {
        let mut findings = Findings::default();
        let node = decode(&Bytes::copy_from_slice(text.as_bytes()), &ROOT, &mut findings).expect("JSON");
        assert_eq!(findings, Findings::default());
        node
    }

    #[test]
    fn equal_objects_become_equal_text() {
        let mut node =
            read(r#"{"words":["b","a"],"items":[{"time":"x","name":"n"},{"state":"Off","name":"m"}]}"#);
        tidy(&mut node, &ROOT);
        let text = r#"{"items":[{"name":"n","state":"On","time":"x"},{"name":"m","state":"Off"}],"words":["b","a"]}"#;
        assert_eq!(node.to_raw().bytes(), text.as_bytes());
    }

    #[test]
    fn finds_everything_at_once() {
        let node = read(
            r#"{"items":[{"name":""},{"name":"a","state":"Half"},{"name":"a","time":"noon"},{}],"words":["x","x"]}"#,
        );
        let mut errors = Vec::new();
        check(&node, &ROOT, "", &mut errors);
        let found: Vec<_> = errors.iter().map(|e| (e.cause.reason(), e.field.as_str())).collect();
        assert_eq!(
            found,
            [
                ("FieldValueRequired", "items[0].name"),
                ("FieldValueNotSupported", "items[1].state"),
                ("FieldValueInvalid", "items[2].time"),
                ("FieldValueRequired", "items[3].name"),
                ("FieldValueDuplicate", "items[2]"),
                ("FieldValueDuplicate", "items[3]"),
                ("FieldValueDuplicate", "words[1]"),
            ]
        );
    }
}
