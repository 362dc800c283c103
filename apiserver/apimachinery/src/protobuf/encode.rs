//! From JSON to protobuf, field by field. Values of which a message knows nothing are dropped, as Go drops them.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{
    messages::{Form, Message},
    wire,
};
use crate::managed::time;

/// Seconds since 1970 of the first moment of the year 1, Go's zero time, which is written as no time.
const GO_ZERO_TIME: i64 = -62_135_596_800;

/// Appends a message. A value of another type than the field has counts as absent, and so does `null`. Time is linear in
/// the length of the text: each level of messages, of which there are at most five, is scanned once.
pub(super) fn message(out: &mut Vec<u8>, shape: &Message, json: &RawValue) {
    let mut json = serde_json::Deserializer::from_str(json.get());
    let values = Members(shape).deserialize(&mut json).unwrap_or_else(|_| vec![None; shape.0.len()]);
    for (field, value) in shape.0.iter().zip(values) {
        put(out, field.number, &field.form, value.filter(|value| value.get() != "null"));
    }
}

/// Reads the values of a message's fields from an object, in the order of the fields; where one comes twice, the last.
struct Members<'m>(&'m Message);

impl<'de> DeserializeSeed<'de> for Members<'_> {
    type Value = Vec<Option<&'de RawValue>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = Vec<Option<&'de RawValue>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = vec![None; self.0.0.len()];
        while let Some(at) = map.next_key_seed(Key(self.0))? {
            match at {
                Some(at) => values[at] = Some(map.next_value()?),
                None => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(values)
    }
}

/// Reads a key as the position of its field.
struct Key<'m>(&'m Message);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.0.iter().position(|field| field.key == key))
    }
}

fn put(out: &mut Vec<u8>, number: u32, form: &Form, value: Option<&RawValue>) {
    match form {
        Form::Text => wire::bytes(out, number, text(value).unwrap_or_default().as_bytes()),
        Form::OptionalText => {
            text(value).iter().for_each(|text| wire::bytes(out, number, text.as_bytes()));
        }
        Form::Integer => wire::integer(out, number, read(value).unwrap_or(0)),
        Form::OptionalInteger => {
            read(value).iter().for_each(|integer| wire::integer(out, number, *integer));
        }
        Form::Flag => wire::integer(out, number, read::<bool>(value).unwrap_or(false).into()),
        Form::OptionalFlag => {
            read::<bool>(value).iter().for_each(|flag| wire::integer(out, number, (*flag).into()));
        }
        Form::Texts => texts(out, number, value),
        Form::OptionalTexts if value.is_some() => wire::message(out, number, |out| texts(out, 1, value)),
        Form::TextMap => text_map(out, number, value),
        Form::Time => time(out, number, text(value).as_deref().and_then(time::seconds)),
        Form::OptionalTime => {
            let seconds = text(value).as_deref().and_then(time::seconds);
            seconds.iter().for_each(|seconds| time(out, number, Some(*seconds)));
        }
        Form::Message(inner) => {
            wire::message(out, number, |out| message(out, inner, value.unwrap_or(RawValue::NULL)));
        }
        Form::Messages(inner) => {
            for item in read_borrowed(value) {
                wire::message(out, number, |out| message(out, inner, item));
            }
        }
        Form::OptionalMessage(inner) => {
            value.iter().for_each(|value| wire::message(out, number, |out| message(out, inner, value)));
        }
        Form::OptionalJson => {
            let bytes = |out: &mut Vec<u8>, value: &RawValue| wire::bytes(out, 1, value.get().as_bytes());
            value.iter().for_each(|value| wire::message(out, number, |out| bytes(out, value)));
        }
        Form::OptionalTexts => {}
    }
}

fn read<T: DeserializeOwned>(value: Option<&RawValue>) -> Option<T> {
    value.and_then(|value| serde_json::from_str(value.get()).ok())
}

/// A text; one without escapes is not copied.
fn text(value: Option<&RawValue>) -> Option<Cow<'_, str>> {
    let quoted = value?.get();
    let inner = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'))?;
    match memchr::memchr(b'\\', inner.as_bytes()) {
        None => Some(Cow::Borrowed(inner)),
        Some(_) => serde_json::from_str(quoted).ok().map(Cow::Owned),
    }
}

fn read_borrowed(value: Option<&RawValue>) -> Vec<&RawValue> {
    value.and_then(|value| serde_json::from_str(value.get()).ok()).unwrap_or_default()
}

fn texts(out: &mut Vec<u8>, number: u32, value: Option<&RawValue>) {
    for text in read::<Vec<Option<String>>>(value).unwrap_or_default() {
        wire::bytes(out, number, text.unwrap_or_default().as_bytes());
    }
}

fn text_map(out: &mut Vec<u8>, number: u32, value: Option<&RawValue>) {
    for (key, text) in read::<BTreeMap<String, Option<String>>>(value).unwrap_or_default() {
        wire::message(out, number, |out| {
            wire::bytes(out, 1, key.as_bytes());
            wire::bytes(out, 2, text.unwrap_or_default().as_bytes());
        });
    }
}

/// A message of seconds and nanoseconds, of which Kubernetes never writes the latter; an empty one is no time.
fn time(out: &mut Vec<u8>, number: u32, seconds: Option<i64>) {
    wire::message(out, number, |out| {
        if let Some(seconds) = seconds.filter(|seconds| *seconds != GO_ZERO_TIME) {
            wire::integer(out, 1, seconds);
            wire::integer(out, 2, 0);
        }
    });
}
