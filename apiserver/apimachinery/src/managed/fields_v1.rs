//! `FieldsV1`: a set of fields as JSON, as every Kubernetes API writes it.

use std::{borrow::Cow, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use super::{
    element::{Element, Unreadable, print_string},
    set::{Branch, Set},
};

/// The text is no `FieldsV1`.
#[derive(Debug, thiserror::Error)]
#[error("not a FieldsV1")]
pub struct Malformed;

/// Reads a set. Elements of unknown types are passed over: a future version may know them.
///
/// # Errors
/// [`Malformed`].
pub fn parse(text: &str) -> Result<Set, Malformed> {
    // The parser bounds the depth by itself.
    let mut parser = serde_json::Deserializer::from_str(text);
    let branch = Reader.deserialize(&mut parser).map_err(|_| Malformed)?;
    parser.end().map_err(|_| Malformed)?;
    Ok(branch.below)
}

struct Reader;

impl<'de> DeserializeSeed<'de> for Reader {
    type Value = Branch;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Branch, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Reader {
    type Value = Branch;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a set of fields")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Branch, A::Error> {
        let mut branch = Branch::default();
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            if key == "." {
                branch.member = true;
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            match Element::parse(&key) {
                Ok(element) => branch.below.put(element, map.next_value_seed(Reader)?),
                Err(Unreadable::Unknown) => {
                    map.next_value::<IgnoredAny>()?;
                }
                Err(error @ Unreadable::Malformed) => return Err(A::Error::custom(error)),
            }
        }
        branch.member |= branch.below.is_empty();
        Ok(branch)
    }
}

/// Writes a set in its canonical order.
#[must_use]
pub fn print(set: &Set) -> String {
    let (mut text, mut key) = (String::new(), String::new());
    print_below(set, false, &mut text, &mut key);
    text
}

fn print_below(set: &Set, and_self: bool, text: &mut String, key: &mut String) {
    text.push('{');
    if and_self && !set.is_empty() {
        text.push_str("\".\":{}");
    }
    for (element, branch) in set.branches() {
        if !text.ends_with('{') {
            text.push(',');
        }
        key.clear();
        element.print(key);
        print_string(key, text);
        text.push(':');
        print_below(&branch.below, branch.member, text, key);
    }
    text.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_what_it_reads() {
        for text in [
            "{}",
            r#"{"f:a":{}}"#,
            r#"{"f:metadata":{"f:labels":{".":{},"f:a":{},"f:b/c":{}}}}"#,
            r#"{"f:l":{"k:{\"name\":\"x\"}":{".":{},"f:name":{}},"k:{\"name\":\"y\\\"z\"}":{}},"f:s":{"v:\"a\"":{},"i:3":{}}}"#,
            r#"{"f:{":{"f:b":{}},"f:|":{}}"#,
        ] {
            assert_eq!(print(&parse(text).expect(text)), text);
        }
    }

    #[test]
    fn brings_into_canonical_order() {
        let (given, expected) = (
            r#"{"v:1":{},"f:b":{"f:x":{},".":{}},"k:{\"n\":1}":{},"f:a":{".":{}}}"#,
            r#"{"f:a":{},"f:b":{".":{},"f:x":{}},"k:{\"n\":1}":{},"v:1":{}}"#,
        );
        assert_eq!(print(&parse(given).expect("a set")), expected);
    }

    #[test]
    fn passes_over_what_is_unknown() {
        assert_eq!(print(&parse(r#"{"f:a":{"z:?":{"q":1}}}"#).expect("a set")), r#"{"f:a":{}}"#);
    }

    #[test]
    fn refuses_what_is_no_set() {
        let deep = r#"{"f:a":"#.repeat(5000) + "{}" + &"}".repeat(5000);
        for text in ["", "[]", "1", r#"{"a":{}}"#, r#"{"f:a":1}"#, r#"{"k:1":{}}"#, "{}{}", &deep] {
            assert!(parse(text).is_err(), "{}", text.get(..20).unwrap_or(text));
        }
    }
}
