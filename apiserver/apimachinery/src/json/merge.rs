//! JSON Merge Patch (RFC 7396) over trees that open only where the patch enters them.

use std::collections::HashMap;

use super::{
    node::{Key, MAX_OPEN_DEPTH, Node},
    raw::end_of_string,
};

/// The patch enters the document more than [`MAX_OPEN_DEPTH`] deep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the patch goes more than {MAX_OPEN_DEPTH} levels deep")]
pub struct TooDeep;

/// Merges `patch` into `target`: objects member by member, null removes, anything else replaces.
///
/// # Errors
/// [`TooDeep`]; the target is then to be thrown away.
pub fn merge(target: &mut Node, patch: Node) -> Result<(), TooDeep> {
    merge_at(target, patch, 0)
}

fn merge_at(target: &mut Node, mut patch: Node, depth: usize) -> Result<(), TooDeep> {
    if depth > MAX_OPEN_DEPTH {
        return Err(TooDeep);
    }
    // An array replaces what is there as the text that it is.
    open_object(&mut patch);
    let Node::Object(changes) = patch else {
        *target = patch;
        return Ok(());
    };
    open_object(target);
    let members = match std::mem::replace(target, Node::object()) {
        Node::Object(members) => members,
        _ => Vec::new(),
    };
    let mut merged = Members::new(members);
    for (key, value) in changes {
        if value.is_null() {
            merged.remove(key.text());
        } else if let Some(place) = merged.find(key.text()) {
            merge_at(place, value, depth + 1)?;
        } else {
            // Nulls inside a new object mean "absent" too, so it is merged into an empty one.
            let mut fresh = Node::object();
            merge_at(&mut fresh, value, depth + 1)?;
            merged.push(key, fresh);
        }
    }
    *target = Node::Object(merged.0.into_iter().flatten().collect());
    Ok(())
}

fn open_object(node: &mut Node) {
    if !matches!(node, Node::Raw(raw) if raw.first() != b'{') {
        node.open();
    }
}

/// How many members a merge patch opens, at the patch and at what it is merged into: those of objects that stand in no array.
#[must_use]
pub fn members_to_open(text: &[u8]) -> u64 {
    let (mut at, mut arrays, mut members) = (0, 0_usize, 0);
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => {
                at = end_of_string(text, at);
                continue;
            }
            b'[' => arrays += 1,
            b']' => arrays = arrays.saturating_sub(1),
            b':' if arrays == 0 => members += 1,
            _ => {}
        }
        at += 1;
    }
    members
}

/// Members that are found by key at once: a patch may name a hundred thousand.
struct Members(Vec<Option<(Key, Node)>>, HashMap<String, Vec<usize>>);

impl Members {
    fn new(members: Vec<(Key, Node)>) -> Self {
        let mut places = HashMap::<String, Vec<usize>>::new();
        for (at, (key, _)) in members.iter().enumerate() {
            places.entry(key.text().to_owned()).or_default().push(at);
        }
        Self(members.into_iter().map(Some).collect(), places)
    }

    /// Of duplicates the last, as JSON readers do.
    fn find(&mut self, key: &str) -> Option<&mut Node> {
        let at = *self.1.get(key)?.last()?;
        self.0[at].as_mut().map(|(_, node)| node)
    }

    fn remove(&mut self, key: &str) {
        for at in self.1.remove(key).unwrap_or_default() {
            self.0[at] = None;
        }
    }

    fn push(&mut self, key: Key, node: Node) {
        self.1.entry(key.text().to_owned()).or_default().push(self.0.len());
        self.0.push(Some((key, node)));
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::json::decode_opaque;

    fn node(text: &str) -> Node {
        Node::Raw(decode_opaque(&Bytes::copy_from_slice(text.as_bytes())).expect("JSON"))
    }

    #[test]
    fn merges_as_the_rfc_says() {
        let cases = [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
            (r#"{"a":"foo"}"#, "null", "null"),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
            ("[1,2]", r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
            ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
            (r#"{"a":{"n":1.50,"x":1}}"#, r#"{"a":{"x":[null]}}"#, r#"{"a":{"n":1.50,"x":[null]}}"#),
            (r#"{"a":1,"b":2,"a":3}"#, r#"{"a":null}"#, r#"{"b":2}"#),
        ];
        for (target, patch, expected) in cases {
            let mut merged = node(target);
            merge(&mut merged, node(patch)).expect(patch);
            assert_eq!(merged.to_raw().bytes(), expected.as_bytes(), "{target} + {patch}");
        }
    }

    #[test]
    fn counts_the_members_that_it_opens() {
        for (text, members) in [
            ("{}", 0),
            (r#"{"a":1,"b:\"[":{"c":":"}}"#, 3),
            (r#"{"a":[{"b":1},{"c":2}],"d":1}"#, 2),
            (r#"[{"a":1}]"#, 0),
        ] {
            assert_eq!(members_to_open(text.as_bytes()), members, "{text}");
        }
    }

    #[test]
    fn an_array_is_taken_over_unopened() {
        let mut target = node(r#"{"a":[1]}"#);
        merge(&mut target, node(r#"{"a":[{"b":1}]}"#)).expect("merges");
        assert!(matches!(target.member("a"), Some(Node::Raw(_))));
    }

    #[test]
    fn refuses_a_patch_that_would_exhaust_the_stack() {
        let deep = r#"{"a":"#.repeat(9000) + "1" + &"}".repeat(9000);
        assert_eq!(merge(&mut node("{}"), node(&deep)), Err(TooDeep));
    }
}
