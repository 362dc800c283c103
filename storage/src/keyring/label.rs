//! What wrapped a data key, in words: for operators who want to know when a key may go.

use super::{kms, provider::ANY};

/// Names the key that wrapped this: `aesgcm key1`, `kms main sha256:…` (a hash of the service's id of its key), `identity`.
/// Needs no configuration; `unknown` is what none of ours wrote.
pub(crate) fn label(wrapped: &[u8]) -> String {
    let Some(rest) = wrapped.strip_prefix(ANY) else { return "identity".into() };
    read(rest).unwrap_or_else(|| "unknown".into())
}

fn read(rest: &[u8]) -> Option<String> {
    let mut parts = rest.splitn(4, |byte| *byte == b':');
    let mut text = || parts.next().and_then(|part| std::str::from_utf8(part).ok());
    let (kind, version, name) = (text()?, text()?, text()?);
    let sealed = parts.next()?;
    match (kind, version) {
        ("aesgcm" | "secretbox" | "aescbc", "v1") => Some(format!("{kind} {name}")),
        ("kms", "v2") => kms::key_id_hash(sealed).map(|hash| format!("kms {name} {hash}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_wrapped() {
        for (wrapped, name) in [
            (&b"k8s:enc:aesgcm:v1:a b:\x00\xff"[..], "aesgcm a b"),
            (b"k8s:enc:secretbox:v1:k:", "secretbox k"),
            (b"k8s:enc:aescbc:v2:k:", "unknown"),
            (b"k8s:enc:kms:v2:k:nonsense", "unknown"),
            (b"k8s:enc:\xff:", "unknown"),
            (&[7; 32], "identity"),
        ] {
            assert_eq!(label(wrapped), name);
        }
    }
}
