//! Tokens, headers, passwords in URLs, and values behind names that tell what they are.

use std::sync::LazyLock;

use regex::{Captures, Regex};

/// What stands for a secret.
pub(super) const REMOVED: &str = "[REDACTED]";

/// Names whose values are secret, at their end. In objects the same names have no dashes.
const NAMES: &str = r"(?:password|passwd|passphrase|secret|token|api[-_.]?key|access[-_.]?key(?:[-_.]?id)?|secret[-_.]?key|private[-_.]?key|client[-_.]?key(?:[-_.]?data)?|account[-_.]?key|encryption[-_.]?key|shared[-_.]?key|storage[-_.]?key|connection[-_.]?string|credentials?|kubeconfig)";

/// Each pattern, and what replaces it.
static PATTERNS: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    let all: [(&str, &str); 11] = [
        // JSON Web Tokens, and their first part alone.
        (r"eyJ[A-Za-z0-9_-]{8,}(?:\s*\.\s*[A-Za-z0-9_-]+){0,4}\.?", REMOVED),
        // Users and passwords in URLs. A password may have slashes and `@`, so it ends at the last `@` of the word.
        (r#"([A-Za-z][A-Za-z0-9+.-]*://)[^/\s"'<>:@\[]+:[^\s"'<>]*@"#, "${1}[REDACTED]@"),
        (r#"([A-Za-z][A-Za-z0-9+.-]*://)[^/\s"'<>\[]*@"#, "${1}[REDACTED]@"),
        // Signed URLs.
        (
            r#"(?i)([?&](?:sig|signature|code|key|x-(?:amz|goog)-(?:signature|credential|security-token))=)[^&\s"'<>]+"#,
            "${1}[REDACTED]",
        ),
        // Headers with credentials, to the end of the line or of the string.
        (
            r#"(?i)((?:proxy-)?authorization|(?:set-)?cookie|x-[a-z-]*(?:token|key))(\\*["']?\s*[:=]\s*\\*["']?)[^"'\r\n\\]+"#,
            "${1}${2}[REDACTED]",
        ),
        (r#"(?i)\b(bearer)(?:\s|\\t|%20|\+)+[^\s"',;\\]+"#, "${1} [REDACTED]"),
        (r"(?i)\b(basic)\s+[A-Za-z0-9+/_=-]{6,}", "${1} [REDACTED]"),
        // Identifiers of credentials of AWS.
        (r"(?:AKIA|ASIA|AROA|AIDA|AGPA|ANPA|ABIA|ACCA)[A-Z0-9]{16}", REMOVED),
        // Tokens of GitHub, GitLab, Slack, Google, Vault, and age.
        (
            r"gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|xox[a-z]-[\w-]{10,}|AIza[\w-]{30,}|hvs\.[\w-]{16,}|AGE-SECRET-KEY-1[A-Z0-9]{16,}",
            REMOVED,
        ),
        // Bootstrap tokens of Kubernetes.
        (r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b", REMOVED),
        // Entropy of a hex key behind a telling name is found by the name; this is what Azure calls a shared access signature.
        (r"(?i)\bsv=\d{4}-\d{2}-\d{2}&[^\s\x22']*", REMOVED),
    ];
    all.into_iter().map(|(pattern, by)| (Regex::new(pattern).expect("a pattern"), by)).collect()
});

/// A telling name, what stands between, and the value: removed before, quoted, a block of YAML, or a word.
static NAMED: LazyLock<Regex> = LazyLock::new(|| {
    let removed = r"\[REDACTED[^\]]*\]";
    let quoted = r#"\\*"(?:[^"\\]|\\.)*\\*"?|'[^']*'?"#;
    let block = r"[|>][-+0-9]*[ \t]*\r?\n(?:[ \t]+[^\r\n]*(?:\r?\n|$))*";
    let word = r#"[^\s,;&"'{}\[\])]+"#;
    let pattern =
        format!(r#"(?i)([A-Z0-9_.-]*{NAMES})(\\*["']?\s*(?:=>|[:=])\s*)({removed}|{quoted}|{block}|{word})"#);
    Regex::new(&pattern).expect("a pattern")
});

/// A flag with its value behind a space.
static FLAG: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(&format!(r#"(?i)(--?[a-z0-9-]*{NAMES})(\s+)([^\s"'\[-][^\s"']*)"#)).expect("a pattern")
});

/// A name of a field whose value is secret, without dashes and dots.
static FIELD: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(&format!("(?i)(?:{NAMES}|authorization|cookie|bearer)$")).expect("a pattern")
});

pub(super) fn remove(text: &str) -> String {
    let mut text = text.to_owned();
    for (pattern, by) in PATTERNS.iter() {
        text = pattern.replace_all(&text, *by).into_owned();
    }
    let text = NAMED.replace_all(&text, |found: &Captures<'_>| {
        let by = if found[3].starts_with('"') { "\"[REDACTED]\"" } else { REMOVED };
        format!("{}{}{by}", &found[1], &found[2])
    });
    FLAG.replace_all(&text, "${1}${2}[REDACTED]").into_owned()
}

/// Whether a field or variable of this name holds a secret.
pub(super) fn is_telling(name: &str) -> bool {
    let name: String = name.chars().filter(|c| !matches!(c, '-' | '_' | '.')).collect();
    FIELD.is_match(&name)
}
