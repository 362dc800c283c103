//! A backend whose large values rest in an object store: S3, Google Cloud Storage, Azure, or a directory.
//!
//! The backend below keeps keys, revisions, transactions and watches. Where it would keep a large value under [`Options::prefix`], it
//! keeps a pointer to an object:
//!
//! ```text
//! <key>                         "RPTR" ++ format (1) ++ name of the object (16) ++ its length (8)
//! <url>/<2 digits>/<name>       the value; written once, under a name that is never used again
//! <url>/repot-unreferenced      to which objects nothing points, and since when
//! <url>/repot-clock             put again and again, to read the clock of the object store
//! <url>/repot-store             which store the objects belong to; the backend below holds the same
//! ```
//!
//! **Order.** An object is there before a transaction can point to it (`write` says how), and stays until no revision that can be read does
//! and no snapshot of the backend below that is younger than [`Options::retention`] does (`collect` says how). So all that the backend below promises holds for large values too; what is added is that data calls
//! fail with [`Error::Unavailable`] while the object store is out of reach, and calls that meet no large value do not.

mod collect;
mod ledger;
mod metrics;
mod open;
pub(crate) mod pointer;
mod write;

use std::{
    fmt,
    ops::Range,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::{ObjectStore, ObjectStoreExt, PutMode, path::Path};
use parking_lot::Mutex;
use prometheus::core::Collector;
use uuid::Uuid;

use super::{
    Backend, Error, KeyEvent, KeyValue, Limits, Outcome, Page, RangeRequest, Result, Revision, Txn,
    WatchItem, WatchStream,
};
pub use collect::Collected;
use metrics::Metrics;
pub use open::ObjectLocation;
use pointer::Pointer;

/// The key below that says which object store belongs to it. Nobody above sees it.
pub(crate) const MARKER: &str = "/meta/objects";
/// The key below that names the last pass of the collector that ended. Put again when a pass begins, so that its revision
/// changes; transactions with pointers compare that. Nobody above sees it.
const PASS: &str = "/meta/objects-pass";
/// Objects that are read or written at once for one call.
const PARALLEL: usize = 8;

/// Which values move into the object store, and how long objects stay there.
#[derive(Clone, Debug)]
pub struct Options {
    /// Keys whose values may move. Those of the store's chunks, where nothing else is said.
    pub prefix: Bytes,
    /// Values of fewer bytes stay.
    pub least: usize,
    /// The longest that one request to the object store may take, with all that it is tried again.
    pub timeout: Duration,
    /// An object of which nothing tells is left alone for so long: somebody may be about to point to it. Twice the longest time
    /// that one write may take. Nothing depends on it but what servers of earlier versions write.
    pub orphan_age: Duration,
    /// How long an object stays to which nothing points any more: longer than any snapshot of the backend below is kept from
    /// which the store may be restored.
    pub retention: Duration,
    /// Bytes of such objects at most; zero: no limit. A pass of the collector that finds more removes the oldest ones first, as long as no
    /// revision that can be read needs them: then an older snapshot cannot be restored whole.
    pub retention_max_bytes: u64,
}

impl Options {
    /// Default of [`Options::retention`]: seven days.
    pub const RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);
}

impl Default for Options {
    fn default() -> Self {
        Self {
            prefix: Bytes::from_static(b"/chunks/"),
            least: 4 << 10,
            timeout: Duration::from_secs(15),
            orphan_age: Duration::from_secs(1800),
            retention: Self::RETENTION,
            retention_max_bytes: 0,
        }
    }
}

/// See the module. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Tiered {
    inner: Arc<dyn Backend>,
    chunk_store: Arc<ChunkStore>,
}

impl fmt::Debug for Tiered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tiered").field("inner", &self.inner).field("objects", &self.chunk_store.url).finish()
    }
}

/// The object store, and what is known of it.
struct ChunkStore {
    objects: Arc<dyn ObjectStore>,
    root: Path,
    url: String,
    options: Options,
    /// Bytes in objects, as far as this handle knows.
    bytes: AtomicU64,
    /// When this handle last collected by itself.
    passed: Mutex<Option<Instant>>,
    /// The revision of [`PASS`], as this handle last met it.
    pass: Mutex<Option<Revision>>,
    metrics: Metrics,
    /// What the object holds that says which store the others belong to, once that was read.
    name: OnceLock<Bytes>,
}

impl ChunkStore {
    fn path(&self, name: Uuid) -> Path {
        let text = name.simple().to_string();
        self.root.clone().join(&text[..2]).join(text)
    }

    /// Waits for a request as long as it may take.
    async fn within<T>(&self, asked: impl Future<Output = Result<T, object_store::Error>>) -> Result<T> {
        self.in_time(asked).await?.map_err(|error| self.error(&error))
    }

    /// As [`ChunkStore::within`]: an error says that no answer came, not even one that is an error.
    async fn in_time<T>(&self, asked: impl Future<Output = T>) -> Result<T> {
        let answer = tokio::time::timeout(self.options.timeout, asked).await;
        answer.map_err(|_| Error::Unavailable(format!("{} does not answer", self.url)))
    }

    fn error(&self, error: &object_store::Error) -> Error {
        match error {
            object_store::Error::NotFound { .. } => {
                Error::Corrupt(format!("an object that is pointed to is not in {}", self.url))
            }
            other => Error::Unavailable(format!("{}: {other}", self.url)),
        }
    }

    async fn put(&self, value: Bytes) -> Result<Pointer> {
        let pointer = Pointer { name: Uuid::new_v4(), len: value.len() as u64 };
        let path = self.path(pointer.name);
        self.within(self.objects.put_opts(&path, value.into(), PutMode::Create.into())).await?;
        if self.is_directory()
            && let Err(error) = self.check_marker().await
        {
            // The directory below a mount point takes objects too, and hides them when the mount is back.
            let _ = self.in_time(self.objects.delete(&path)).await;
            return Err(error);
        }
        self.bytes.fetch_add(pointer.len, Ordering::Relaxed);
        Ok(pointer)
    }

    /// Whether it is a directory of this machine, which may be a mount.
    fn is_directory(&self) -> bool {
        self.url.starts_with("file:")
    }

    async fn get(&self, pointer: Pointer) -> Result<Bytes> {
        let path = self.path(pointer.name);
        let value = match self.read(&path).await {
            // Proved only if the rest is there, before and after.
            Err(Error::Corrupt(_)) => {
                self.check_marker().await?;
                let again = self.read(&path).await;
                self.check_marker().await?;
                again?
            }
            read => read?,
        };
        if value.len() as u64 != pointer.len {
            return Err(Error::Corrupt(format!("an object in {} has another length than it had", self.url)));
        }
        Ok(value)
    }

    async fn read(&self, path: &Path) -> Result<Bytes> {
        self.within(async { self.objects.get(path).await?.bytes().await }).await
    }

    /// Removes objects to which nothing points, until one request is not answered in time. What stays is found by the collector.
    /// How many were removed, and their bytes.
    async fn forget(&self, pointers: &[Pointer]) -> (u64, u64) {
        let mut asked = stream::iter(pointers.to_vec())
            .map(|pointer| async move {
                let path = self.path(pointer.name);
                (self.in_time(self.objects.delete(&path)).await, pointer.len)
            })
            .buffer_unordered(PARALLEL);
        let mut removed = (0, 0);
        while let Some((answer, len)) = asked.next().await {
            match answer {
                Ok(Ok(())) => {
                    self.bytes.fetch_sub(len, Ordering::Relaxed);
                    removed = (removed.0 + 1, removed.1 + len);
                }
                // Others may be removed all the same.
                Ok(Err(error)) => tracing::debug!(%error, "an unused object was not removed"),
                Err(error) => {
                    tracing::warn!(%error, "unused objects are left to the next pass of the collector");
                    break;
                }
            }
        }
        removed
    }
}

/// Whether a key is one that nobody above sees.
fn is_own(key: &[u8]) -> bool {
    key == MARKER.as_bytes() || key == PASS.as_bytes()
}

impl Tiered {
    fn moves(&self, key: &[u8]) -> bool {
        key.starts_with(&self.chunk_store.options.prefix)
    }

    /// The value that a pointer stands for.
    async fn resolve(&self, mut kv: KeyValue) -> Result<KeyValue> {
        if self.moves(&kv.key)
            && let Some(pointer) = Pointer::read(&kv.value)
        {
            kv.value = self.chunk_store.get(pointer).await?;
        }
        Ok(kv)
    }

    async fn resolve_event(&self, mut event: KeyEvent, oldest: Revision) -> Result<KeyEvent> {
        if let Some(now) = event.now.take() {
            event.now = Some(match self.resolve(now).await {
                // Its object went when its revision did: the watcher is too far behind.
                Err(Error::Corrupt(_)) if event.revision < oldest => {
                    return Err(Error::Compacted { requested: event.revision, oldest });
                }
                resolved => resolved?,
            });
        }
        if let Some(before) = event.before.take() {
            // As where the version before has been compacted away.
            event.before = match self.resolve(before).await {
                Err(Error::Corrupt(_)) => None,
                resolved => Some(resolved?),
            };
        }
        Ok(event)
    }

    async fn resolve_item(&self, item: WatchItem) -> Result<WatchItem> {
        let WatchItem::Events(events) = item else { return Ok(item) };
        let events: Vec<_> = events.into_iter().filter(|event| !is_own(&event.key)).collect();
        if events.iter().all(|event| !self.moves(&event.key)) {
            return Ok(WatchItem::Events(events));
        }
        let oldest = self.inner.oldest().await?;
        let resolved = stream::iter(events).map(|event| self.resolve_event(event, oldest));
        Ok(WatchItem::Events(resolved.buffered(PARALLEL).try_collect().await?))
    }
}

#[async_trait]
impl Backend for Tiered {
    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn prefers_compression(&self) -> bool {
        false
    }

    async fn revision(&self) -> Result<Revision> {
        self.inner.revision().await
    }

    async fn get(&self, key: Bytes, at: Option<Revision>) -> Result<Option<KeyValue>> {
        if is_own(&key) {
            return Ok(None);
        }
        match self.inner.get(key, at).await? {
            Some(kv) => self.resolve(kv).await.map(Some),
            None => Ok(None),
        }
    }

    async fn get_many(&self, keys: Vec<Bytes>, at: Revision) -> Result<Vec<Option<KeyValue>>> {
        let found = self.inner.get_many(keys, at).await?;
        let resolved = stream::iter(found).map(|found| async move {
            match found {
                Some(kv) => self.resolve(kv).await.map(Some),
                None => Ok(None),
            }
        });
        resolved.buffered(PARALLEL).try_collect().await
    }

    async fn range(&self, request: RangeRequest) -> Result<Page> {
        let (keys_only, most) = (request.keys_only, request.max_bytes);
        let mut page = self.inner.range(request).await?;
        page.kvs.retain(|kv| !is_own(&kv.key));
        if keys_only {
            return Ok(page);
        }
        if let Some(end) = pointer::filled(&page.kvs, most, |key| self.moves(key)) {
            page.more |= end < page.kvs.len();
            page.kvs.truncate(end);
        }
        let resolved = stream::iter(page.kvs).map(|kv| self.resolve(kv));
        page.kvs = resolved.buffered(PARALLEL).try_collect().await?;
        Ok(page)
    }

    async fn count(&self, keys: Range<Bytes>, at: Option<Revision>) -> Result<u64> {
        let own = [MARKER, PASS].into_iter().filter(|own| {
            keys.contains(own.as_bytes()) || keys.end.is_empty() && own.as_bytes() >= &keys.start[..]
        });
        let mut count = self.inner.count(keys.clone(), at).await?;
        for own in own.map(Bytes::from) {
            count -= u64::from(self.inner.get(own, at).await?.is_some());
        }
        Ok(count)
    }

    async fn missing_values(&self) -> Result<Vec<Bytes>> {
        self.without_object().await
    }

    async fn txn(&self, txn: Txn) -> Result<Outcome> {
        txn.check(self.limits())?;
        self.commit(txn).await
    }

    async fn watch(&self, prefix: Bytes, after: Revision, progress: Duration) -> Result<WatchStream> {
        let stream = self.inner.watch(prefix, after, progress).await?;
        let tiered = self.clone();
        let resolved = stream.then(move |item| {
            let tiered = tiered.clone();
            async move { tiered.resolve_item(item?).await }
        });
        let told =
            |item: &Result<WatchItem>| !matches!(item, Ok(WatchItem::Events(events)) if events.is_empty());
        Ok(resolved.filter(move |item| std::future::ready(told(item))).boxed())
    }

    async fn request_progress(&self) {
        self.inner.request_progress().await;
    }

    async fn compact(&self, revision: Revision) -> Result<()> {
        self.inner.compact(revision).await
    }

    async fn oldest(&self) -> Result<Revision> {
        self.inner.oldest().await
    }

    async fn size(&self) -> Result<u64> {
        Ok(self.inner.size().await? + self.chunk_store.bytes.load(Ordering::Relaxed))
    }

    async fn cluster(&self) -> Result<Option<String>> {
        self.inner.cluster().await
    }

    fn collectors(&self) -> Vec<Box<dyn Collector>> {
        self.chunk_store.metrics.collectors()
    }

    async fn tidy(&self) -> Result<()> {
        self.collect_in_turn().await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
