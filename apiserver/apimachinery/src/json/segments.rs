//! Writing compact JSON. What is written is mostly what a client sent, byte for byte: then it is not copied.

use std::{io, ops::Range};

use bytes::{Bytes, BytesMut};

use super::{
    node::{Key, Node},
    raw::Raw,
};

/// Raw values from this size on become a segment of their own; smaller ones go with their neighbours.
const OWN_SEGMENT: usize = 4096;
/// A part keeps all of its source in memory. It is copied where more than an eighth of the source would be kept for nothing: a client
/// may send much that is dropped.
pub const KEPT_FOR_NOTHING: usize = 8;
/// A source of so many bytes may be kept for the shortest part.
const SHORT: usize = 64 << 10;

/// Compact JSON being written, and the joints of its structure: where an element of a list starts, and around a large
/// opaque value. The store cuts its chunks there.
#[derive(Default)]
pub struct Segments {
    text: Text,
    joints: Vec<usize>,
    /// What the tree was read from, until it is known whether the text is a part of it.
    source: Option<Bytes>,
    /// About how long the text will be.
    expected: usize,
}

/// What is written so far.
enum Text {
    Written(BytesMut),
    /// The same as a part of the source.
    Part(Bytes, Range<usize>),
}

impl Default for Text {
    fn default() -> Self {
        Self::Written(BytesMut::new())
    }
}

impl Segments {
    /// To write a tree of about so many bytes. `source`: the text that the tree was read from; what is written is a part of it as long
    /// as it says the same, and a copy from the first difference on.
    #[must_use]
    pub fn of(source: Option<Bytes>, expected: usize) -> Self {
        Self { source, expected, ..Self::default() }
    }

    /// Writes a value as compact JSON.
    pub fn write(&mut self, node: &Node) {
        match node {
            Node::String(text) => self.string(text),
            Node::Integer(number) => self.literal(&number.to_string()),
            Node::Bool(value) => self.literal(if *value { "true" } else { "false" }),
            Node::Array(items) => self.array(items),
            Node::Object(members) => {
                self.literal("{");
                self.members(members.iter().map(|(key, value)| (key, value)));
                self.literal("}");
            }
            Node::Raw(raw) => self.raw(raw),
        }
    }

    /// Writes members with commas between them, without the braces.
    pub fn members<'a>(&mut self, members: impl Iterator<Item = (&'a Key, &'a Node)>) {
        for (at, (key, value)) in members.enumerate() {
            if at > 0 {
                self.literal(",");
            }
            match key.token() {
                Some(token) => self.put(token),
                None => self.string(key.text()),
            }
            self.literal(":");
            self.write(value);
        }
    }

    /// Bytes written so far.
    #[must_use]
    pub fn written(&self) -> usize {
        match &self.text {
            Text::Written(text) => text.len(),
            Text::Part(_, part) => part.len(),
        }
    }

    /// Everything written, and the offsets of its joints.
    #[must_use]
    pub fn finish(self) -> (Bytes, Vec<usize>) {
        let text = match self.text {
            Text::Written(text) => text.freeze(),
            Text::Part(source, part) if may_keep(source.len(), part.len()) => source.slice(part),
            Text::Part(source, part) => Bytes::copy_from_slice(&source[part]),
        };
        (text, self.joints)
    }

    fn array(&mut self, items: &[Node]) {
        self.literal("[");
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                self.literal(",");
            }
            if matches!(item, Node::Object(_)) {
                self.joint();
            }
            self.write(item);
        }
        self.literal("]");
    }

    fn raw(&mut self, raw: &Raw) {
        self.find_in_source(raw);
        let own = raw.len() >= OWN_SEGMENT;
        if own {
            self.joint();
        }
        self.put(raw.bytes());
        if own {
            self.joint();
        }
    }

    /// Where the first opaque value is a part of the source, all that was written before it may be the text in front of it there.
    fn find_in_source(&mut self, raw: &Raw) {
        let Text::Written(text) = &self.text else { return };
        let Some(at) = self.source.as_ref().and_then(|source| offset(source, raw.bytes())) else { return };
        let Some(source) = self.source.take() else { return };
        if source[..at].ends_with(text) {
            self.text = Text::Part(source, at - text.len()..at);
        }
    }

    fn joint(&mut self) {
        let here = self.written();
        if self.joints.last() != Some(&here) {
            self.joints.push(here);
        }
    }

    /// Writes text as it is.
    pub(crate) fn literal(&mut self, text: &str) {
        self.put(text.as_bytes());
    }

    fn string(&mut self, text: &str) {
        // Writing to memory cannot fail, and a string always has a JSON form.
        let _ = serde_json::to_writer(Writer(self), text);
    }

    fn put(&mut self, bytes: &[u8]) {
        if let Text::Part(source, part) = &mut self.text {
            if goes_on_with(&source[part.end..], bytes) {
                part.end += bytes.len();
                return;
            }
            let mut text = BytesMut::with_capacity(self.expected.max(part.len() + bytes.len()));
            text.extend_from_slice(&source[part.clone()]);
            self.text = Text::Written(text);
        }
        if let Text::Written(text) = &mut self.text {
            if self.source.is_none() && text.len() + bytes.len() > text.capacity() {
                // At once, so that a long text is not moved while it grows.
                text.reserve(self.expected.saturating_sub(text.len()).max(bytes.len()));
            }
            text.extend_from_slice(bytes);
        }
    }
}

impl Node {
    /// The node as one piece of compact JSON.
    #[must_use]
    pub fn to_raw(&self) -> Raw {
        match self {
            Self::Raw(raw) => raw.clone(),
            _ => {
                let mut segments = Segments::default();
                segments.write(self);
                Raw::from_compact(segments.finish().0)
            }
        }
    }
}

struct Writer<'a>(&'a mut Segments);

impl io::Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.put(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether a source may be kept in memory for a part of it. Both in bytes.
fn may_keep(source: usize, part: usize) -> bool {
    source <= SHORT || source - part <= source / KEPT_FOR_NOTHING
}

/// Where a part is in the text that it is a slice of.
fn offset(whole: &[u8], part: &[u8]) -> Option<usize> {
    let at = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    (at + part.len() <= whole.len()).then_some(at)
}

/// Whether a text begins with another one. It mostly is that text itself, which need not be read.
fn goes_on_with(rest: &[u8], bytes: &[u8]) -> bool {
    let itself = rest.as_ptr() == bytes.as_ptr() && bytes.len() <= rest.len();
    itself || rest.starts_with(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        json::{Findings, decode},
        sample::KIND_INFO,
    };

    fn node(text: &str) -> Node {
        Node::Raw(Raw::from_valid(Bytes::copy_from_slice(text.as_bytes())).expect("bearable depth"))
    }

    /// The written text, cut at its joints.
    fn cut(tree: &Node) -> Vec<Bytes> {
        let mut segments = Segments::default();
        segments.write(tree);
        let (mut text, joints) = segments.finish();
        let mut cut: Vec<_> = joints.into_iter().rev().map(|joint| text.split_off(joint)).collect();
        cut.push(text);
        cut.reverse();
        cut
    }

    #[test]
    fn large_opaque_values_are_segments() {
        let large = format!("\"{}\"", "x".repeat(OWN_SEGMENT));
        let mut tree = Node::object();
        tree.set("a", node("1"));
        tree.set("b", node(&large));
        assert_eq!(cut(&tree), ["{\"a\":1,\"b\":", large.as_str(), "}"]);
    }

    #[test]
    fn list_elements_start_segments() {
        let mut items = Vec::new();
        for n in 0..3 {
            let mut item = Node::object();
            item.set("n", Node::Integer(n));
            items.push(item);
        }
        assert_eq!(cut(&Node::Array(items)), ["[", "{\"n\":0},", "{\"n\":1},", "{\"n\":2}]"]);
    }

    /// What is written of the spec of a sample, and whether it is a part of the text that it was read from.
    fn spec_of(text: &str, change: impl FnOnce(&mut Node)) -> (String, bool) {
        let source = Bytes::copy_from_slice(text.as_bytes());
        let mut root = decode(&source, KIND_INFO.schema, &mut Findings::default()).expect("JSON");
        let mut spec = root.take("spec").expect("a spec");
        change(&mut spec);
        let mut copied = Segments::default();
        copied.write(&spec);
        let mut segments = Segments::of(Some(source.clone()), spec.size());
        segments.write(&spec);
        assert_eq!(segments.written(), copied.written());
        let (written, joints) = segments.finish();
        assert_eq!((&written, &joints), (&copied.text_so_far(), &copied.joints), "{text}");
        let part = offset(&source, &written).is_some();
        (String::from_utf8(written.to_vec()).expect("UTF-8"), part)
    }

    #[test]
    fn what_a_client_sent_is_not_copied() {
        let large = format!("{{\"x\":\"{}\"}}", "y".repeat(OWN_SEGMENT));
        let spec = format!(r#"{{"items":[{{"name":"a","data":{large}}},{{"name":"b","data":{{}}}}]}}"#);
        let text = format!(r#"{{"kind":"Sample","spec":{spec},"metadata":{{"name":"s"}}}}"#);
        assert_eq!(spec_of(&text, |_| {}), (spec, true));
    }

    #[test]
    fn a_short_part_does_not_keep_a_long_text() {
        let spec = r#"{"items":[{"name":"a","data":{"x":1}}]}"#;
        for (unknown, part) in [(SHORT / 2, true), (SHORT, false)] {
            let text = format!(r#"{{"unknown":"{}","spec":{spec}}}"#, "y".repeat(unknown));
            assert_eq!(spec_of(&text, |_| {}), (spec.to_owned(), part), "{unknown} bytes");
        }
        let long = spec.replace("1}", &format!("\"{}\"}}", "y".repeat(8 * SHORT)));
        let with = |unknown| format!(r#"{{"unknown":"{}","spec":{long}}}"#, "y".repeat(unknown));
        assert_eq!(spec_of(&with(SHORT), |_| {}), (long.clone(), true));
        assert_eq!(spec_of(&with(2 * SHORT), |_| {}), (long.clone(), false));
    }

    #[test]
    fn what_differs_from_what_a_client_sent_is_copied() {
        let text = |spec: &str| format!(r#"{{"spec":{spec}}}"#);
        let (before, after) = (r#"{"name":"a","data":{"x":1}}"#, r#"{"name":"b","data":{"x":2}}"#);
        let items = format!(r#"{{"items":[{before},{after}]}}"#);
        // A field that is dropped, before and behind the first opaque value.
        for at in ["a", "b"] {
            let with = items.replace(&format!(r#""name":"{at}""#), &format!(r#""name":"{at}","q":1"#));
            assert_eq!(spec_of(&text(&with), |_| {}), (items.clone(), false), "{at}");
        }
        // Another spelling of a string.
        let spelled = items.replace("\"b\"", "\"\\u0062\"");
        assert_eq!(spec_of(&text(&spelled), |_| {}), (items.clone(), false));
        // Whitespace, in opaque values and between others.
        for spaced in [items.replace("{\"x\":1}", "{\"x\": 1}"), items.replace("},{\"name", "}, {\"name")] {
            assert_eq!(spec_of(&text(&spaced), |_| {}), (items.clone(), false), "{spaced}");
        }
        // What the server changes, and the end of the text.
        let (written, part) = spec_of(&text(&items), |spec| {
            let Some(Node::Array(items)) = spec.member_mut("items") else { panic!("an array") };
            items.truncate(1);
            items.push(Node::object());
        });
        assert_eq!((written, part), (format!(r#"{{"items":[{before},{{}}]}}"#), false));
    }

    #[test]
    fn a_tree_of_another_text_is_copied() {
        let mut segments = Segments::of(Some(Bytes::from_static(b"[1]")), 3);
        segments.write(&node("[1]"));
        assert_eq!(segments.finish().0, "[1]");
    }

    impl Segments {
        fn text_so_far(&self) -> Bytes {
            match &self.text {
                Text::Written(text) => Bytes::copy_from_slice(text),
                Text::Part(source, part) => source.slice(part.clone()),
            }
        }
    }
}
