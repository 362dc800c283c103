//! What JSON looks like, seen while it comes in pieces and before anybody reads it.

use repot_apimachinery::json::raw::MAX_DEPTH;

/// Whether JSON that comes in pieces has whitespace between its tokens, and how deep it is. Around the whole value, whitespace does not
/// count.
#[derive(Clone, Copy, Default)]
pub(super) struct Gaps {
    /// The first byte that is no whitespace.
    first: Option<u8>,
    depth: usize,
    deepest: usize,
    in_string: bool,
    escaped: bool,
    found: bool,
}

impl Gaps {
    /// Whether there is whitespace between tokens.
    pub(super) fn found(&self) -> bool {
        self.found
    }

    /// Whether the first byte is the one of an object.
    pub(super) fn starts_as_object(&self) -> bool {
        self.first == Some(b'{')
    }

    /// Whether there is no whitespace between tokens, and no more depth than a reader takes. All of the text has been looked at.
    pub(super) fn is_compact(&self) -> bool {
        !self.found && self.deepest <= MAX_DEPTH
    }

    /// Looks at the next piece.
    pub(super) fn look(&mut self, piece: &[u8]) {
        if self.found {
            return;
        }
        if self.first.is_none() {
            self.first = piece.iter().copied().find(|byte| !byte.is_ascii_whitespace());
        }
        let mut rest = piece;
        while let Some((byte, after)) = rest.split_first() {
            rest = match self.in_string {
                true => self.string(rest),
                false => {
                    self.token(*byte);
                    after
                }
            };
        }
    }

    /// What is left behind the string, which may go on in the next piece. Strings are long in this field: jump, do not step.
    fn string<'a>(&mut self, piece: &'a [u8]) -> &'a [u8] {
        let from = usize::from(std::mem::take(&mut self.escaped));
        let rest = &piece[from..];
        let Some(at) = memchr::memchr2(b'"', b'\\', rest) else { return &[] };
        self.in_string = rest[at] != b'"';
        self.escaped = self.in_string;
        &rest[at + 1..]
    }

    fn token(&mut self, byte: u8) {
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => {
                self.depth += 1;
                self.deepest = self.deepest.max(self.depth);
            }
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            b' ' | b'\n' | b'\r' | b'\t' if self.depth > 0 => self.found = true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str, at: usize) -> Gaps {
        let mut gaps = Gaps::default();
        gaps.look(&text.as_bytes()[..at]);
        gaps.look(&text.as_bytes()[at..]);
        gaps
    }

    #[test]
    fn sees_whitespace_between_tokens_however_it_is_cut() {
        for (text, indented) in [
            (r#"{"a b":"c\" d\\","e":[1,"\\\" "]}"#, false),
            (" {\"a\":[]}\n", false),
            (r#"{"a": 1}"#, true),
            ("{\"a\":[\n]}", true),
            (r#"{"a":"\\" }"#, true),
        ] {
            for at in 0..text.len() {
                let gaps = cut(text, at);
                assert_eq!(gaps.found(), indented, "{text} cut at {at}");
                assert_eq!(gaps.is_compact(), !indented, "{text} cut at {at}");
            }
        }
    }

    #[test]
    fn what_is_too_deep_for_a_reader_is_not_taken_for_compact() {
        let deep = |depth| "[".repeat(depth) + &"]".repeat(depth);
        assert!(cut(&deep(MAX_DEPTH), 7).is_compact());
        assert!(!cut(&deep(MAX_DEPTH + 1), 7).is_compact());
    }
}
