//! Bodies in YAML or JSON, as JSON.

use std::fmt;

use bytes::Bytes;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// YAML may be nested so deep: each level costs stack, and the budget of the parser is counted in levels too.
const MAX_DEPTH: usize = 128;
/// Parser events of one body: about one a value, and bodies are of megabytes.
const MAX_EVENTS: usize = 20_000_000;

/// Values below anchors, which are kept for their aliases; those below several anchors count for each.
const MAX_ANCHORED: usize = 100_000;
/// The same, in bytes.
const MAX_ANCHORED_BYTES: usize = 4 << 20;

/// The body is no configuration.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    /// Neither JSON nor YAML that can be written as JSON.
    #[error("error decoding YAML: {0}")]
    Yaml(String),
    /// With its aliases written out it is too large.
    #[error("error decoding YAML: with all aliases written out it has more than {0} bytes")]
    TooLarge(usize),
}

/// A body in YAML as JSON. Most bodies are JSON, which is YAML too, and is taken over without a copy. `limit`: bytes that others
/// may have as JSON.
///
/// # Errors
/// [`Unreadable`].
pub(super) fn json(body: Bytes, limit: usize) -> Result<Bytes, Unreadable> {
    let object = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    if object && serde_json::from_slice::<IgnoredAny>(&body).is_ok() {
        return Ok(body);
    }
    to_json(&body, limit).map(Bytes::from)
}

/// One YAML document as JSON. Duplicate keys stay: whether they are a mistake is for the client to say.
fn to_json(yaml: &[u8], limit: usize) -> Result<Vec<u8>, Unreadable> {
    let text = std::str::from_utf8(yaml).map_err(|_| Unreadable::Yaml("it is not UTF-8".to_owned()))?;
    let options = serde_saphyr::options! {
        // A snippet would print what may be secret.
        with_snippet: false,
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins,
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_documents: 1,
            max_events: MAX_EVENTS,
            max_nodes: MAX_EVENTS,
            max_total_scalar_bytes: limit,
            // What anchors name is kept until the end.
            max_recorded_anchor_events: MAX_ANCHORED,
            max_recorded_anchor_bytes: limit.min(MAX_ANCHORED_BYTES),
        },
    };
    let mut json = Vec::with_capacity(text.len());
    let written = serde_saphyr::with_deserializer_from_str_with_options(text, options, |yaml| {
        Writer { json: &mut json, limit, key: false }.deserialize(yaml)
    });
    match written {
        Ok(()) => Ok(json),
        Err(_) if json.len() > limit => Err(Unreadable::TooLarge(limit)),
        Err(error) => {
            let place = error.location().map(|l| format!(" at line {} column {}", l.line(), l.column()));
            Err(Unreadable::Yaml(format!("it cannot be read{}", place.unwrap_or_default())))
        }
    }
}

/// Writes whatever a parser finds as JSON, without a tree in between.
struct Writer<'a> {
    json: &'a mut Vec<u8>,
    limit: usize,
    /// Whether a key is written, which has to be a string.
    key: bool,
}

impl Writer<'_> {
    fn inner(&mut self, key: bool) -> Writer<'_> {
        Writer { json: self.json, limit: self.limit, key }
    }

    fn put<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        if self.json.len() > self.limit {
            return Err(E::custom("too large"));
        }
        if self.key { self.put_string(text) } else { self.put_token(text) }
    }

    fn put_token<E>(self, text: &str) -> Result<(), E> {
        self.json.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn put_string<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        serde_json::to_writer(self.json, text).map_err(E::custom)
    }
}

impl<'de> DeserializeSeed<'de> for Writer<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Writer<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON has too")
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        self.put(if value { "true" } else { "false" })
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.put(&value.to_string())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.put(&value.to_string())
    }

    fn visit_i128<E: serde::de::Error>(self, value: i128) -> Result<(), E> {
        self.put(&value.to_string())
    }

    fn visit_u128<E: serde::de::Error>(self, value: u128) -> Result<(), E> {
        self.put(&value.to_string())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        if !value.is_finite() {
            return Err(E::custom("JSON has no such number"));
        }
        self.put(&serde_json::Value::from(value).to_string())
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        if self.json.len() > self.limit {
            return Err(E::custom("too large"));
        }
        self.put_string(value)
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.put("null")
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<(), E> {
        self.put("null")
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        let mut open = b'[';
        loop {
            self.json.push(open);
            open = b',';
            if items.next_element_seed(self.inner(false))?.is_none() {
                break;
            }
        }
        // The comma, or the bracket of an empty list, that was written ahead.
        close(self.json, b'[', b']');
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        let mut open = b'{';
        loop {
            self.json.push(open);
            open = b',';
            if members.next_key_seed(self.inner(true))?.is_none() {
                break;
            }
            self.json.push(b':');
            members.next_value_seed(self.inner(false))?;
        }
        close(self.json, b'{', b'}');
        Ok(())
    }
}

fn close(json: &mut Vec<u8>, open: u8, close: u8) {
    if json.last() == Some(&open) {
        json.push(close);
    } else if let Some(comma) = json.last_mut() {
        *comma = close;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(yaml: &str) -> Result<String, Unreadable> {
        to_json(yaml.as_bytes(), 10_000).map(|json| String::from_utf8(json).expect("UTF-8"))
    }

    #[test]
    fn writes_yaml_as_json() {
        for (yaml, expected) in [
            ("a: 1\nb: [x, 2.5, true, ~, \"3\"]\n", r#"{"a":1,"b":["x",2.5,true,null,"3"]}"#),
            ("{}", "{}"),
            ("a: []\nb: {}", r#"{"a":[],"b":{}}"#),
            ("a: {b: [{c: [[]]}]}", r#"{"a":{"b":[{"c":[[]]}]}}"#),
            ("1: x\ntrue: z", r#"{"1":"x","true":"z"}"#),
            ("a: &x {b: 1}\nc: *x", r#"{"a":{"b":1},"c":{"b":1}}"#),
            ("a: |\n  line \"one\"\n  two\n", r#"{"a":"line \"one\"\ntwo\n"}"#),
            ("a: 2024-01-01", r#"{"a":"2024-01-01"}"#),
            ("a: 18446744073709551615", r#"{"a":18446744073709551615}"#),
            // Beyond 64 bits YAML has floating point numbers only, at kube-apiserver too.
            ("a: 123456789012345678901", r#"{"a":1.2345678901234568e+20}"#),
        ] {
            assert_eq!(json(yaml).expect(yaml), expected);
        }
    }

    #[test]
    fn keeps_duplicate_keys_for_who_asks_for_them() {
        assert_eq!(json("a: 1\nb: 2\na: 3").expect("YAML"), r#"{"a":1,"b":2,"a":3}"#);
    }

    #[test]
    fn refuses_what_would_grow_without_bounds() {
        let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
        for n in 1..9 {
            let below = format!("*a{},", n - 1).repeat(10);
            bomb += &format!("a{n}: &a{n} [{}]\n", below.trim_end_matches(','));
        }
        assert!(json(&bomb).is_err());
        let deep = "[".repeat(5000) + &"]".repeat(5000);
        assert!(json(&deep).is_err());
        let deep: String = (0..5000).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
        assert!(json(&deep).is_err());
        let aliases = format!("a: &a {}\nb: [*a,*a,*a,*a]", "x".repeat(4000));
        assert!(matches!(json(&aliases), Err(Unreadable::TooLarge(_)) | Err(Unreadable::Yaml(_))));
    }

    #[test]
    fn refuses_what_is_no_single_document() {
        for yaml in ["a: 1\n---\nb: 2", "a: .nan", "a: [", "a: b: c", "a: *x"] {
            assert!(json(yaml).is_err(), "{yaml:?}");
        }
    }

    #[test]
    fn errors_show_nothing_of_the_body() {
        let error = json("password: hunter2\n  x: [").expect_err("malformed").to_string();
        assert!(!error.contains("hunter2") && error.contains("line"), "{error}");
    }
}
