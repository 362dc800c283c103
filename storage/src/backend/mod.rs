//! What a place to rest must offer: a small, ordered, multi-version map with revisions.
//!
//! This module may not know objects, kinds, chunks or keys of encryption: it moves opaque bytes.
//! A backend is proved by the conformance suite in `conformance` (feature `conformance`), which runs against every one
//! of them.
//!
//! Keys are byte strings of 1 to 1024 bytes without NUL. A NUL may stand at the end of a *bound* of a range ("just after
//! this key").

use std::{collections::HashSet, fmt, ops::Range, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use prometheus::core::Collector;

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod embedded;
mod error;
pub mod etcd;
mod measured;
pub mod tiered;

pub use embedded::Embedded;
pub use error::{Effect, Error, Result};
pub use etcd::Etcd;
pub(crate) use measured::Measured;
pub use tiered::Tiered;

/// Keys that [`Backend::count`] asks for at once, where a backend does not count by itself.
const COUNT_PAGE: usize = 1000;

/// Length of the longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 1024;

/// A point in the history of a backend: grows by at least one with every committed transaction that
/// writes, is never reused, and is shared by all keys. Zero is "before anything".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One version of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// The key; no NUL byte.
    pub key: Bytes,
    /// The value, as it was put.
    pub value: Bytes,
    /// The revision at which this key last came into being.
    pub created: Revision,
    /// The revision of the transaction that wrote this version.
    pub modified: Revision,
}

/// What must hold for a transaction to commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    /// The key's last version was written at exactly this revision; [`Revision(0)`](Revision): the key is absent.
    ModifiedAt(Bytes, Revision),
    /// The key is present, whatever its version.
    Exists(Bytes),
}

/// A change within a transaction. A transaction names a key at most once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Write a value.
    Put(Bytes, Bytes),
    /// Write a value that vanishes some seconds after this backend handle (or its process) is gone, and not
    /// earlier while the handle can reach its store: a lease on etcd, a sweep at open in the embedded store.
    PutEphemeral(Bytes, Bytes),
    /// Remove the key; removing an absent key is no change.
    Delete(Bytes),
}

/// All-or-nothing: if every comparison holds, every change is made, at one revision.
#[derive(Clone, Debug, Default)]
pub struct Txn {
    /// Comparisons, evaluated together with the changes.
    pub compares: Vec<Compare>,
    /// Changes, all made at one revision or none of them.
    pub ops: Vec<Op>,
}

impl Compare {
    /// The key it is about.
    #[must_use]
    pub fn key(&self) -> &Bytes {
        match self {
            Self::ModifiedAt(key, _) | Self::Exists(key) => key,
        }
    }
}

impl Op {
    /// The key it is about.
    #[must_use]
    pub fn key(&self) -> &Bytes {
        match self {
            Self::Put(key, _) | Self::PutEphemeral(key, _) | Self::Delete(key) => key,
        }
    }

    /// The value it writes.
    #[must_use]
    pub fn value(&self) -> Option<&Bytes> {
        match self {
            Self::Put(_, value) | Self::PutEphemeral(_, value) => Some(value),
            Self::Delete(_) => None,
        }
    }
}

impl Txn {
    /// The bytes of its keys and values, as [`Limits::txn_bytes`] counts them.
    #[must_use]
    pub fn size(&self) -> usize {
        let compares = self.compares.iter().map(|compare| compare.key().len());
        let ops = self.ops.iter().map(|op| op.key().len() + op.value().map_or(0, Bytes::len));
        compares.chain(ops).sum()
    }

    /// # Errors
    /// [`Error::TooLarge`] over the limits, [`Error::Refused`] for a key that is empty, long, named twice or holds NUL.
    pub(crate) fn check(&self, limits: Limits) -> Result<()> {
        let (bytes, ops) = (self.size(), self.ops.len().max(self.compares.len()));
        for (size, limit) in [(bytes, limits.txn_bytes), (ops, limits.txn_ops)] {
            if size > limit {
                return Err(Error::TooLarge { size, limit });
            }
        }
        for key in self.compares.iter().map(Compare::key).chain(self.ops.iter().map(Op::key)) {
            if key.is_empty() || key.len() > MAX_KEY_BYTES || key.contains(&0) {
                return Err(Error::Refused("a key must have 1 to 1024 bytes and no NUL".into()));
            }
        }
        let distinct: HashSet<_> = self.ops.iter().map(Op::key).collect();
        if distinct.len() < self.ops.len() {
            return Err(Error::Refused("a transaction names a key at most once".into()));
        }
        Ok(())
    }
}

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Durable: it survives a crash of the process and of the machine. The revision at which it happened; for a
    /// transaction that changed nothing (no changes, or only removals of absent keys): the newest revision.
    Committed(Revision),
    /// A comparison did not hold; nothing was changed.
    Failed,
}

/// What to read with [`Backend::range`].
#[derive(Clone, Debug)]
pub struct RangeRequest {
    /// From `start` (inclusive) to `end` (exclusive), in byte order. An empty `end` is no end.
    pub keys: Range<Bytes>,
    /// Read as of this revision; `None`: everything that was committed before the call (linearizable).
    pub at: Option<Revision>,
    /// At most this many keys; zero: no limit by count.
    pub limit: usize,
    /// Stop after the key whose value passes this many bytes in sum, so that a page fits in memory; zero: no limit by
    /// size. A page holds at least one key where there is one.
    pub max_bytes: usize,
    /// Leave every value empty. A backend may read the values all the same (etcd does): to learn how many keys there are,
    /// use [`Backend::count`].
    pub keys_only: bool,
}

/// A page of keys.
#[derive(Clone, Debug)]
pub struct Page {
    /// Keys with their values, in key order.
    pub kvs: Vec<KeyValue>,
    /// The revision the page shows: the one asked for, or the newest at the time of the read.
    pub revision: Revision,
    /// Whether the range holds more keys after the last one of this page.
    pub more: bool,
}

/// What happened to one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEvent {
    /// The key that was written or removed.
    pub key: Bytes,
    /// The revision of the transaction.
    pub revision: Revision,
    /// The new version; `None`: the key was removed.
    pub now: Option<KeyValue>,
    /// The version before; `None`: the key was absent (or that version has been compacted away meanwhile).
    pub before: Option<KeyValue>,
}

/// An item of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchItem {
    /// All events of one or more whole transactions, in order of revision: a transaction is never split.
    Events(Vec<KeyEvent>),
    /// Every event up to and including this revision has been delivered.
    Progress(Revision),
}

/// A stream of what happens under a prefix. It ends after an error.
pub type WatchStream = BoxStream<'static, Result<WatchItem>>;

/// How large the pieces may be that this backend takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The bytes of keys and values in one transaction.
    pub txn_bytes: usize,
    /// The comparisons or the changes in one transaction.
    pub txn_ops: usize,
}

/// A place to rest.
///
/// # Guarantees
/// - [`Outcome::Committed`] means durable. A crash keeps all of a transaction or nothing of it.
/// - Reads without a revision see every transaction that was acknowledged, by whomever, before they began.
/// - Reads at a revision always give the same answer until that revision is compacted, then [`Error::Compacted`].
/// - A watch delivers every event after its start exactly once, in order, or ends with an error.
///
/// # Errors
/// [`Error::Unavailable`]: nothing was done, try again. [`Error::Unknown`]: a write may or may not have happened; only a
/// read can tell. What any other error says about a write, [`Error::effect`] tells. [`Error::Compacted`],
/// [`Error::Future`]: the revision is out of the window.
#[async_trait]
pub trait Backend: Send + Sync + fmt::Debug + 'static {
    /// The size limits of this backend.
    fn limits(&self) -> Limits;

    /// Whether space is short here, so that compression may cost some time: a quota on all data, or one shared with others.
    fn prefers_compression(&self) -> bool;

    /// The newest revision (linearizable).
    async fn revision(&self) -> Result<Revision>;

    /// One key, as of a revision or the newest.
    async fn get(&self, key: Bytes, at: Option<Revision>) -> Result<Option<KeyValue>>;

    /// Several keys as of one revision, in the order asked for. Callers keep the sum within memory.
    async fn get_many(&self, keys: Vec<Bytes>, at: Revision) -> Result<Vec<Option<KeyValue>>>;

    /// A page of keys.
    async fn range(&self, request: RangeRequest) -> Result<Page>;

    /// How many keys a range holds. Reads no value where the backend can tell without: the cost of this call does not grow
    /// with the size of values. `at` as in [`RangeRequest::at`].
    async fn count(&self, keys: Range<Bytes>, at: Option<Revision>) -> Result<u64> {
        let mut request = RangeRequest { keys, at, limit: COUNT_PAGE, max_bytes: 0, keys_only: true };
        let mut count = 0;
        loop {
            let page = self.range(request.clone()).await?;
            count += page.kvs.len() as u64;
            let Some(last) = page.kvs.last().filter(|_| page.more) else { return Ok(count) };
            request.keys.start = [&last.key[..], b"\0"].concat().into();
            request.at = Some(page.revision);
        }
    }

    /// The keys whose value is not where it should be, for a backend that keeps values elsewhere. May read every key.
    async fn missing_values(&self) -> Result<Vec<Bytes>> {
        Ok(Vec::new())
    }

    /// Commits or does not.
    async fn txn(&self, txn: Txn) -> Result<Outcome>;

    /// Everything that happens to keys with this prefix after revision `after`, which is one that was seen. A [`WatchItem::Progress`] comes at least
    /// every `progress` while nothing happens, and soon after [`Backend::request_progress`]: then with the newest revision at the
    /// time of the nudge, or a later one. A start before [`Backend::oldest`] ends the stream with [`Error::Compacted`],
    /// here or as its first item.
    async fn watch(&self, prefix: Bytes, after: Revision, progress: Duration) -> Result<WatchStream>;

    /// Asks all watches for a [`WatchItem::Progress`] as soon as may be.
    async fn request_progress(&self);

    /// Forgets versions that were superseded at or before this revision; reads before it fail with [`Error::Compacted`].
    async fn compact(&self, revision: Revision) -> Result<()>;

    /// The oldest revision that can still be read.
    async fn oldest(&self) -> Result<Revision>;

    /// Bytes at rest, as well as the backend can tell.
    async fn size(&self) -> Result<u64>;

    /// What the cluster below calls itself, where it has a name that no other has.
    async fn cluster(&self) -> Result<Option<String>> {
        Ok(None)
    }

    /// Removes what rests for nobody and is not seen by readers. To be called now and then, by any replica.
    async fn tidy(&self) -> Result<()> {
        Ok(())
    }

    /// What is counted about it, to be registered once.
    fn collectors(&self) -> Vec<Box<dyn Collector>> {
        Vec::new()
    }

    /// Stops background work and lets go of files and leases. The handle is not used again.
    async fn close(&self);
}

/// The range of all keys with a prefix; without an end where the prefix has none (empty, or all `0xff`).
#[must_use]
pub fn prefix_range(prefix: &[u8]) -> Range<Bytes> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            break;
        }
    }
    Bytes::copy_from_slice(prefix)..Bytes::from(end)
}
