//! An object store in front of another one. Its calls wait, or never end, where a test says so.

use std::{
    fmt,
    path::Path as FilePath,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, path::Path,
};
use parking_lot::Mutex;
use repot_storage::backend::tiered::ObjectLocation;
use tokio::sync::Semaphore;

use crate::store::{PATIENCE, files};

/// A kind of call that never ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    List,
    Put,
    Delete,
}

/// Wraps an object store: the test makes all calls of one kind hang, and holds puts until it releases them.
#[derive(Debug)]
pub struct Gate {
    inner: Arc<dyn ObjectStore>,
    hung: Mutex<Option<Call>>,
    /// Calls that hang, or hung until they were dropped.
    hanging: AtomicUsize,
    began_to_hang: Semaphore,
    /// Whether a put of a new object is answered only after [`Gate::release`].
    holds: AtomicBool,
    held: Semaphore,
    released: Semaphore,
    /// The time that each entry of a list takes.
    entry: Mutex<Duration>,
}

impl Gate {
    /// In front of a directory.
    pub fn new(dir: &FilePath) -> (Arc<Self>, ObjectLocation) {
        let place = files(dir);
        let gate = Arc::new(Self {
            inner: place.objects,
            hung: Mutex::new(None),
            hanging: AtomicUsize::new(0),
            began_to_hang: Semaphore::new(0),
            holds: AtomicBool::new(false),
            held: Semaphore::new(0),
            released: Semaphore::new(0),
            entry: Mutex::new(Duration::ZERO),
        });
        (gate.clone(), ObjectLocation { objects: Arc::new(Shared(gate)), root: place.root, url: place.url })
    }

    /// From now on calls of this kind never end.
    pub fn hang(&self, call: Option<Call>) {
        *self.hung.lock() = call;
    }

    /// How many calls hung so far.
    pub fn hanging(&self) -> usize {
        self.hanging.load(Ordering::SeqCst)
    }

    /// Waits until a call hangs.
    pub async fn hangs(&self) {
        tokio::time::timeout(PATIENCE, self.began_to_hang.acquire()).await.unwrap().unwrap().forget();
    }

    /// From now on new objects are put, and the answer is held back.
    pub fn hold(&self, holds: bool) {
        self.holds.store(holds, Ordering::SeqCst);
    }

    /// Waits until an answer is held back.
    pub async fn held(&self) {
        tokio::time::timeout(PATIENCE, self.held.acquire()).await.unwrap().unwrap().forget();
    }

    /// Gives one answer that is held back.
    pub fn release(&self) {
        self.released.add_permits(1);
    }

    /// From now on each entry of a list takes so long.
    pub fn slow_lists(&self, entry: Duration) {
        *self.entry.lock() = entry;
    }

    /// Never ends where this kind of call hangs.
    async fn pass(&self, call: Call) {
        if *self.hung.lock() == Some(call) {
            self.hanging.fetch_add(1, Ordering::SeqCst);
            self.began_to_hang.add_permits(1);
            std::future::pending::<()>().await;
        }
    }
}

/// What is handed to a backend: streams outlive the call that makes them, so it owns its share of the gate.
#[derive(Clone, Debug)]
struct Shared(Arc<Gate>);

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.inner.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Shared {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let new = options.mode == PutMode::Create;
        if new {
            self.0.pass(Call::Put).await;
        }
        let put = self.0.inner.put_opts(path, payload, options).await;
        if new && self.0.holds.load(Ordering::SeqCst) {
            self.0.held.add_permits(1);
            self.0.released.acquire().await.unwrap().forget();
        }
        put
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.0.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.inner.get_opts(path, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (gate, inner) = (self.clone(), Arc::clone(&self.0.inner));
        let passed = stream::once(async move { gate.0.pass(Call::Delete).await });
        passed.filter_map(|()| std::future::ready(None)).chain(inner.delete_stream(paths)).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (gate, entry) = (self.clone(), *self.0.entry.lock());
        let listed = self.0.inner.list(prefix).then(move |meta| async move {
            tokio::time::sleep(entry).await;
            meta
        });
        let passed = stream::once(async move { gate.0.pass(Call::List).await });
        passed.filter_map(|()| std::future::ready(None)).chain(listed).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.inner.copy_opts(from, to, options).await
    }
}
