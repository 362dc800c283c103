//! The words that callers of the store use. Nothing in here does I/O.

use std::{cmp::Ordering, fmt, ops::Range};

use bytes::Bytes;
use uuid::Uuid;

use crate::backend::Revision;

/// Where an object rests: `/registry/<group>/<resource>/[<namespace>/]<name>` under the store's prefix.
///
/// Keys sort as their paths do, so that a list from memory has the order of a list from the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// API group, such as `core.gardener.cloud`.
    pub group: String,
    /// Plural resource, such as `shootstates`.
    pub resource: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// Name of the object within its resource and namespace.
    pub name: String,
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        // As bytes with the slash behind them: `a-b/x` sorts before `a/x`.
        fn path(key: &Key) -> impl Iterator<Item = &u8> {
            let slash = || b"/".iter();
            let namespace = key.namespace.as_bytes().iter();
            let slash_after_namespace = if key.namespace.is_empty() { b"".iter() } else { slash() };
            let scope =
                key.group.as_bytes().iter().chain(slash()).chain(key.resource.as_bytes()).chain(slash());
            scope.chain(namespace).chain(slash_after_namespace).chain(key.name.as_bytes())
        }
        path(self).cmp(path(other))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} ", self.group, self.resource)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// A resource, or one namespace of it: what lists and watches are over.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scope {
    /// API group of the resource, such as `core.gardener.cloud`.
    pub group: String,
    /// Plural name of the resource, such as `shootstates`.
    pub resource: String,
    /// One namespace, or all.
    pub namespace: Option<String>,
}

/// The version of an object or of a list, as clients see it: the store's revision plus the offset of its epoch. Decimal
/// on the wire, never zero, never going back, not even when a store is restored from an older copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceVersion(pub u64);

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a caller wants to rest. All of it is sealed; only the key is visible in the store.
#[derive(Clone)]
pub struct Draft {
    /// Identity of the object: chosen at creation, equal in every later draft of the same object.
    pub uid: Uuid,
    /// Small, always at hand: kept in the record, never in a chunk (for an API object: its metadata).
    pub meta: Bytes,
    /// Small facts derived from the payload by the caller, to be had without the payload (for an API object: table cells).
    pub summary: Bytes,
    /// The payload, with the joints at which it may be split into chunks.
    pub payload: Segmented,
}

/// Bytes in one buffer, and the joints of their structure (for an API object: where an element of a list or an opaque
/// value starts). Long segments get chunks of their own, short neighbours are packed together.
#[derive(Clone, Default)]
pub struct Segmented {
    text: Bytes,
    /// Ascending, within the text.
    joints: Vec<usize>,
}

impl Segmented {
    /// `joints`: offsets of segments in `text`, in any order; what lies outside of it is left out.
    #[must_use]
    pub fn new(text: Bytes, mut joints: Vec<usize>) -> Self {
        joints.retain(|joint| (1..text.len()).contains(joint));
        joints.sort_unstable();
        joints.dedup();
        Self { text, joints }
    }

    /// All bytes, in one buffer without the joints.
    #[must_use]
    pub fn text(&self) -> &Bytes {
        &self.text
    }

    /// The ranges of the segments, none empty.
    pub(crate) fn segments(&self) -> impl Iterator<Item = Range<usize>> {
        let starts = std::iter::once(0).chain(self.joints.iter().copied());
        let ends = self.joints.iter().copied().chain(std::iter::once(self.text.len()));
        starts.zip(ends).map(|(start, end)| start..end).filter(|range| !range.is_empty())
    }
}

impl From<Vec<Bytes>> for Segmented {
    fn from(segments: Vec<Bytes>) -> Self {
        let ends = segments.iter().scan(0, |at, segment| {
            *at += segment.len();
            Some(*at)
        });
        let joints = ends.collect();
        Self::new(segments.concat().into(), joints)
    }
}

/// An object as it rests: its head is at hand, its payload is read with [`Store::payload`](crate::Store::payload).
#[derive(Clone)]
pub struct Object {
    /// Key under which the object is stored.
    pub key: Key,
    /// Identity of the object, chosen at its creation.
    pub uid: Uuid,
    /// The version of this state. For the last state of a removed object: the version of the removal.
    pub version: ResourceVersion,
    /// Small data that is always at hand, as in [`Draft::meta`].
    pub meta: Bytes,
    /// Small facts derived from the payload, as in [`Draft::summary`].
    pub summary: Bytes,
    /// Length of the whole payload in bytes.
    pub payload_len: u64,
    /// Whether this state is sealed in an outdated way (an old key, an old format), so that even an unchanged object is
    /// worth writing again.
    pub stale: bool,
    pub(crate) at: Revision,
    pub(crate) modified: Revision,
    pub(crate) record: std::sync::Arc<crate::record::Opened>,
}

impl Object {
    /// Which key wraps its data key, such as `aesgcm key1`, `kms main sha256:…` (a hash of the service's name of its key) or
    /// `identity`. As long as one object names a key, that key has to stay.
    #[must_use]
    pub fn wrapped_by(&self) -> String {
        crate::keyring::label(&self.record.wrapped)
    }
}

/// What happened to an object.
#[derive(Clone, Debug)]
pub struct Event {
    /// The version at which it happened.
    pub version: ResourceVersion,
    /// The state after; `None`: removed.
    pub now: Option<Object>,
    /// The state before; `None`: created. For a removal its `version` is that of the removal.
    pub before: Option<Object>,
}

impl fmt::Debug for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draft")
            .field("uid", &self.uid)
            .field("payload_len", &self.payload.text.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither meta nor summary: what was sealed does not go to a log.
        f.debug_struct("Object")
            .field("key", &self.key)
            .field("uid", &self.uid)
            .field("version", &self.version)
            .field("payload_len", &self.payload_len)
            .finish_non_exhaustive()
    }
}

/// An item of a watch.
#[derive(Clone, Debug)]
pub enum WatchItem {
    /// Something happened.
    Event(std::sync::Arc<Event>),
    /// Everything up to and including this version has been delivered.
    Bookmark(ResourceVersion),
}

/// A page of a list.
#[derive(Clone, Debug)]
pub struct List {
    /// In key order. An object that cannot be opened stands in as its error, so that the others stay readable.
    pub objects: Vec<Result<Object, crate::Error>>,
    /// The version the page shows.
    pub version: ResourceVersion,
    /// The key to go on after, where there is more.
    pub next: Option<Key>,
    /// How many objects come after this page, where the request asks for it and that is known without reading them.
    pub remaining: Option<u64>,
}

/// Which objects [`Store::list`](crate::Store::list) reads, as of when, and how many at most.
#[derive(Clone, Debug)]
pub struct ListRequest {
    /// The resource, or one namespace of it, that is listed.
    pub scope: Scope,
    /// As of which version; `None`: everything committed before the call.
    pub at: Option<ResourceVersion>,
    /// Go on after this key.
    pub after: Option<Key>,
    /// At most this many objects; zero: no limit.
    pub limit: usize,
    /// Where the backend has to be read: about this many bytes of heads, and at least one head; zero: 4 MiB. A page from the
    /// watch cache shares its heads with the cache, so this does not end it.
    pub max_bytes: usize,
    /// Whether to count what comes after the page, where that is possible without reading it.
    pub count: bool,
}

impl ListRequest {
    /// Everything in a scope that was committed before the call, in pages of the usual size and without a count of the rest.
    #[must_use]
    pub fn all(scope: Scope) -> Self {
        Self { scope, at: None, after: None, limit: 0, max_bytes: 0, count: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_shows_nothing_that_is_sealed() {
        let secret = Bytes::from_static(b"secret");
        let (meta, summary, payload) = (secret.clone(), secret.clone(), vec![secret].into());
        let draft = Draft { uid: Uuid::nil(), meta, summary, payload };
        let shown = format!("{draft:?}");
        assert!(shown.contains("payload_len: 6") && !shown.contains("secret"), "{shown}");
    }
}
