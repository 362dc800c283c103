//! What reads requests, as functions of any bytes: for fuzzers and for tests that replay what these found.
//!
//! They may refuse what they are given; they must not panic, and what they print has to be read as the same.

use bytes::Bytes;

use crate::{
    json::{Node, decode_opaque, merge::merge, patch::Patch},
    managed::fields_v1,
};

/// Bytes that `copy` may add.
const COPIED: usize = 1 << 20;

/// A document and, after a NUL, a patch of it, in both languages. What is left is JSON, and compact already.
pub fn patch(input: &[u8]) {
    let at = input.iter().position(|byte| *byte == 0).unwrap_or(input.len());
    let part = |part: &[u8]| Bytes::copy_from_slice(part);
    let (document, change) = (part(&input[..at]), part(input.get(at + 1..).unwrap_or_default()));
    let Ok(document) = decode_opaque(&document) else { return };
    let patched = Patch::parse(&change).ok().and_then(|patch| {
        let mut root = Node::Raw(document.clone());
        let _ = patch.is_within("metadata");
        patch.apply(&mut root, COPIED).ok().map(|()| root)
    });
    let merged = decode_opaque(&change).ok().and_then(|change| {
        let mut root = Node::Raw(document.clone());
        merge(&mut root, Node::Raw(change)).ok().map(|()| root)
    });
    for root in [patched, merged].into_iter().flatten() {
        let raw = root.to_raw();
        assert!(raw.len() <= input.len() * 2 + COPIED + 16, "it grew to {} bytes", raw.len());
        // What is nested deeper than a request may be is refused, and nothing else.
        if let Ok(again) = decode_opaque(raw.bytes()) {
            assert_eq!(again.bytes(), raw.bytes(), "it was not compact");
        } else {
            assert!(serde_json::from_slice::<serde::de::IgnoredAny>(raw.bytes()).is_ok(), "no JSON");
        }
    }
}

/// The set of fields that somebody manages. What is printed of one is read as the same.
pub fn fields(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Ok(set) = fields_v1::parse(text) else { return };
    let printed = fields_v1::print(&set);
    let again = fields_v1::parse(&printed).map(|set| fields_v1::print(&set)).ok();
    assert_eq!(again.as_ref(), Some(&printed));
}

#[cfg(test)]
#[path = "../../../fuzz/driver.rs"]
mod driver;

/// What is kept in `fuzz/corpus`, and changes of it.
#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::driver;

    fn corpus(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name)
    }

    #[test]
    fn patch() {
        driver::fuzz(&corpus("patch"), super::patch);
    }

    #[test]
    fn fields() {
        driver::fuzz(&corpus("fields"), super::fields);
    }
}
