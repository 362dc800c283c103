//! Private keys in PEM.

use std::sync::LazyLock;

use regex::Regex;

/// What stands for a key.
const REMOVED: &str = "[REDACTED private key]";
/// No private key is longer, in bytes: one of RSA with 16,384 bits has about 12,700, and lines of a log have a beginning of their own.
const LONGEST: usize = 32 << 10;

/// `BEGIN` or `END` of a private key, also where its letters stand on two lines.
static MARKER: LazyLock<Regex> = LazyLock::new(|| {
    let letters = |word: &str| word.chars().map(|c| format!(r"{c}(?:\s|\\n)*")).collect::<String>();
    let pattern = format!(
        r"(?i)-{{2,}}(?:\s|\\n)*({}|{})[A-Z0-9\s]*?{}{}[A-Z\s]*-{{2,}}",
        letters("BEGIN"),
        letters("END"),
        letters("PRIVATE"),
        letters("KEY")
    );
    Regex::new(&pattern).expect("a pattern")
});

/// The text without private keys. One whose end is missing goes as far as a key can reach; so does one whose begin is missing.
pub(super) fn remove(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(found) = MARKER.captures(rest) {
        let (Some(marker), Some(word)) = (found.get(0), found.get(1)) else { break };
        let is_begin = word.as_str().starts_with(['b', 'B']);
        out.push_str(&rest[..marker.start()]);
        let after = &rest[marker.end()..];
        if is_begin {
            rest = &after[end_of_key(after)..];
        } else {
            out.truncate(out.floor_char_boundary(out.len().saturating_sub(LONGEST)));
            rest = after;
        }
        out.push_str(REMOVED);
    }
    out.push_str(rest);
    out
}

/// Where a key ends that has just begun.
fn end_of_key(text: &str) -> usize {
    let longest = text.floor_char_boundary(LONGEST);
    let next = MARKER.captures(&text[..longest]);
    let ends = next.as_ref().and_then(|next| Some((next.get(0)?, next.get(1)?)));
    match ends {
        Some((marker, word)) if word.as_str().starts_with(['e', 'E']) => marker.end(),
        // Another key begins before this one has ended.
        Some((marker, _)) => marker.start(),
        None => longest,
    }
}
