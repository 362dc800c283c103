//! An object store in front of another one. The answers to its puts wait where a test says so.

use std::{
    fmt,
    path::Path as FilePath,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, path::Path,
};
use repot_storage::backend::tiered::Place;
use tokio::sync::Semaphore;

use crate::store::{PATIENCE, files};

/// See the module.
#[derive(Debug)]
pub struct Gate {
    inner: Arc<dyn ObjectStore>,
    /// Whether a put of a new object is answered only after [`Gate::release`].
    holds: AtomicBool,
    held: Semaphore,
    released: Semaphore,
}

impl Gate {
    /// In front of a directory.
    pub fn new(dir: &FilePath) -> (Arc<Self>, Place) {
        let place = files(dir);
        let gate = Arc::new(Self {
            inner: place.objects,
            holds: AtomicBool::new(false),
            held: Semaphore::new(0),
            released: Semaphore::new(0),
        });
        (gate.clone(), Place { objects: Arc::new(Shared(gate)), root: place.root, url: place.url })
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
        self.0.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.inner.copy_opts(from, to, options).await
    }
}
