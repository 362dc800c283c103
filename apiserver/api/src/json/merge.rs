//! JSON Merge Patch (RFC 7396) over trees that open only where the patch enters them.

use super::node::Node;

/// Merges `patch` into `target`: objects member by member, null removes, anything else replaces.
pub fn merge(target: &mut Node, mut patch: Node) {
    patch.open();
    let Node::Object(members) = patch else {
        *target = patch;
        return;
    };
    target.open();
    if !matches!(target, Node::Object(_)) {
        *target = Node::object();
    }
    for (key, value) in members {
        if value.is_null() {
            target.take(key.text());
        } else if let Some(place) = target.member_mut(key.text()) {
            merge(place, value);
        } else {
            // Nulls inside a new object mean "absent" too, so it is merged into an empty one.
            let mut fresh = Node::object();
            merge(&mut fresh, value);
            target.set(key, fresh);
        }
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
        ];
        for (target, patch, expected) in cases {
            let mut merged = node(target);
            merge(&mut merged, node(patch));
            assert_eq!(merged.to_raw().bytes(), expected.as_bytes(), "{target} + {patch}");
        }
    }
}
