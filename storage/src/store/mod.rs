//! The store of objects.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::stream::BoxStream;

use crate::{Error, Keyring, Result, backend::Backend};

pub mod types;

use types::{Draft, Key, List, ListRequest, Object, ResourceVersion, Scope, WatchItem};

/// What can be set about a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// How long past versions stay readable: the window of `list` at a version, of `watch` after a version, and of reading
    /// the payload of an object that was replaced meanwhile. Not under [`StoreOptions::MIN_HISTORY`] in production.
    pub history: Duration,
}

impl StoreOptions {
    /// The shortest history that clients of a Kubernetes API can live with.
    pub const MIN_HISTORY: Duration = Duration::from_secs(300);
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { history: Self::MIN_HISTORY }
    }
}

/// What a pass of [`Store::collect`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectReport {
    /// Chunks that were looked at.
    pub chunks: u64,
    /// Chunks that were removed because no object can name them any more.
    pub removed: u64,
}

/// A store of sealed objects. Cheap to clone; all clones are one store.
#[derive(Clone, Debug)]
pub struct Store {}

impl Store {
    /// Opens the store that rests in a backend, or founds it.
    pub async fn open(backend: Arc<dyn Backend>, keys: Arc<Keyring>, options: StoreOptions) -> Result<Self> {
        let _ = (backend, keys, options);
        Err(Error::Unavailable(String::new()))
    }

    /// The newest version (linearizable).
    pub async fn current(&self) -> Result<ResourceVersion> {
        Err(Error::Unavailable(String::new()))
    }

    /// The newest state of an object (linearizable): the head; the payload is read with [`Store::payload`].
    pub async fn get(&self, key: &Key) -> Result<Option<Object>> {
        let _ = key;
        Err(Error::Unavailable(String::new()))
    }

    /// The payload of this state of the object, in order, piece by piece.
    pub fn payload(&self, object: &Object) -> BoxStream<'static, Result<Bytes>> {
        let _ = object;
        Box::pin(futures::stream::empty())
    }

    /// The whole payload of this state of the object.
    pub async fn payload_bytes(&self, object: &Object) -> Result<Bytes> {
        let _ = object;
        Err(Error::Unavailable(String::new()))
    }

    /// Stores a new object. [`Error::Exists`] if there is one at this key.
    pub async fn create(&self, key: &Key, draft: Draft) -> Result<Object> {
        let _ = (key, draft);
        Err(Error::Unavailable(String::new()))
    }

    /// Replaces an object. [`Error::Conflict`] if `current` is not its newest state.
    pub async fn update(&self, current: &Object, draft: Draft) -> Result<Object> {
        let _ = (current, draft);
        Err(Error::Unavailable(String::new()))
    }

    /// Removes an object and returns its last state. [`Error::Conflict`] if `current` is not its newest state.
    pub async fn delete(&self, current: &Object) -> Result<Object> {
        let _ = current;
        Err(Error::Unavailable(String::new()))
    }

    /// A page of objects, all as of one version. It may hold fewer than the limit and still have a `next`.
    pub async fn list(&self, request: ListRequest) -> Result<List> {
        let _ = request;
        Err(Error::Unavailable(String::new()))
    }

    /// All objects of a scope in one list, from memory where possible: as of `at_least` or newer, `None`: of now.
    pub async fn list_cached(&self, scope: &Scope, at_least: Option<ResourceVersion>) -> Result<List> {
        let _ = (scope, at_least);
        Err(Error::Unavailable(String::new()))
    }

    /// Everything that happens in a scope after a version, exactly once and in order. The stream ends after an error.
    pub async fn watch(
        &self,
        scope: &Scope,
        after: ResourceVersion,
    ) -> Result<BoxStream<'static, Result<WatchItem>>> {
        let _ = (scope, after);
        Err(Error::Unavailable(String::new()))
    }

    /// Waits until the store has reached a version; [`Error::Future`] if it has not in time.
    pub async fn wait_until(&self, version: ResourceVersion, timeout: Duration) -> Result<()> {
        let _ = (version, timeout);
        Err(Error::Unavailable(String::new()))
    }

    /// One pass of collection: removes chunks that no object can name any more.
    pub async fn collect(&self) -> Result<CollectReport> {
        Err(Error::Unavailable(String::new()))
    }

    /// Stops background work. Streams end; the backend is closed.
    pub async fn close(&self) {}
}
