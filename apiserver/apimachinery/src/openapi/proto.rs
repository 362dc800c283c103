//! The document of version 2 in protobuf, which is all that kubectl up to 1.26 asks for.
//!
//! The messages are those of `openapi.v2` (github.com/google/gnostic-models, `OpenAPIv2.proto`), written down as far as our
//! document uses them. What has no place here is left out, and a test says so.

use serde_json::{Map, Value};

use crate::protobuf::wire::{self, bytes as put};

/// How a JSON value is written.
enum Form {
    Text,
    Flag,
    Texts,
    /// `Any`: YAML text, of which JSON is a part.
    Data,
    /// A message inside as many messages that hold nothing else as there are numbers.
    Wrapped(&'static [u32], &'static Message),
    /// A list of such.
    List(&'static Message),
    /// A message that is a map: the number of its entries, and what they are, wrapped.
    Map(u32, &'static [u32], &'static Message),
    /// A message with one repeated text, from a text or a list of them.
    TextIn(u32),
    /// Body and other parameters are different messages.
    Parameters,
    /// A schema, or whether anything may be there.
    SchemaOrFlag,
}

/// Fields by their JSON name, and where `x-…` goes.
struct Message {
    fields: &'static [(&'static str, u32, Form)],
    extensions: u32,
}

static DOCUMENT: Message = Message {
    fields: &[
        ("swagger", 1, Form::Text),
        ("info", 2, Form::Wrapped(&[], &INFO)),
        ("paths", 8, Form::Map(2, &[], &PATH)),
        ("definitions", 9, Form::Map(1, &[], &SCHEMA)),
    ],
    extensions: 16,
};

static INFO: Message =
    Message { fields: &[("title", 1, Form::Text), ("version", 2, Form::Text)], extensions: 7 };

static PATH: Message = Message {
    fields: &[
        ("get", 2, Form::Wrapped(&[], &OPERATION)),
        ("put", 3, Form::Wrapped(&[], &OPERATION)),
        ("post", 4, Form::Wrapped(&[], &OPERATION)),
        ("delete", 5, Form::Wrapped(&[], &OPERATION)),
        ("patch", 8, Form::Wrapped(&[], &OPERATION)),
        ("parameters", 9, Form::Parameters),
    ],
    extensions: 10,
};

static OPERATION: Message = Message {
    fields: &[
        ("description", 3, Form::Text),
        ("operationId", 5, Form::Text),
        ("produces", 6, Form::Texts),
        ("consumes", 7, Form::Texts),
        ("parameters", 8, Form::Parameters),
        ("responses", 9, Form::Map(1, &[1], &RESPONSE)),
    ],
    extensions: 13,
};

static RESPONSE: Message = Message {
    fields: &[("description", 1, Form::Text), ("schema", 2, Form::Wrapped(&[1], &SCHEMA))],
    extensions: 5,
};

static BODY_PARAMETER: Message = Message {
    fields: &[
        ("name", 2, Form::Text),
        ("in", 3, Form::Text),
        ("required", 4, Form::Flag),
        ("schema", 5, Form::Wrapped(&[], &SCHEMA)),
    ],
    extensions: 6,
};

static PATH_PARAMETER: Message = Message {
    fields: &[
        ("required", 1, Form::Flag),
        ("in", 2, Form::Text),
        ("description", 3, Form::Text),
        ("name", 4, Form::Text),
        ("type", 5, Form::Text),
        ("uniqueItems", 19, Form::Flag),
    ],
    extensions: 22,
};

static QUERY_PARAMETER: Message = Message {
    fields: &[
        ("required", 1, Form::Flag),
        ("in", 2, Form::Text),
        ("description", 3, Form::Text),
        ("name", 4, Form::Text),
        ("type", 6, Form::Text),
        ("uniqueItems", 20, Form::Flag),
    ],
    extensions: 23,
};

static SCHEMA: Message = Message {
    fields: &[
        ("$ref", 1, Form::Text),
        ("format", 2, Form::Text),
        ("title", 3, Form::Text),
        ("description", 4, Form::Text),
        ("default", 5, Form::Data),
        ("pattern", 13, Form::Text),
        ("required", 19, Form::Texts),
        ("enum", 20, Form::Data),
        ("additionalProperties", 21, Form::SchemaOrFlag),
        ("type", 22, Form::TextIn(1)),
        ("items", 23, Form::Wrapped(&[1], &SCHEMA)),
        ("allOf", 24, Form::List(&SCHEMA)),
        ("properties", 25, Form::Map(1, &[], &SCHEMA)),
    ],
    extensions: 31,
};

/// The document that [`super::v2`] makes, as `openapi.v2.Document`.
#[must_use]
pub fn encode(document: &Value) -> Vec<u8> {
    message(&DOCUMENT, document)
}

fn message(shape: &Message, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in members(value) {
        if let Some((_, number, form)) = shape.fields.iter().find(|(name, ..)| name == key) {
            field(&mut out, *number, form, value);
        } else if key.starts_with("x-") {
            put(&mut out, shape.extensions, &named(key, &any(value)));
        }
    }
    out
}

fn field(out: &mut Vec<u8>, number: u32, form: &Form, value: &Value) {
    let texts = |value: &Value| {
        value
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    match form {
        Form::Text => put(out, number, value.as_str().unwrap_or_default().as_bytes()),
        Form::Flag => flag(out, number, value),
        Form::Texts => texts(value).iter().for_each(|text| put(out, number, text.as_bytes())),
        Form::Data => match value {
            Value::Array(items) => items.iter().for_each(|item| put(out, number, &any(item))),
            value => put(out, number, &any(value)),
        },
        Form::Wrapped(around, shape) => put(out, number, &wrapped(around, message(shape, value))),
        Form::List(shape) => {
            value.as_array().into_iter().flatten().for_each(|item| put(out, number, &message(shape, item)));
        }
        Form::Map(entry, around, shape) => {
            let mut map = Vec::new();
            for (key, value) in members(value) {
                put(&mut map, *entry, &named(key, &wrapped(around, message(shape, value))));
            }
            put(out, number, &map);
        }
        Form::TextIn(inner) => {
            let mut list = Vec::new();
            let all = value.as_str().map_or_else(|| texts(value), |text| vec![text.to_owned()]);
            all.iter().for_each(|text| put(&mut list, *inner, text.as_bytes()));
            put(out, number, &list);
        }
        Form::Parameters => {
            value.as_array().into_iter().flatten().for_each(|item| put(out, number, &parameter(item)));
        }
        Form::SchemaOrFlag => {
            let mut either = Vec::new();
            match value {
                Value::Bool(_) => flag(&mut either, 2, value),
                schema => put(&mut either, 1, &message(&SCHEMA, schema)),
            }
            put(out, number, &either);
        }
    }
}

/// `ParametersItem`: a parameter, which is one of a body or one of four others.
fn parameter(value: &Value) -> Vec<u8> {
    match value["in"].as_str() {
        Some("body") => wrapped(&[1, 1], message(&BODY_PARAMETER, value)),
        Some("path") => wrapped(&[1, 2, 4], message(&PATH_PARAMETER, value)),
        _ => wrapped(&[1, 2, 3], message(&QUERY_PARAMETER, value)),
    }
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

fn any(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, 2, value.to_string().as_bytes());
    out
}

fn named(name: &str, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, 1, name.as_bytes());
    put(&mut out, 2, value);
    out
}

/// The outermost number first.
fn wrapped(around: &[u32], inner: Vec<u8>) -> Vec<u8> {
    around.iter().rev().fold(inner, |inner, number| {
        let mut out = Vec::new();
        put(&mut out, *number, &inner);
        out
    })
}

fn flag(out: &mut Vec<u8>, number: u32, value: &Value) {
    wire::integer(out, number, value.as_bool().unwrap_or_default().into());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn writes_numbers_and_lengths_as_protobuf_does() {
        let info = json!({"swagger": "2.0", "info": {"title": "T", "version": "v"}});
        assert_eq!(encode(&info), b"\x12\x06\x0a\x01T\x12\x01v\x0a\x032.0");
    }

    #[test]
    fn puts_schemas_where_their_numbers_say() {
        let of = |schema| message(&SCHEMA, &schema);
        assert_eq!(of(json!({"type": "array"})), b"\xb2\x01\x07\x0a\x05array");
        assert_eq!(of(json!({"items": {"$ref": "#/d"}})), b"\xba\x01\x07\x0a\x05\x0a\x03#/d");
        assert_eq!(of(json!({"additionalProperties": true})), b"\xaa\x01\x02\x10\x01");
        assert_eq!(of(json!({"x-y": [1]})), b"\xfa\x01\x0c\x0a\x03x-y\x12\x05\x12\x03[1]");
    }

    /// Words of the document that the messages have no place for would be lost without a sound.
    fn lost(shape: &Message, value: &Value, found: &mut Vec<String>) {
        for (key, value) in members(value) {
            let Some((_, _, form)) = shape.fields.iter().find(|(name, ..)| name == key) else {
                found.extend((!key.starts_with("x-")).then(|| key.clone()));
                continue;
            };
            match form {
                Form::Wrapped(_, shape) => lost(shape, value, found),
                Form::Map(_, _, shape) => members(value).for_each(|(_, value)| lost(shape, value, found)),
                Form::List(shape) => {
                    value.as_array().into_iter().flatten().for_each(|item| lost(shape, item, found))
                }
                Form::SchemaOrFlag if value.is_object() => lost(&SCHEMA, value, found),
                _ => {}
            }
        }
    }

    #[test]
    fn has_a_place_for_every_word_of_our_document() {
        let group = super::super::GroupVersion {
            group: "example.org".into(),
            version: "v1".into(),
            kinds: vec![&crate::sample::KIND_INFO],
        };
        let mut found = Vec::new();
        lost(&DOCUMENT, &super::super::v2(&[group], "v0"), &mut found);
        assert_eq!(found, Vec::<String>::new());
    }
}
