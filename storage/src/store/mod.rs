//! The store of objects: reads, writes, lists and watches over a backend, all of it sealed.
//!
//! Where to look: `write` how an object changes in one transaction, `payload` how it is read, `watch_cache` the watch cache,
//! `collect` how chunks go that no object names, `usage` how much there is, `epoch` how revisions become versions.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::stream::BoxStream;
use tokio_util::sync::DropGuard;

use crate::{
    Error, Keyring, Result,
    backend::{Backend, Measured},
    trace,
};

pub mod archive;
mod audit;
mod collect;
mod commit;
mod core;
mod duty;
mod epoch;
mod fsck;
pub mod high_water;
mod housekeeping;
mod intent;
pub(crate) mod manifest;
mod metrics;
mod missing;
mod pages;
pub(crate) mod path;
mod payload;
mod prepare;
mod quarantine;
mod read;
mod revisions;
mod rewrite;
pub mod types;
mod upload;
mod usage;
mod watch_cache;
mod write;

use self::core::Core;
use audit::Named;
pub use collect::CollectReport;
use collect::Duty;
pub use fsck::{Checked, Damage, Finding, Remedy};
use high_water::{Guard, Keeper};
use intent::Intents;
pub use missing::Missing;
pub use payload::Lost;
pub use quarantine::Quarantined;
pub use rewrite::{KeyUse, Rewritten};
use types::{Draft, Key, List, ListRequest, Object, ResourceVersion, Scope, WatchItem};
pub use usage::Usage;
use watch_cache::WatchCaches;

/// What can be set about a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// How long past versions stay readable: the window of `list` at a version, of `watch` after a version, and of reading
    /// the payload of an object that was replaced meanwhile. Not under [`StoreOptions::MIN_HISTORY`] in production.
    pub history: Duration,
    /// How often chunks are collected that no object names. They are left over only by crashes and cut connections.
    pub collect_every: Duration,
    /// How often all chunks are counted, for those of which no manifest tells.
    pub audit_every: Duration,
    /// How long one write intent serves.
    pub intent_rotation: Duration,
    /// How old an intent may get before the collector takes it for forgotten; the longest that one write may take.
    pub intent_patience: Duration,
    /// Past events that are kept in memory for watches of one resource. Older ones are read from the backend.
    pub ring_events: usize,
    /// Bytes of heads that these events may hold.
    pub ring_bytes: usize,
    /// A watch tells its progress at most this often.
    pub bookmark_every: Duration,
}

impl StoreOptions {
    /// The shortest history that clients of a Kubernetes API can live with.
    pub const MIN_HISTORY: Duration = Duration::from_secs(300);
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            history: Self::MIN_HISTORY,
            collect_every: Duration::from_secs(600),
            audit_every: Duration::from_secs(86_400),
            intent_rotation: Duration::from_secs(60),
            intent_patience: Duration::from_secs(900),
            ring_events: 4096,
            ring_bytes: 4 << 20,
            bookmark_every: Duration::from_secs(1),
        }
    }
}

/// A store of sealed objects. Cheap to clone; all clones are one store.
///
/// # Guarantees
/// - A write that was acknowledged survives a crash. It happened entirely; one that was not, entirely or not at all.
/// - Reads without a version see every write that was acknowledged before, by whichever replica.
/// - Nothing but keys rests in clear, and nothing that was altered, moved, cut or swapped is ever returned.
///
/// # Errors
/// [`Error`]. What is wrong with one object never hides another. Calls may be dropped at any time: a write that was
/// dropped happened entirely or not at all.
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    core: Arc<Core>,
    intents: Arc<Intents>,
    caches: WatchCaches,
    metrics: high_water::Metrics,
    /// Background work ends with the last handle, also where nobody calls [`Store::close`].
    _stop: DropGuard,
}

impl Store {
    /// Opens the store that rests in a backend, or founds it.
    ///
    /// # Errors
    /// [`Error::Damaged`] where a newer program wrote the store; [`Error::Unavailable`].
    pub async fn open(backend: Arc<dyn Backend>, keys: Arc<Keyring>, options: StoreOptions) -> Result<Self> {
        Self::open_guarded(backend, keys, options, None).await
    }

    /// As [`Store::open`], if it was not put back to an older copy since its newest version was recorded; and records it from
    /// now on.
    ///
    /// # Errors
    /// [`Error::Damaged`] where it was, or where the mark is that of another store: the message says what to do.
    /// [`Error::Unavailable`] where the mark could not be read in [`Guard::patience`].
    pub async fn open_guarded(
        backend: Arc<dyn Backend>,
        keys: Arc<Keyring>,
        options: StoreOptions,
        guard: Option<Guard>,
    ) -> Result<Self> {
        let measured = Measured::new(backend).map_err(|error| Error::Damaged(error.to_string()))?;
        let core = Arc::new(Core::new(Arc::new(measured), keys, options).await?);
        let metrics = high_water::Metrics::new().map_err(|error| Error::Damaged(error.to_string()))?;
        if let Some(guard) = guard {
            let keeper = Keeper::check(&core, guard, metrics.clone()).await?;
            core.tasks.spawn(keeper.run(Arc::clone(&core)));
        }
        let intents = Arc::new(Intents::new(Arc::clone(&core)));
        core.tasks.spawn(housekeeping::run(Arc::clone(&core), Arc::clone(&intents)));
        let (caches, _stop) = (WatchCaches::new(Arc::clone(&core)), core.stop.clone().drop_guard());
        Ok(Self { inner: Arc::new(Inner { core, intents, caches, metrics, _stop }) })
    }

    /// What is counted about the store, its keys and its backend, to be registered once.
    pub fn collectors(&self) -> Vec<Box<dyn prometheus::core::Collector>> {
        let mut all = self.keyring().collectors();
        all.extend(self.inner.metrics.collectors());
        all.extend(self.inner.core.metrics.collectors());
        all.extend(self.inner.core.backend.collectors());
        all
    }

    /// What wraps the keys of its objects.
    pub fn keyring(&self) -> &Arc<Keyring> {
        &self.inner.core.keys
    }

    /// The newest version (linearizable).
    pub async fn current(&self) -> Result<ResourceVersion> {
        let core = &self.inner.core;
        Ok(core.version(core.revision().await?))
    }

    /// The newest state of an object (linearizable): the head; the payload is read with [`Store::payload`].
    pub async fn get(&self, key: &Key) -> Result<Option<Object>> {
        trace::operation("storage.get", of_key(key), self.inner.core.get(key)).await
    }

    /// The payload of this state of the object, in order, in pieces of less than a MiB. A few pieces are read ahead.
    ///
    /// # Errors
    /// [`Error::Expired`] where the object was replaced or removed longer ago than the history goes.
    pub fn payload(&self, object: &Object) -> BoxStream<'static, Result<Bytes>> {
        payload::Reader::new(Arc::clone(&self.inner.core), object.clone()).stream()
    }

    /// The whole payload of this state of the object, in one allocation.
    ///
    /// # Errors
    /// As of [`Store::payload`].
    pub async fn payload_bytes(&self, object: &Object) -> Result<Bytes> {
        payload::Reader::new(Arc::clone(&self.inner.core), object.clone()).whole().await
    }

    /// Stores a new object. [`Error::Exists`] if there is one at this key.
    pub async fn create(&self, key: &Key, draft: Draft) -> Result<Object> {
        trace::operation("storage.create", of_key(key), self.inner.intents.write(key, None, draft)).await
    }

    /// Replaces an object. [`Error::Conflict`] if `current` is not its newest state; [`Error::Invalid`] if the draft has
    /// another uid.
    pub async fn update(&self, current: &Object, draft: Draft) -> Result<Object> {
        if draft.uid != current.uid {
            return Err(Error::Invalid("the uid of an object never changes"));
        }
        let written = self.inner.intents.write(&current.key, Some(current), draft);
        trace::operation("storage.update", of_key(&current.key), written).await
    }

    /// Replaces the head of an object; the payload stays what it is and is not read. Wraps the data key of a
    /// [stale](Object::stale) object anew. [`Error::Conflict`] if `current` is not its newest state.
    pub async fn update_head(&self, current: &Object, meta: Bytes, summary: Bytes) -> Result<Object> {
        let written = self.inner.intents.write_head(current, meta, summary);
        trace::operation("storage.update_head", of_key(&current.key), written).await
    }

    /// Removes an object and returns its last state, with the version of the removal. [`Error::Conflict`] if `current` is
    /// not its newest state.
    pub async fn delete(&self, current: &Object) -> Result<Object> {
        trace::operation("storage.delete", of_key(&current.key), self.inner.intents.remove(current)).await
    }

    /// A page of objects, all as of one version. It is bounded in bytes too: it may hold fewer than the limit, even where
    /// that is zero, and still have a `next`. To go on, ask again with `at` the version of this page and `after` its `next`.
    ///
    /// # Errors
    /// [`Error::Expired`] and [`Error::Future`] where `at` cannot be read; [`Error::Unavailable`] where the backend or a key
    /// management service is away. An object that does not open is an error in the list, in its place.
    pub async fn list(&self, request: ListRequest) -> Result<List> {
        let scope = request.scope.clone();
        self.listed(&scope, self.inner.core.list(request)).await
    }

    /// All objects of a scope in one list, from memory where that is recent enough: as of `at_least` or newer; `None`: as
    /// of everything that was acknowledged before the call.
    ///
    /// # Errors
    /// [`Error::Future`] if the store has not reached `at_least` yet; [`Error::Busy`] where memory does not tell, and too many others
    /// read everything from the backend.
    pub async fn list_cached(&self, scope: &Scope, at_least: Option<ResourceVersion>) -> Result<List> {
        self.listed(scope, self.inner.caches.list(scope, at_least)).await
    }

    /// As [`Store::list`], from memory where the watch cache can tell: pages as of a version as long as its events go back to that
    /// version. Without [`ListRequest::at`]: as of `at_least` or newer; `None`: as of everything that was acknowledged before the
    /// call, which costs one question to the backend. What the cache cannot tell is read from the backend.
    ///
    /// # Errors
    /// As of [`Store::list`]; [`Error::Future`] if the store has not reached `at_least` yet.
    pub async fn list_page(&self, request: ListRequest, at_least: Option<ResourceVersion>) -> Result<List> {
        let scope = request.scope.clone();
        self.listed(&scope, self.inner.caches.page(request, at_least)).await
    }

    async fn listed(&self, scope: &Scope, list: impl Future<Output = Result<List>>) -> Result<List> {
        let counted = async { list.await.inspect(|list| trace::objects(list.objects.len())) };
        trace::operation("storage.list", of_scope(scope), counted).await
    }

    /// How many objects of a scope come after a key just now, as far as the cache knows; `None` before it does.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a key that cannot be one.
    pub fn count_cached(&self, scope: &Scope, after: &Key) -> Result<Option<u64>> {
        self.inner.caches.count(scope, after)
    }

    /// What the objects of a scope come to, by namespace, as of everything that was acknowledged before the call. Of one
    /// namespace, or where somebody watches, from memory: that costs one question to the backend. All heads are read otherwise.
    ///
    /// # Errors
    /// As of [`Store::list`].
    pub async fn usage(&self, scope: &Scope) -> Result<BTreeMap<String, Usage>> {
        self.inner.caches.usage(scope).await
    }

    /// Everything that happens in a scope after a version, exactly once and in order. The stream ends after an error, and
    /// without one when the store is closed.
    ///
    /// # Errors
    /// From the call or as an item: [`Error::Future`] where `after` has not happened yet; [`Error::Expired`] where it is
    /// older than the history; [`Error::Slow`] where the watcher did not keep up; [`Error::Unavailable`] where the backend
    /// lost the thread; [`Error::Corrupt`] and [`Error::Sealing`] where an object does not open. But for the last two,
    /// watching again after the last version that was delivered, or listing again if that is expired, goes on without a gap.
    pub async fn watch(
        &self,
        scope: &Scope,
        after: ResourceVersion,
    ) -> Result<BoxStream<'static, Result<WatchItem>>> {
        self.inner.caches.watch(scope, after).await
    }

    /// Waits until the store has reached a version. Any number of calls cost ten questions to the backend in a second.
    ///
    /// # Errors
    /// [`Error::Future`] if it has not in time.
    pub async fn wait_until(&self, version: ResourceVersion, timeout: Duration) -> Result<()> {
        let core = &self.inner.core;
        core.sound()?;
        core.wait_for(core.epoch.revision(version), timeout).await
    }

    /// One pass of collection: removes chunks that a manifest names and no object can name any more. Any replica may do so at
    /// any time.
    ///
    /// # Errors
    /// [`Error::Expired`] where a pass took longer than the history; nothing is lost by that.
    pub async fn collect(&self) -> Result<CollectReport> {
        self.inner.core.collect(&Duty { remove: true, fence: None }).await
    }

    /// A pass of collection, and after it a count of all chunks: removes also what no manifest names. Reads all records, and no
    /// chunk but those that it removes. Where an object has as many chunks as it names, it is taken for whole.
    ///
    /// # Errors
    /// As of [`Store::collect`].
    pub async fn audit(&self) -> Result<CollectReport> {
        self.audit_with(Named::None).await
    }

    /// As [`Store::audit`], and asks for each chunk that an object names, by its name: finds also chunks that are missing, and those
    /// that are in their place.
    ///
    /// # Errors
    /// As of [`Store::collect`].
    pub async fn audit_by_name(&self) -> Result<CollectReport> {
        self.audit_with(Named::All).await
    }

    async fn audit_with(&self, named: Named) -> Result<CollectReport> {
        let duty = Duty { remove: true, fence: None };
        let collected = self.inner.core.collect(&duty).await?;
        let mut report = self.inner.core.audit(&duty, named).await?;
        report.removed += collected.removed;
        Ok(report)
    }

    /// Makes the newest version larger than `mark`, the largest version that clients may have seen: to be called after a
    /// store was imported, restored from an older copy or moved to another backend, before anybody is served.
    ///
    /// # Assumptions
    /// No other handle, in this process or elsewhere, has the store open.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Damaged`].
    pub async fn raise_past(&self, mark: ResourceVersion) -> Result<()> {
        let core = &self.inner.core;
        core.epoch.raise_past(&*core.backend, mark).await
    }

    /// Stops background work. Streams end; the backend is closed.
    pub async fn close(&self) {
        let core = &self.inner.core;
        core.stop.cancel();
        self.inner.intents.close().await;
        core.tasks.close();
        core.tasks.wait().await;
        core.backend.close().await;
    }
}

/// Group and resource of an object, for traces.
fn of_key(key: &Key) -> (&str, &str) {
    (&key.group, &key.resource)
}

/// The same of a scope.
fn of_scope(scope: &Scope) -> (&str, &str) {
    (&scope.group, &scope.resource)
}
