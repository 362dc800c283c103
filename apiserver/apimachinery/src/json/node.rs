//! A JSON tree that goes no deeper than somebody needs it to.

use bytes::Bytes;

use super::raw::Raw;

/// Trees are not opened deeper than this: they are written, compared and dropped by recursion. Text may go deeper.
pub const MAX_OPEN_DEPTH: usize = 100;

/// A key of an object. Keys of opaque parts keep their spelling, such as `"\u0061"`.
#[derive(Clone, Debug)]
pub struct Key(KeyText);

/// Small, since an object may have a million keys: 24 bytes, and declared names are not copied.
#[derive(Clone, Debug)]
enum KeyText {
    Declared(&'static str),
    Plain(Box<str>),
    /// The key, and its JSON token.
    Spelled(Box<(String, Bytes)>),
}

impl Key {
    /// The key as text.
    #[must_use]
    pub fn text(&self) -> &str {
        match &self.0 {
            KeyText::Declared(text) => text,
            KeyText::Plain(text) => text,
            KeyText::Spelled(spelled) => &spelled.0,
        }
    }

    /// A key from its JSON token, quotes included.
    #[must_use]
    pub fn from_token(token: &Raw) -> Self {
        let text: String = serde_json::from_slice(token.bytes()).unwrap_or_default();
        match token.bytes().contains(&b'\\') {
            true => Self(KeyText::Spelled(Box::new((text, token.bytes().clone())))),
            false => Self::from(text),
        }
    }

    /// How many bytes of it are not shared with the schema.
    pub(super) fn copied(&self) -> usize {
        match &self.0 {
            KeyText::Declared(_) => 0,
            KeyText::Plain(text) => text.len(),
            KeyText::Spelled(spelled) => spelled.0.len(),
        }
    }

    /// The JSON token, where it is not the usual one.
    pub(super) fn token(&self) -> Option<&Bytes> {
        match &self.0 {
            KeyText::Spelled(spelled) => Some(&spelled.1),
            KeyText::Declared(_) | KeyText::Plain(_) => None,
        }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text() && self.token() == other.token()
    }
}

impl Eq for Key {}

impl From<&'static str> for Key {
    fn from(text: &'static str) -> Self {
        Self(KeyText::Declared(text))
    }
}

impl From<String> for Key {
    fn from(text: String) -> Self {
        Self(KeyText::Plain(text.into_boxed_str()))
    }
}

/// A JSON value: a tree above, [`Raw`] text below.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// A string.
    String(String),
    /// A whole number.
    Integer(i64),
    /// A boolean.
    Bool(bool),
    /// An array.
    Array(Vec<Node>),
    /// An object, in order.
    Object(Vec<(Key, Node)>),
    /// Anything, token for token.
    Raw(Raw),
}

impl Node {
    /// An object without members.
    #[must_use]
    pub fn object() -> Self {
        Self::Object(Vec::new())
    }

    /// The member with this key; of duplicates the last, as JSON readers do.
    #[must_use]
    pub fn member(&self, key: &str) -> Option<&Node> {
        match self {
            Self::Object(members) => members.iter().rev().find(|(k, _)| k.text() == key).map(|(_, v)| v),
            _ => None,
        }
    }

    /// As [`Node::member`], to be changed.
    pub fn member_mut(&mut self, key: &str) -> Option<&mut Node> {
        match self {
            Self::Object(members) => members.iter_mut().rev().find(|(k, _)| k.text() == key).map(|(_, v)| v),
            _ => None,
        }
    }

    /// Takes the member with this key out, with its duplicates.
    pub fn take(&mut self, key: &str) -> Option<Node> {
        let Self::Object(members) = self else { return None };
        // In one pass: a client may send a hundred thousand duplicates.
        members.extract_if(.., |(found, _)| found.text() == key).last().map(|(_, node)| node)
    }

    /// Sets a member: in its place where it exists, at the end where not.
    pub fn set(&mut self, key: impl Into<Key>, value: Node) {
        let key = key.into();
        if let Some(place) = self.member_mut(key.text()) {
            *place = value;
        } else if let Self::Object(members) = self {
            members.push((key, value));
        }
    }

    /// The elements, where this is an array of the tree.
    #[must_use]
    pub fn items(&self) -> &[Node] {
        match self {
            Self::Array(items) => items,
            _ => &[],
        }
    }

    /// The members, where this is an object of the tree.
    #[must_use]
    pub fn members(&self) -> &[(Key, Node)] {
        match self {
            Self::Object(members) => members,
            _ => &[],
        }
    }

    /// The string member with this key.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.member(key)? {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// Opens raw text by one level: its members or elements stay raw. Other nodes stay as they are.
    pub fn open(&mut self) {
        let Self::Raw(raw) = self else { return };
        let count = raw.count();
        let members = raw.members().map(|members| {
            let mut opened = Vec::with_capacity(count);
            opened.extend(members.map(|(key, value)| (Key::from_token(&key), Self::Raw(value))));
            Self::Object(opened)
        });
        let opened = members.or_else(|| {
            let elements = raw.elements()?;
            let mut opened = Vec::with_capacity(count);
            opened.extend(elements.map(Self::Raw));
            Some(Self::Array(opened))
        });
        if let Some(opened) = opened {
            *self = opened;
        }
    }

    /// How many nodes [`Node::open`] makes.
    #[must_use]
    pub fn count_to_open(&self) -> usize {
        match self {
            Self::Raw(raw) => raw.count(),
            _ => 0,
        }
    }

    /// Whether this is JSON's `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Raw(raw) if raw.first() == b'n')
    }

    /// About how many bytes the node has as compact JSON; rather too many than too few.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::String(text) => text.len() + 2 + text.len() / 16,
            Self::Integer(_) | Self::Bool(_) => 20,
            Self::Array(items) => 2 + items.iter().map(|item| item.size() + 1).sum::<usize>(),
            Self::Object(members) => {
                2 + members.iter().map(|(key, value)| key.text().len() + 4 + value.size()).sum::<usize>()
            }
            Self::Raw(raw) => raw.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(text: &str) -> Node {
        Node::Raw(Raw::from_valid(Bytes::copy_from_slice(text.as_bytes())).expect("bearable depth"))
    }

    #[test]
    fn opening_changes_no_token() {
        let text = r#"{"a":1e0,"\u0061":[{"b":"x\/y"},[]],"a":2,"z":{}}"#;
        let mut value = node(text);
        value.open();
        value.member_mut("a").expect("member").open();
        let Node::Object(members) = &mut value else { panic!("an object") };
        members[1].1.open();
        assert_eq!(value.to_raw().bytes(), text.as_bytes());
    }

    #[test]
    fn taking_a_member_takes_its_duplicates() {
        let mut value = node(r#"{"a":1,"b":2,"a":3}"#);
        value.open();
        assert_eq!(value.take("a"), Some(node("3")));
        assert_eq!(value.to_raw().bytes(), &b"{\"b\":2}"[..]);
    }
}
