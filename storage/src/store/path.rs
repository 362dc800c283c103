//! Where things rest in a backend. Nothing in here does I/O.

use std::ops::Range;

use bytes::Bytes;
use uuid::Uuid;

use super::types::{Key, Scope};
use crate::{
    Error, Result,
    backend::{self, Revision},
    chunk,
};

/// Under this prefix rest records.
pub(crate) const REGISTRY: &str = "/registry/";
/// Under this prefix rest chunks and owners.
pub(crate) const CHUNKS: &str = "/chunks/";
/// Under this prefix rest intents.
pub(crate) const INTENTS: &str = "/intents/";
/// Under this prefix are manifests: lists of chunks that the collector has to look at.
pub(crate) const MANIFESTS: &str = "/manifests/";
/// Who collects, while it lives.
pub(crate) const COLLECTOR: &str = "/meta/collector";
/// Put by each pass of the collector that removes something.
pub(crate) const COLLECTION: &str = "/meta/collection";
/// How far the last audit of all chunks got.
pub(crate) const AUDIT: &str = "/meta/audit";
/// Under this prefix rest records that nothing serves.
pub(crate) const QUARANTINE: &str = "/quarantine/";
/// The epoch of the store.
pub(crate) const EPOCH: &str = "/meta/epoch";
/// An owner is longer than the path it names by the prefix, 32 digits and a dash with its slashes.
const MAX_PATH: usize = backend::MAX_KEY_BYTES - CHUNKS.len() - 34;
/// What stands where a chunk has its name, at an owner. Sorts before every hexadecimal digit, so that the owners of a
/// uid come before its chunks.
const OWNER: &str = "-";

/// The path of a record.
pub(crate) fn record(key: &Key) -> Result<Bytes> {
    let scope = Scope {
        group: key.group.clone(),
        resource: key.resource.clone(),
        namespace: (!key.namespace.is_empty()).then(|| key.namespace.clone()),
    };
    let mut path = prefix(&scope)?;
    path.push_str(segment(&key.name)?);
    if path.len() > MAX_PATH {
        return Err(Error::Invalid("the key is too long"));
    }
    Ok(path.into())
}

/// The prefix of the records of a scope.
pub(crate) fn scope(scope: &Scope) -> Result<Bytes> {
    Ok(prefix(scope)?.into())
}

fn prefix(scope: &Scope) -> Result<String> {
    let mut path = format!("{REGISTRY}{}/{}/", segment(&scope.group)?, segment(&scope.resource)?);
    if let Some(namespace) = &scope.namespace {
        path.push_str(segment(namespace)?);
        path.push('/');
    }
    Ok(path)
}

/// A slash would make two keys one path; a NUL ends keys in backends.
fn segment(text: &str) -> Result<&str> {
    if text.is_empty() || text.contains('/') || text.chars().any(char::is_control) {
        return Err(Error::Invalid(
            "a part of the key is empty, or has a slash or a control character in it",
        ));
    }
    Ok(text)
}

/// The key whose record rests at this path. A path with three parts is of a cluster-scoped object, one with four of a
/// namespaced one, so no two keys share a path.
pub(crate) fn parse_record(path: &[u8]) -> Option<Key> {
    let rest = std::str::from_utf8(path).ok()?.strip_prefix(REGISTRY)?;
    let parts: Vec<&str> = rest.split('/').collect();
    let (group, resource, namespace, name) = match parts[..] {
        [group, resource, name] => (group, resource, "", name),
        [group, resource, namespace, name] if !namespace.is_empty() => (group, resource, namespace, name),
        _ => return None,
    };
    if [group, resource, name].iter().any(|part| part.is_empty()) {
        return None;
    }
    Some(Key {
        group: group.into(),
        resource: resource.into(),
        namespace: namespace.into(),
        name: name.into(),
    })
}

/// Exactly this key, as a range.
pub(crate) fn only(key: &Bytes) -> Range<Bytes> {
    key.clone()..after(key)
}

/// The bound just after a key.
pub(crate) fn after(key: &[u8]) -> Bytes {
    [key, b"\0"].concat().into()
}

/// Where a chunk rests.
pub(crate) fn chunk(uid: Uuid, id: &chunk::Id) -> Bytes {
    let mut path = format!("{CHUNKS}{}/", uid.simple()).into_bytes();
    let start = path.len();
    path.resize(start + 2 * chunk::ID, 0);
    hex(id, &mut path[start..]);
    path.into()
}

/// Says that the record at this path may name chunks of this uid.
pub(crate) fn owner(uid: Uuid, record: &[u8]) -> Bytes {
    let mut path = format!("{CHUNKS}{}/{OWNER}", uid.simple()).into_bytes();
    path.extend_from_slice(record);
    path.into()
}

/// The range of all keys of a uid under [`CHUNKS`].
pub(crate) fn chunks_of(uid: Uuid) -> Range<Bytes> {
    backend::prefix_range(format!("{CHUNKS}{}/", uid.simple()).as_bytes())
}

/// The range of the owners of a uid. Their values are empty.
pub(crate) fn owners_of(uid: Uuid) -> Range<Bytes> {
    backend::prefix_range(format!("{CHUNKS}{}/{OWNER}", uid.simple()).as_bytes())
}

/// What rests under [`CHUNKS`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Beneath {
    /// A chunk.
    Chunk(Uuid, chunk::Id),
    /// The path of a record that may name chunks of this uid.
    Owner(Uuid, Bytes),
}

/// Reads a path under [`CHUNKS`].
pub(crate) fn parse_chunk(path: &Bytes) -> Option<Beneath> {
    let rest = path.strip_prefix(CHUNKS.as_bytes())?;
    let (uid, rest) = (rest.get(..32)?, rest.get(32..)?.strip_prefix(b"/")?);
    let uid = Uuid::try_parse_ascii(uid).ok()?;
    if let Some(record) = rest.strip_prefix(OWNER.as_bytes()) {
        return Some(Beneath::Owner(uid, path.slice_ref(record)));
    }
    Some(Beneath::Chunk(uid, unhex(rest)?))
}

/// The uid under which a key is, whatever it is.
pub(crate) fn uid_of(path: &[u8]) -> Option<Uuid> {
    let rest = path.strip_prefix(CHUNKS.as_bytes())?;
    (rest.get(32) == Some(&b'/')).then(|| Uuid::try_parse_ascii(rest.get(..32)?).ok())?
}

/// Where an intent rests.
pub(crate) fn intent(number: u64) -> Bytes {
    format!("{INTENTS}{number:016x}").into()
}

/// The number of the intent at this path.
pub(crate) fn parse_intent(path: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(unhex(path.strip_prefix(INTENTS.as_bytes())?)?))
}

/// Where the manifest is of a write under an intent; of a removal, the number is drawn at random.
pub(crate) fn manifest(intent: u64, write: u32, uid: Uuid) -> Bytes {
    format!("{MANIFESTS}{intent:016x}{write:08x}/{}", uid.simple()).into()
}

/// The uid whose chunks the manifest at this path names.
pub(crate) fn parse_manifest(path: &[u8]) -> Option<Uuid> {
    let rest = path.strip_prefix(MANIFESTS.as_bytes())?;
    let (number, uid) = (rest.get(..24)?, rest.get(24..)?.strip_prefix(b"/")?);
    unhex::<12>(number)?;
    let uid = (uid.len() == 32).then_some(uid)?;
    Uuid::try_parse_ascii(uid).ok()
}

/// Where a record rests that was last written at this revision and is not served.
pub(crate) fn quarantined(record: &[u8], modified: Revision) -> Bytes {
    [format!("{QUARANTINE}{:016x}", modified.0).as_bytes(), record].concat().into()
}

/// The path at which a record was before it came to this one.
pub(crate) fn parse_quarantined(path: &Bytes) -> Option<Bytes> {
    let rest = path.strip_prefix(QUARANTINE.as_bytes())?.get(16..)?;
    rest.starts_with(REGISTRY.as_bytes()).then(|| path.slice_ref(rest))
}

fn hex(bytes: &[u8], out: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (byte, pair) in bytes.iter().zip(out.chunks_exact_mut(2)) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
}

fn unhex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        let digit = |c: u8| char::from(c).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn mk_key(namespace: &str, name: &str) -> Key {
        Key { group: "g.io".into(), resource: "rs".into(), namespace: namespace.into(), name: name.into() }
    }

    #[test]
    fn paths_come_back_as_keys() {
        for key in [mk_key("ns", "name"), mk_key("", "name")] {
            assert_eq!(parse_record(&record(&key).unwrap()), Some(key));
        }
        assert_eq!(record(&mk_key("ns", "name")).unwrap(), "/registry/g.io/rs/ns/name");
        for foreign in
            ["/registry/a/b", "/registry/a/b//c", "/registry/a/b/c/d/e", "/other/a/b/c", "/registry/a//c"]
        {
            assert_eq!(parse_record(foreign.as_bytes()), None, "{foreign}");
        }
    }

    #[test]
    fn refuses_keys_that_would_share_a_path() {
        for (namespace, name) in [("a/b", "c"), ("a", "b/c"), ("a", ""), ("a", "b\0"), ("a\n", "b")] {
            assert!(matches!(record(&mk_key(namespace, name)), Err(Error::Invalid(_))));
        }
        assert!(matches!(record(&mk_key("a", &"n".repeat(980))), Err(Error::Invalid(_))));
        let longest = record(&mk_key(&"s".repeat(63), &"n".repeat(253))).unwrap();
        assert!(owner(Uuid::nil(), &longest).len() <= backend::MAX_KEY_BYTES);
    }

    #[test]
    fn keys_sort_like_their_paths() {
        let mut keys = ["", "a", "a-b", "a.b", "b", "a0"]
            .iter()
            .flat_map(|namespace| ["x", "x-y", "x.y", "x0"].map(|name| mk_key(namespace, name)))
            .collect::<Vec<_>>();
        keys.sort();
        let paths: Vec<_> = keys.iter().map(|key| record(key).unwrap()).collect();
        assert!(paths.is_sorted(), "{paths:?}");
    }

    #[test]
    fn chunks_owners_and_intents_come_back() {
        let (uid, id) = (Uuid::from_u128(7), chunk::name([0xab; 16], 0xfeed, 3));
        let path = chunk(uid, &id);
        assert_eq!(parse_chunk(&path), Some(Beneath::Chunk(uid, id)));
        let owner = owner(uid, b"/registry/a/b/c");
        assert_eq!(parse_chunk(&owner), Some(Beneath::Owner(uid, "/registry/a/b/c".into())));
        assert!(owner < path, "owners come first");
        assert_eq!(parse_intent(&intent(0xfeed)), Some(0xfeed));
        assert_eq!(chunk::intent_of(&id), 0xfeed);
        assert_eq!(parse_chunk(&Bytes::from("/chunks/zz")), None);
        assert_eq!((uid_of(&path), uid_of(&owner), uid_of(b"/chunks/zz")), (Some(uid), Some(uid), None));
        let manifest = manifest(0xfeed, 3, uid);
        assert_eq!(parse_manifest(&manifest), Some(uid));
        assert_eq!(parse_manifest(&manifest[..manifest.len() - 1]), None);
        assert!(chunks_of(uid).contains(&path) && chunks_of(uid).contains(&owner));
        assert!(owners_of(uid).contains(&owner) && !owners_of(uid).contains(&path));
        assert_eq!(parse_intent(b"/intents/xyz"), None);
        let hidden = quarantined(b"/registry/a/b/c", Revision(0xbeef));
        assert_eq!(hidden, "/quarantine/000000000000beef/registry/a/b/c");
        assert_eq!(parse_quarantined(&hidden), Some("/registry/a/b/c".into()));
        assert_eq!(parse_quarantined(&Bytes::from("/quarantine/beef/registry/a")), None);
    }
}
