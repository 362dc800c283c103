//! One step of a path into an object: a field, an element of a list by its key fields or its value, or an index.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::json::{Node, decode_opaque};

/// A scalar that tells elements of a list apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scalar {
    /// A whole number.
    Integer(i64),
    /// A string.
    Text(String),
    /// A boolean.
    Boolean(bool),
    /// Anything else, as JSON. No schema here has such keys; other writers of sets may.
    Other(String),
}

/// The key fields of a list element with their values, in the order of their names.
pub type Keys = Vec<(Cow<'static, str>, Scalar)>;

/// A step into an object. The order is that in which sets are printed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Element {
    /// A field of an object or a key of a map.
    Field(Cow<'static, str>),
    /// The element of a list that has these key fields.
    Key(Keys),
    /// The element of a set that has this value.
    Value(Scalar),
    /// The element of a list at this place.
    Index(i64),
}

/// Why the text of a step cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// It is of a type that is not known, and is to be passed over.
    #[error("unknown type of path element")]
    Unknown,
    /// It is malformed.
    #[error("malformed path element")]
    Malformed,
}

impl Scalar {
    /// The scalar that a node of an object is.
    #[must_use]
    pub fn of(node: &Node) -> Self {
        match node {
            Node::String(text) => Self::Text(text.clone()),
            Node::Integer(number) => Self::Integer(*number),
            Node::Bool(value) => Self::Boolean(*value),
            Node::Array(_) | Node::Object(_) | Node::Raw(_) => {
                Self::Other(String::from_utf8_lossy(node.to_raw().bytes()).into_owned())
            }
        }
    }

    /// Reads JSON. What has no form of its own stays as it is spelled, as in [`Self::of`]: numbers may have more digits than a type
    /// of ours.
    fn parse(json: &str) -> Result<Self, Unreadable> {
        use serde_json::Value;
        Ok(match serde_json::from_str(json).map_err(|_| Unreadable::Malformed)? {
            Value::String(text) => Self::Text(text),
            Value::Bool(value) => Self::Boolean(value),
            Value::Number(number) if let Some(number) = number.as_i64() => Self::Integer(number),
            _ => {
                let raw = decode_opaque(&Bytes::copy_from_slice(json.as_bytes()));
                let raw = raw.map_err(|_| Unreadable::Malformed)?;
                Self::Other(String::from_utf8_lossy(raw.bytes()).into_owned())
            }
        })
    }

    fn print(&self, text: &mut String) {
        match self {
            Self::Integer(number) => text.push_str(&number.to_string()),
            Self::Text(value) => print_string(value, text),
            Self::Boolean(value) => text.push_str(if *value { "true" } else { "false" }),
            Self::Other(json) => text.push_str(json),
        }
    }
}

/// Appends a JSON string.
pub(super) fn print_string(value: &str, text: &mut String) {
    // Most names and keys need no escapes.
    if value.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
        text.push('"');
        text.push_str(value);
        text.push('"');
    } else {
        text.push_str(&serde_json::Value::from(value).to_string());
    }
}

impl Element {
    /// Path element of a field with this static name.
    #[must_use]
    pub const fn field(name: &'static str) -> Self {
        Self::Field(Cow::Borrowed(name))
    }

    /// Reads `f:name`, `k:{…}`, `v:value` or `i:index`.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn parse(text: &str) -> Result<Self, Unreadable> {
        let (kind, rest) = text.split_at_checked(2).ok_or(Unreadable::Malformed)?;
        match kind {
            "f:" => Ok(Self::Field(Cow::Owned(rest.to_owned()))),
            "v:" => Scalar::parse(rest).map(Self::Value),
            "k:" => {
                let fields: BTreeMap<String, Box<RawValue>> =
                    serde_json::from_str(rest).map_err(|_| Unreadable::Malformed)?;
                let key =
                    |(name, value): (_, Box<RawValue>)| Ok((Cow::Owned(name), Scalar::parse(value.get())?));
                fields.into_iter().map(key).collect::<Result<_, _>>().map(Self::Key)
            }
            "i:" => rest.parse().map(Self::Index).map_err(|_| Unreadable::Malformed),
            _ if kind.ends_with(':') => Err(Unreadable::Unknown),
            _ => Err(Unreadable::Malformed),
        }
    }

    /// Appends what [`Element::parse`] reads.
    pub fn print(&self, text: &mut String) {
        match self {
            Self::Field(name) => {
                text.push_str("f:");
                text.push_str(name);
            }
            Self::Key(keys) => {
                text.push_str("k:{");
                for (at, (name, value)) in keys.iter().enumerate() {
                    if at > 0 {
                        text.push(',');
                    }
                    print_string(name, text);
                    text.push(':');
                    value.print(text);
                }
                text.push('}');
            }
            Self::Value(value) => {
                text.push_str("v:");
                value.print(text);
            }
            Self::Index(at) => {
                text.push_str("i:");
                text.push_str(&at.to_string());
            }
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.print(&mut text);
        f.write_str(&text)
    }
}

/// For people: `.spec`, `[name="x"]`, `[="x"]`, `[3]`.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                let all: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
                write!(f, "[{}]", all.join(","))
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(at) => write!(f, "[{at}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_what_it_reads() {
        for text in [
            "f:spec",
            "f:a.b/c",
            r#"k:{"kind":"Worker","name":"","purpose":"x \"y\""}"#,
            r#"k:{"port":80}"#,
            r#"v:"a""#,
            "v:3",
            "v:true",
            "v:1.5",
            "v:1.50",
            "v:3333333333333333333333333333333333333333333333333333",
            r#"v:{"a":[0.10,null]}"#,
            r#"k:{"weight":3.3333333333333332e+128}"#,
            "i:0",
            "f:",
        ] {
            let mut printed = String::new();
            Element::parse(text).expect(text).print(&mut printed);
            assert_eq!(printed, text);
        }
    }

    #[test]
    fn keys_are_in_the_order_of_their_names() {
        let mut printed = String::new();
        Element::parse(r#"k:{"b":1,"a":2}"#).expect("keys").print(&mut printed);
        assert_eq!(printed, r#"k:{"a":2,"b":1}"#);
    }

    #[test]
    fn tells_unknown_from_malformed() {
        for text in ["", "f", "k:", "k:[]", "v:", "i:x", "fspec", "é"] {
            assert_eq!(Element::parse(text), Err(Unreadable::Malformed), "{text:?}");
        }
        assert_eq!(Element::parse("x:y"), Err(Unreadable::Unknown));
    }

    #[test]
    fn reads_well_in_messages() {
        for (text, shown) in [
            ("f:spec", ".spec"),
            (r#"k:{"name":"x","port":1}"#, r#"[name="x",port=1]"#),
            (r#"v:"a""#, r#"[="a"]"#),
            ("i:4", "[4]"),
        ] {
            assert_eq!(Element::parse(text).expect(text).to_string(), shown);
        }
    }
}
