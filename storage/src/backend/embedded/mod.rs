//! The store of one process in one directory, on an embedded log-structured merge tree.
//!
//! May not know what rests in it. Reads run on blocking threads, but for small values that were read lately; writes go
//! through one committer, see [`commit`].

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{RwLock, Semaphore, mpsc, oneshot, watch as signal};

use super::{
    Backend, Error, KeyValue, Limits, Outcome, Page, RangeRequest, Result, Revision, Txn, WatchStream,
};
use commit::{Committer, Job};
use engine::Engine;

mod commit;
mod compact;
mod engine;
mod home;
mod journal;
mod layout;
mod read;
mod recent;
mod watch;

/// What one transaction may hold. Larger ones would make everybody else wait for their copying.
const LIMITS: Limits = Limits { txn_bytes: 4 << 20, txn_ops: 1024 };
/// Transactions that may wait for the committer.
const QUEUE_TXNS: usize = 1024;
/// KiB of transactions that may wait for the committer.
const QUEUE_KIB: usize = 16 << 10;

/// What an operator may want to set.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of recently read blocks and values that are kept in memory; a quarter of it for small values that can be read without
    /// a look at the tables.
    pub cache_bytes: u64,
    /// With less than this many bytes free on the file system, writes fail with [`Error::NoSpace`], while removals and
    /// compaction still work.
    pub min_free_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { cache_bytes: 8 << 20, min_free_bytes: 256 << 20 }
    }
}

/// A store in a directory.
///
/// # Guarantees
/// Those of [`Backend`]. A directory belongs to one handle in one process, until [`Backend::close`] (or until the handle
/// and all its watches are dropped). After a crash the store opens without help and in a time that does not grow with
/// its size. A value is kept as it was given, not copied: a slice of a larger buffer keeps that buffer in memory until
/// it is written out.
///
/// # Assumptions
/// The file system honours `fdatasync`. When a sync fails, the store refuses writes until it is opened again.
pub struct Embedded {
    shared: Arc<Shared>,
    queue: Mutex<Option<mpsc::Sender<Job>>>,
    committer: Mutex<Option<JoinHandle<()>>>,
    room: Arc<Semaphore>,
    path: PathBuf,
}

/// What reads and watches need.
struct Shared {
    /// Empty once the store is closed. Readers hold it shared while they read.
    engine: Arc<RwLock<Option<Arc<Engine>>>>,
    newest: signal::Receiver<Revision>,
    nudges: signal::Sender<u64>,
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Embedded {
    /// Opens the store in a directory, which is made where it does not exist.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where another handle has the directory, or the disk fails; [`Error::Corrupt`] where the
    /// files are not what this store writes. Both name the directory.
    pub async fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        let path = path.as_ref().to_owned();
        blocking(move || Self::open_blocking(path, &options)).await
    }

    fn open_blocking(path: PathBuf, options: &Options) -> Result<Self> {
        let engine = Arc::new(Engine::open(&path, options)?);
        let (sender, newest) = signal::channel(engine.newest());
        let mut committer = Committer::new(Arc::clone(&engine), sender, options.min_free_bytes);
        commit::sweep(&mut committer)?;
        let (queue, jobs) = mpsc::channel(QUEUE_TXNS);
        let thread = std::thread::Builder::new()
            .name("repot-committer".into())
            .spawn(move || committer.run(jobs))
            .map_err(|error| Error::Unavailable(format!("cannot start the committer: {error}")))?;
        let (nudges, _) = signal::channel(0);
        Ok(Self {
            shared: Arc::new(Shared { engine: Arc::new(RwLock::new(Some(engine))), newest, nudges }),
            queue: Mutex::new(Some(queue)),
            committer: Mutex::new(Some(thread)),
            room: Arc::new(Semaphore::new(QUEUE_KIB)),
            path,
        })
    }
}

impl Shared {
    /// Runs a read on a blocking thread.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Engine) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let engine = Arc::clone(&self.engine).read_owned().await;
        blocking(move || engine.as_deref().map_or_else(|| Err(closed()), work)).await
    }

    /// One key, and the revision that the read saw. What was read lately is at hand.
    async fn read_one(&self, key: Bytes, at: Option<Revision>) -> Result<(Option<KeyValue>, Revision)> {
        if at.is_none() {
            let engine = self.engine.read().await;
            if let Some((kv, newest)) = engine.as_deref().ok_or_else(closed)?.recent().get(&key) {
                return Ok((Some(kv), newest));
            }
        }
        self.read(move |engine| {
            let view = engine.view(at)?;
            let (found, seen) = (view.get(&key)?, view.revision());
            if let (Some(kv), None) = (&found, at) {
                engine.recent().keep(kv, seen);
            }
            Ok((found, seen))
        })
        .await
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(Error::Unavailable(format!("work on the store was cut short: {error}"))))
}

/// The one key that a range can hold, where its value is asked for.
fn only_key(request: &RangeRequest) -> Option<Bytes> {
    let key = request.keys.end.strip_suffix(&[0])?;
    (key == &request.keys.start[..] && !request.keys_only).then(|| request.keys.start.clone())
}

fn closed() -> Error {
    Error::Unavailable("the store is closed".into())
}

#[async_trait]
impl Backend for Embedded {
    fn prefers_compression(&self) -> bool {
        false
    }

    fn limits(&self) -> Limits {
        LIMITS
    }

    async fn revision(&self) -> Result<Revision> {
        // One process, one store: what was acknowledged is in this cell.
        Ok(*self.shared.newest.borrow())
    }

    async fn get(&self, key: Bytes, at: Option<Revision>) -> Result<Option<KeyValue>> {
        self.shared.read_one(key, at).await.map(|(found, _)| found)
    }

    async fn get_many(&self, keys: Vec<Bytes>, at: Revision) -> Result<Vec<Option<KeyValue>>> {
        self.shared
            .read(move |engine| {
                let view = engine.view(Some(at))?;
                keys.iter().map(|key| view.get(key)).collect()
            })
            .await
    }

    async fn range(&self, request: RangeRequest) -> Result<Page> {
        if let Some(key) = only_key(&request) {
            let (found, revision) = self.shared.read_one(key, request.at).await?;
            return Ok(Page { kvs: found.into_iter().collect(), revision, more: false });
        }
        self.shared.read(move |engine| engine.view(request.at)?.range(&request)).await
    }

    async fn txn(&self, txn: Txn) -> Result<Outcome> {
        txn.check(LIMITS)?;
        let kib = u32::try_from(txn.size() / 1024 + 1).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room).acquire_many_owned(kib).await.map_err(|_| closed())?;
        let queue = self.queue.lock().clone().ok_or_else(closed)?;
        let (answer, outcome) = oneshot::channel();
        queue.send(Job { txn, answer, _room: room }).await.map_err(|_| closed())?;
        outcome.await.unwrap_or_else(|_| Err(Error::Unknown("the committer ended before it answered".into())))
    }

    async fn watch(&self, prefix: Bytes, after: Revision, progress: Duration) -> Result<WatchStream> {
        watch::open(Arc::clone(&self.shared), prefix, after, progress).await
    }

    async fn request_progress(&self) {
        self.shared.nudges.send_modify(|count| *count += 1);
    }

    async fn compact(&self, revision: Revision) -> Result<()> {
        self.shared.read(move |engine| engine.compact(revision)).await
    }

    async fn oldest(&self) -> Result<Revision> {
        self.shared.read(|engine| Ok(engine.floor())).await
    }

    async fn size(&self) -> Result<u64> {
        self.shared.read(Engine::size).await
    }

    async fn close(&self) {
        drop(self.queue.lock().take());
        let committer = self.committer.lock().take();
        if let Some(engine) = self.shared.engine.read().await.as_ref() {
            engine.stop();
        }
        let engine = self.shared.engine.write().await.take();
        let ended = blocking(move || {
            let panicked = committer.is_some_and(|thread| thread.join().is_err());
            drop(engine);
            if panicked { Err(Error::Unavailable("the committer panicked".into())) } else { Ok(()) }
        });
        if let Err(error) = ended.await {
            tracing::error!(%error, "store closed after a failure");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_one_key_is_told_from_others() {
        let range = |start: &'static [u8], end: &'static [u8]| RangeRequest {
            keys: Bytes::from_static(start)..Bytes::from_static(end),
            at: None,
            limit: 0,
            max_bytes: 0,
            keys_only: false,
        };
        assert_eq!(only_key(&range(b"a", b"a\0")), Some(Bytes::from_static(b"a")));
        for (start, end) in
            [(&b"a"[..], &b"b"[..]), (b"a", b""), (b"a", b"a"), (b"a", b"ab\0"), (b"", b"a\0")]
        {
            assert_eq!(only_key(&range(start, end)), None, "{start:?} {end:?}");
        }
        assert_eq!(only_key(&RangeRequest { keys_only: true, ..range(b"a", b"a\0") }), None);
    }
}
