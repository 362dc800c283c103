//! A backend that passes everything on to a real one, counts, and fails or waits where a test says so.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

use async_trait::async_trait;
use parking_lot::Mutex;
use repot_storage::backend::{
    Error, KeyValue, Limits, Op, Outcome, Page, RangeRequest, Result, Revision, Txn, WatchStream,
};
use tokio::sync::Semaphore;

use super::*;

/// What to do with a transaction on a record.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    /// Says that it does not know, and does nothing.
    Lost,
    /// Does it, and says that it does not know.
    Unanswered,
    /// Says that it does not know, and does it at [`Spy::happen`].
    Late,
    /// Does nothing, and says so.
    Unavailable,
    /// Does nothing, and says that a comparison does not hold.
    Failed,
    /// Does nothing, and says that there is no room.
    Full,
    /// Does it, and says that there is no room, as etcd does where its quota is used up meanwhile.
    FullDone,
    /// Does it, is asked for it once more, and gives the second answer: as through a proxy that delivers a request twice.
    Twice,
    /// As [`Fate::Twice`], and waits in between for [`Spy::release`], having told [`Spy::waiting`].
    TwiceHeld,
    /// Does it, and says that it was at a revision of long ago.
    WentBack,
    /// Waits for [`Spy::release`], having told [`Spy::waiting`].
    Held,
    /// Does it, waits like that, and says that it does not know.
    HeldUnanswered,
}

#[derive(Debug)]
pub struct Spy {
    inner: Arc<dyn Backend>,
    fates: Mutex<VecDeque<Fate>>,
    /// The transactions that have a fate: those that change a key with this prefix.
    prefix: Mutex<&'static str>,
    late: Mutex<Vec<Txn>>,
    waiting: Semaphore,
    released: Semaphore,
    /// Bytes of keys and values put since the last [`Spy::reset`].
    bytes: AtomicU64,
    largest: AtomicU64,
    txns: AtomicU64,
    /// Questions for the newest revision, and reads of records and chunks, since the last [`Spy::reset`].
    revisions: AtomicU64,
    read_calls: AtomicU64,
    /// Whether every transaction fails from now on.
    down: AtomicBool,
    /// Whether reads of chunks are refused.
    chunks_refused: AtomicBool,
    /// Changes in a transaction, at most.
    ops: AtomicUsize,
    /// What was read since the last [`Spy::reset`].
    reads: Mutex<Vec<Read>>,
    /// Whether the next page of records that goes on after another one is held.
    page_held: AtomicBool,
}

/// A range or a count.
#[derive(Clone, Debug)]
pub struct Read {
    /// The first key of the range.
    pub start: Bytes,
    /// Whether it only counts.
    pub counted: bool,
    /// Bytes of values that etcd reads for it: also for keys alone.
    pub loaded: u64,
}

impl Spy {
    pub async fn new(lab: &Lab) -> Arc<Self> {
        Self::over(lab.backend().await)
    }

    pub fn over(inner: Arc<dyn Backend>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            fates: Mutex::default(),
            prefix: Mutex::new("/registry/"),
            late: Mutex::default(),
            waiting: Semaphore::new(0),
            released: Semaphore::new(0),
            bytes: AtomicU64::new(0),
            largest: AtomicU64::new(0),
            txns: AtomicU64::new(0),
            revisions: AtomicU64::new(0),
            read_calls: AtomicU64::new(0),
            down: AtomicBool::new(false),
            chunks_refused: AtomicBool::new(false),
            ops: AtomicUsize::new(usize::MAX),
            reads: Mutex::default(),
            page_held: AtomicBool::new(false),
        })
    }

    /// Sets what happens to the next transactions on records, in order.
    pub fn fates(&self, fates: &[Fate]) {
        *self.fates.lock() = fates.iter().copied().collect();
    }

    /// Sets what happens to the next transactions that change a key with this prefix, in order.
    pub fn fates_at(&self, prefix: &'static str, fates: &[Fate]) {
        *self.prefix.lock() = prefix;
        self.fates(fates);
    }

    /// Waits until a transaction is held.
    pub async fn waiting(&self) {
        tokio::time::timeout(PATIENCE, self.waiting.acquire()).await.unwrap().unwrap().forget();
    }

    /// Lets a held transaction go on.
    pub fn release(&self) {
        self.released.add_permits(1);
    }

    /// Lets every transaction fail, or none any more.
    pub fn down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }

    /// Refuses every read of a chunk, or none any more, as etcd does to a user whose role was changed.
    pub fn refuse_chunks(&self, refused: bool) {
        self.chunks_refused.store(refused, Ordering::SeqCst);
    }

    fn may_read(&self, key: &[u8]) -> Result<()> {
        let refused = key.starts_with(b"/chunks/") && self.chunks_refused.load(Ordering::SeqCst);
        if refused { Err(Error::Refused("etcdserver: permission denied".into())) } else { Ok(()) }
    }

    /// Lets the next page of records that goes on after another one wait for [`Spy::release`].
    pub fn hold_page(&self) {
        self.page_held.store(true, Ordering::SeqCst);
    }

    /// Takes no more than so many changes in a transaction.
    pub fn most_ops(&self, most: usize) {
        self.ops.store(most, Ordering::SeqCst);
    }

    /// Ranges and counts since the last reset.
    pub fn reads(&self) -> Vec<Read> {
        self.reads.lock().clone()
    }

    fn note(&self, read: Read) {
        self.reads.lock().push(read);
    }

    /// Does what is late. How many of it happened.
    pub async fn happen(&self) -> usize {
        let late = std::mem::take(&mut *self.late.lock());
        let mut happened = 0;
        for txn in late {
            happened += usize::from(self.inner.txn(txn).await.unwrap() != Outcome::Failed);
        }
        happened
    }

    pub fn reset(&self) {
        self.bytes.store(0, Ordering::SeqCst);
        self.txns.store(0, Ordering::SeqCst);
        self.revisions.store(0, Ordering::SeqCst);
        self.read_calls.store(0, Ordering::SeqCst);
        self.reads.lock().clear();
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::SeqCst)
    }

    pub fn txns(&self) -> u64 {
        self.txns.load(Ordering::SeqCst)
    }

    pub fn revisions(&self) -> u64 {
        self.revisions.load(Ordering::SeqCst)
    }

    pub fn read_calls(&self) -> u64 {
        self.read_calls.load(Ordering::SeqCst)
    }

    /// The largest transaction ever, in bytes.
    pub fn largest(&self) -> u64 {
        self.largest.load(Ordering::SeqCst)
    }

    async fn hold(&self) {
        self.waiting.add_permits(1);
        self.released.acquire().await.unwrap().forget();
    }

    fn count_txn(&self, txn: &Txn) {
        let size = |op: &Op| match op {
            Op::Put(key, value) | Op::PutEphemeral(key, value) => key.len() + value.len(),
            Op::Delete(key) => key.len(),
        };
        let bytes = txn.ops.iter().map(size).sum::<usize>() as u64;
        self.bytes.fetch_add(bytes, Ordering::SeqCst);
        self.largest.fetch_max(bytes, Ordering::SeqCst);
        self.txns.fetch_add(1, Ordering::SeqCst);
    }
}

fn touches(txn: &Txn, prefix: &str) -> bool {
    txn.ops.iter().any(|op| op.key().starts_with(prefix.as_bytes()))
}

#[async_trait]
impl Backend for Spy {
    async fn txn(&self, txn: Txn) -> Result<Outcome> {
        self.count_txn(&txn);
        let fate = if touches(&txn, *self.prefix.lock()) { self.fates.lock().pop_front() } else { None };
        match fate {
            None if self.down.load(Ordering::SeqCst) => Err(Error::Unavailable("down".into())),
            None => self.inner.txn(txn).await,
            Some(Fate::Lost) => Err(Error::Unknown("lost".into())),
            Some(Fate::Unanswered) => {
                self.inner.txn(txn).await?;
                Err(Error::Unknown("unanswered".into()))
            }
            Some(Fate::Late) => {
                self.late.lock().push(txn);
                Err(Error::Unknown("late".into()))
            }
            Some(Fate::Unavailable) => Err(Error::Unavailable("down".into())),
            Some(Fate::Failed) => Ok(Outcome::Failed),
            Some(Fate::Full) => Err(Error::NoSpace("full".into())),
            Some(Fate::FullDone) => {
                self.inner.txn(txn).await?;
                Err(Error::NoSpace("full".into()))
            }
            Some(Fate::Twice) => {
                self.inner.txn(txn.clone()).await?;
                self.inner.txn(txn).await
            }
            Some(Fate::TwiceHeld) => {
                self.inner.txn(txn.clone()).await?;
                self.hold().await;
                self.inner.txn(txn).await
            }
            Some(Fate::WentBack) => {
                self.inner.txn(txn).await?;
                Ok(Outcome::Committed(Revision(1)))
            }
            Some(Fate::Held) => {
                self.hold().await;
                self.inner.txn(txn).await
            }
            Some(Fate::HeldUnanswered) => {
                self.inner.txn(txn).await?;
                self.hold().await;
                Err(Error::Unknown("unanswered".into()))
            }
        }
    }

    fn prefers_compression(&self) -> bool {
        self.inner.prefers_compression()
    }

    fn limits(&self) -> Limits {
        let limits = self.inner.limits();
        Limits { txn_ops: limits.txn_ops.min(self.ops.load(Ordering::SeqCst)), ..limits }
    }

    async fn revision(&self) -> Result<Revision> {
        self.revisions.fetch_add(1, Ordering::SeqCst);
        self.inner.revision().await
    }

    async fn get(&self, key: Bytes, at: Option<Revision>) -> Result<Option<KeyValue>> {
        self.read_calls.fetch_add(1, Ordering::SeqCst);
        self.inner.get(key, at).await
    }

    async fn get_many(&self, keys: Vec<Bytes>, at: Revision) -> Result<Vec<Option<KeyValue>>> {
        self.read_calls.fetch_add(1, Ordering::SeqCst);
        keys.iter().try_for_each(|key| self.may_read(key))?;
        self.inner.get_many(keys, at).await
    }

    async fn range(&self, request: RangeRequest) -> Result<Page> {
        self.read_calls.fetch_add(1, Ordering::SeqCst);
        let (start, keys_only) = (request.keys.start.clone(), request.keys_only);
        let with_values = RangeRequest { keys_only: false, max_bytes: 0, ..request.clone() };
        let page = self.inner.range(request).await?;
        let mut read = Read { start, counted: false, loaded: 0 };
        let values = match keys_only {
            // As etcd does: it reads the values of all keys, and of one more where there is one.
            true => {
                self.inner
                    .range(RangeRequest { limit: page.kvs.len() + usize::from(page.more), ..with_values })
                    .await?
            }
            false => page.clone(),
        };
        read.loaded = values.kvs.iter().map(|kv| kv.value.len() as u64).sum();
        let goes_on = read.start.starts_with(b"/registry/") && !read.start.ends_with(b"/");
        if goes_on && self.page_held.swap(false, Ordering::SeqCst) {
            self.hold().await;
        }
        self.note(read);
        Ok(page)
    }

    async fn count(&self, keys: Range<Bytes>, at: Option<Revision>) -> Result<u64> {
        self.may_read(&keys.start)?;
        self.note(Read { start: keys.start.clone(), counted: true, loaded: 0 });
        self.inner.count(keys, at).await
    }

    async fn missing_values(&self) -> Result<Vec<Bytes>> {
        self.inner.missing_values().await
    }

    async fn watch(&self, prefix: Bytes, after: Revision, progress: Duration) -> Result<WatchStream> {
        self.inner.watch(prefix, after, progress).await
    }

    async fn request_progress(&self) {
        // To etcd that is a read.
        self.revisions.fetch_add(1, Ordering::SeqCst);
        self.inner.request_progress().await;
    }

    async fn compact(&self, revision: Revision) -> Result<()> {
        self.inner.compact(revision).await
    }

    async fn oldest(&self) -> Result<Revision> {
        self.inner.oldest().await
    }

    async fn size(&self) -> Result<u64> {
        self.inner.size().await
    }

    async fn tidy(&self) -> Result<()> {
        self.inner.tidy().await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

/// Every key and value at rest under a prefix.
pub async fn all(backend: &dyn Backend, prefix: &str) -> Vec<KeyValue> {
    let mut request = RangeRequest {
        keys: repot_storage::backend::prefix_range(prefix.as_bytes()),
        at: None,
        limit: 500,
        max_bytes: 0,
        keys_only: false,
    };
    let mut found = Vec::new();
    loop {
        let page = backend.range(request.clone()).await.unwrap();
        found.extend(page.kvs);
        if !page.more {
            return found;
        }
        request.keys.start = [&found.last().unwrap().key[..], b"\0"].concat().into();
    }
}

/// Writes raw values past the store.
pub async fn put(backend: &dyn Backend, key: &Bytes, value: impl Into<Bytes>) {
    let ops = vec![Op::Put(key.clone(), value.into())];
    backend.txn(Txn { compares: vec![], ops }).await.unwrap();
}

/// Removes a key past the store.
pub async fn remove(backend: &dyn Backend, key: &Bytes) {
    backend.txn(Txn { compares: vec![], ops: vec![Op::Delete(key.clone())] }).await.unwrap();
}
