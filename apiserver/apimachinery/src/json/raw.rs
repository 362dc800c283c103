//! A JSON value that is carried, not understood.
//!
//! Invariant: a [`Raw`] holds one valid JSON value without whitespace outside strings. Number and string spelling, key
//! order and duplicate keys are those of the author. It is made from bytes that a JSON parser has already accepted, so
//! the walks in this file only need to find where values end.

use bytes::{Bytes, BytesMut};
use memchr::memchr2;

/// Deeper nesting is refused: the usual JSON decoders of this field stop at ten thousand.
pub const MAX_DEPTH: usize = 10_000;

/// One JSON value, token for token.
#[derive(Clone, PartialEq, Eq)]
pub struct Raw(Bytes);

/// The value is nested more than [`MAX_DEPTH`] deep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("JSON is nested more than {MAX_DEPTH} deep")]
pub struct TooDeep;

// Payload is secret: only its size may be printed.
impl std::fmt::Debug for Raw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Raw({} bytes)", self.0.len())
    }
}

impl Raw {
    /// Takes over bytes that a parser accepted as one JSON value; whitespace outside strings is dropped. Copies only
    /// where there is such whitespace.
    ///
    /// # Errors
    /// [`TooDeep`].
    pub fn from_valid(bytes: Bytes) -> Result<Self, TooDeep> {
        let gaps = survey(&bytes)?;
        Ok(Self(if gaps { compact(&bytes) } else { bytes }))
    }

    /// Takes over bytes that this crate wrote itself: one JSON value, compact.
    #[must_use]
    pub fn from_compact(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// The JSON literal `null` as a value.
    #[must_use]
    pub fn null() -> Self {
        Self(Bytes::from_static(b"null"))
    }

    /// The value as text.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// The value as text, given away.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// Length of the text in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no text at all, which no valid value has.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// First byte of the text: tells the type of the value.
    #[must_use]
    pub fn first(&self) -> u8 {
        self.0.first().copied().unwrap_or(b'n')
    }

    /// The members of an object, each key with its quotes; `None` for other types.
    #[must_use]
    pub fn members(&self) -> Option<impl Iterator<Item = (Raw, Raw)> + '_> {
        (self.first() == b'{').then(|| {
            let mut at = 1;
            std::iter::from_fn(move || {
                let here = at;
                (here + 1 < self.0.len()).then(|| {
                    let colon = end_of_value(&self.0, here);
                    let end = end_of_value(&self.0, colon + 1);
                    at = end + 1;
                    (self.cut(here, colon), self.cut(colon + 1, end))
                })
            })
        })
    }

    /// The elements of an array; `None` for other types.
    #[must_use]
    pub fn elements(&self) -> Option<impl Iterator<Item = Raw> + '_> {
        (self.first() == b'[').then(|| {
            let mut at = 1;
            std::iter::from_fn(move || {
                let here = at;
                (here + 1 < self.0.len()).then(|| {
                    let end = end_of_value(&self.0, here);
                    at = end + 1;
                    self.cut(here, end)
                })
            })
        })
    }

    /// How many members or elements the value has.
    #[must_use]
    pub fn count(&self) -> usize {
        let members = self.members().map_or(0, Iterator::count);
        members + self.elements().map_or(0, Iterator::count)
    }

    /// The first member of a sequence of members without braces: key with quotes, value, and where the next one starts.
    #[must_use]
    pub fn first_member(members: &Bytes) -> (Raw, Raw, usize) {
        let all = Raw(members.clone());
        let colon = end_of_value(members, 0);
        let end = end_of_value(members, colon + 1);
        (all.cut(0, colon), all.cut(colon + 1, end), end + 1)
    }

    fn cut(&self, from: usize, to: usize) -> Raw {
        Raw(self.0.slice(from.min(self.0.len())..to.min(self.0.len())))
    }
}

/// Whether valid JSON has whitespace outside strings, and whether its depth is bearable.
fn survey(bytes: &[u8]) -> Result<bool, TooDeep> {
    let (mut at, mut depth, mut gaps) = (0, 0_usize, false);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                at = end_of_string(bytes, at);
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b' ' | b'\n' | b'\r' | b'\t' => gaps = true,
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err(TooDeep);
        }
        at += 1;
    }
    Ok(gaps)
}

fn compact(bytes: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                let end = end_of_string(bytes, at);
                out.extend_from_slice(&bytes[at..end]);
                at = end;
                continue;
            }
            b' ' | b'\n' | b'\r' | b'\t' => {}
            other => out.extend_from_slice(std::slice::from_ref(other)),
        }
        at += 1;
    }
    out.freeze()
}

/// The index after the string that starts at `at`. Strings are long in this field (base64, PEM): jump, do not step.
pub(super) fn end_of_string(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while let Some(hit) = memchr2(b'"', b'\\', bytes.get(at..).unwrap_or_default()) {
        at += hit + 1;
        if bytes[at - 1] == b'"' {
            return at;
        }
        at += 1;
    }
    bytes.len()
}

/// The index after the value that starts at `at` in compact JSON.
fn end_of_value(bytes: &[u8], at: usize) -> usize {
    let (mut at, mut depth) = (at, 0_usize);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                at = end_of_string(bytes, at);
                if depth == 0 {
                    return at;
                }
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' | b',' | b':' if depth == 0 => return at,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Raw {
        Raw::from_valid(Bytes::copy_from_slice(text.as_bytes())).expect("bearable depth")
    }

    fn text(raw: &Raw) -> &str {
        std::str::from_utf8(raw.bytes()).expect("UTF-8")
    }

    #[test]
    fn drops_whitespace_outside_strings_only() {
        assert_eq!(
            text(&raw("{ \"a b\" :\t[1 , 1.0e+3,\n\"x \\\" y\"] }")),
            "{\"a b\":[1,1.0e+3,\"x \\\" y\"]}"
        );
    }

    #[test]
    fn keeps_compact_text_without_a_copy() {
        let bytes = Bytes::from_static(b"{\"a\":\"b c\"}");
        let kept = Raw::from_valid(bytes.clone()).expect("bearable depth");
        assert_eq!(kept.bytes().as_ptr(), bytes.as_ptr());
    }

    #[test]
    fn lists_members_with_duplicates_and_spelling() {
        let value = raw(r#"{"a":{"x":[1,{"y":"}"}]},"a":1e0,"\u0062":"","c":[]}"#);
        let members: Vec<_> = value.members().expect("object").collect();
        let seen: Vec<_> = members.iter().map(|(k, v)| (text(k), text(v))).collect();
        assert_eq!(
            seen,
            [("\"a\"", r#"{"x":[1,{"y":"}"}]}"#), ("\"a\"", "1e0"), ("\"\\u0062\"", "\"\""), ("\"c\"", "[]")]
        );
    }

    #[test]
    fn lists_elements() {
        let value = raw(r#"["a,b",[1,2],{"c":[3]},null,-1]"#);
        let elements: Vec<_> = value.elements().expect("array").collect();
        assert_eq!(value.count(), elements.len());
        assert_eq!(
            elements.iter().map(text).collect::<Vec<_>>(),
            ["\"a,b\"", "[1,2]", "{\"c\":[3]}", "null", "-1"]
        );
        assert_eq!((raw("[]").count(), raw("{}").count(), raw("{\"a\":[1,2]}").count()), (0, 0, 1));
        assert!(raw("1").members().is_none() && raw("{}").elements().is_none());
    }

    #[test]
    fn refuses_bottomless_nesting() {
        let deep = "[".repeat(MAX_DEPTH + 1) + &"]".repeat(MAX_DEPTH + 1);
        assert_eq!(Raw::from_valid(deep.into_bytes().into()), Err(TooDeep));
    }
}
