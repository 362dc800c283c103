//! Long base64: keys, tokens, whole files, on one line or on several.

use std::sync::LazyLock;

use regex::{Captures, Regex};

/// A run of base64 that is as long as the shortest key that is known: a secret of AWS has 40 characters.
const SHORTEST: usize = 40;

/// One run, or several of at least 16 characters with nothing but space between them.
static RUN: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r"[A-Za-z0-9+/_=-]{16,}(?:(?:\s|\\+[nrt])+[A-Za-z0-9+/_=-]{16,})*";
    Regex::new(pattern).expect("a pattern")
});

pub(super) fn remove(text: &str) -> String {
    RUN.replace_all(text, |found: &Captures<'_>| replacement(&found[0])).into_owned()
}

/// Pieces that are words of Kubernetes stay; what may be a key goes, all of it that stands together.
fn replacement(run: &str) -> String {
    let is_space = |c: char| c.is_whitespace() || c == '\\';
    let mut out = String::new();
    let (mut pending, mut at) = (Vec::new(), 0);
    let pieces = run.split_inclusive(is_space).map(|piece| {
        let range = at..at + piece.len();
        at += piece.len();
        range
    });
    for range in pieces {
        if is_random(&run[range.clone()]) || (run[range.clone()].len() < 3 && !pending.is_empty()) {
            pending.push(range);
        } else {
            flush(run, &mut pending, &mut out);
            out.push_str(&run[range]);
        }
    }
    flush(run, &mut pending, &mut out);
    out
}

/// Writes what was collected: itself, if it is too short for a key.
fn flush(run: &str, pending: &mut Vec<std::ops::Range<usize>>, out: &mut String) {
    let (Some(first), Some(last)) = (pending.first(), pending.last()) else { return };
    let all = &run[first.start..last.end];
    let is_base64 = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '_' | '=' | '-');
    let count = all.chars().filter(is_base64).count();
    if count >= SHORTEST {
        out.push_str("[REDACTED base64]");
        out.push_str(&all[all.trim_end().len()..]);
    } else {
        out.push_str(all);
    }
    pending.clear();
}

/// Whether one part between slashes is random: those of a path are words.
fn is_random(piece: &str) -> bool {
    piece.split('/').any(is_random_part)
}

/// Whether upper case, lower case and digits are mixed, as in base64; names of objects, UUIDs and digests are not like that. A line
/// of a key may lack one of them.
fn is_random_part(piece: &str) -> bool {
    let has = |test: fn(&char) -> bool| piece.chars().any(|c| test(&c));
    let classes = [has(char::is_ascii_uppercase), has(char::is_ascii_lowercase), has(char::is_ascii_digit)];
    let count = classes.into_iter().filter(|has| *has).count();
    count == 3
        || (count == 2 && classes[0] && piece.len() < 100 && !piece.contains('-') && looks_mixed(piece))
}

/// Whether upper case follows lower case more often than in a name such as `ControlPlaneMigration`.
fn looks_mixed(piece: &str) -> bool {
    let letters: Vec<char> = piece.chars().collect();
    let changes = letters
        .windows(2)
        .filter(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase())
        .count();
    changes * 6 >= letters.len()
}
