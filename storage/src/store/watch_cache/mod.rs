//! The watch cache: for each resource in use, one watch of the backend, the heads of all objects, and a ring of recent
//! events from which any number of watchers read.
//!
//! A record is opened once, however many watch it. Watchers have no queues: each has a place in the ring, and one that
//! falls behind the ring's start is let go. So a slow one costs nothing and delays nobody. Payload is never kept here.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fmt,
    ops::Bound,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::stream::BoxStream;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, Semaphore, watch as signal};

use page::PageRequest;

use super::{
    core::Core,
    path,
    types::{Event, Key, List, ListRequest, Object, ResourceVersion, Scope, WatchItem},
    usage::{self, Ledger, Usage},
};
use crate::{Error, Result, backend::Revision};

mod follow;
mod heal;
mod page;
mod subscribe;

/// How long a list waits for the cache to catch up before it reads from the backend.
const CATCH_UP: Duration = Duration::from_millis(500);
/// How many lists of everything are read from the backend at a time; others wait. Each holds the heads of all objects.
const WHOLE_LISTS: usize = 4;
/// How long they wait for that.
const TURN: Duration = Duration::from_secs(10);

/// The watch caches of a store, by resource.
pub(crate) struct WatchCaches {
    core: Arc<Core>,
    caches: Mutex<HashMap<(String, String), Arc<WatchCache>>>,
    /// Lists of everything that are read from the backend: each has copies of all heads.
    whole: Semaphore,
}

/// The watch cache of one resource.
pub(crate) struct WatchCache {
    core: Arc<Core>,
    prefix: Bytes,
    state: RwLock<State>,
    /// Changes whenever the state does.
    moved: signal::Sender<CacheProgress>,
    /// Told when keys were replaced while objects were being opened with the keys before.
    outdated: Notify,
}

/// How far a cache is.
#[derive(Clone, Copy, Debug, Default)]
struct CacheProgress {
    /// Whether there is a state at all.
    ready: bool,
    /// Everything up to and including this has been taken in.
    at: Revision,
}

#[derive(Default)]
struct State {
    mark: CacheProgress,
    /// Grows when the cache had to start again, with a gap.
    generation: u64,
    /// Heads by path: paths compare faster than keys, and sort as the backend does.
    heads: BTreeMap<Bytes, Result<Object>>,
    /// What the heads come to.
    usage: Ledger,
    ring: VecDeque<Entry>,
    /// The place of the first entry of the ring; places only grow.
    first: u64,
    /// Every event after this revision is in the ring.
    floor: Revision,
    bytes: usize,
}

/// An event in the ring.
struct Entry {
    path: Bytes,
    revision: Revision,
    event: Result<Arc<Event>>,
    /// The state before was proven damage. Lists of metadata left it out, so watches are not told of it either.
    before_unknown: bool,
    bytes: usize,
    taken_in: Instant,
}

impl WatchCaches {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, caches: Mutex::default(), whole: Semaphore::new(WHOLE_LISTS) }
    }

    /// See [`Store::list_cached`](super::Store::list_cached).
    pub(crate) async fn list(&self, scope: &Scope, at_least: Option<ResourceVersion>) -> Result<List> {
        self.core.sound()?;
        let prefix = path::scope(scope)?;
        let cache = self.cache(scope)?;
        let target = match at_least {
            Some(version) => self.core.epoch.revision(version),
            None => self.core.revision().await?,
        };
        if cache.reaches(target).await {
            return Ok(cache.list(&prefix));
        }
        // The semaphore is never closed. Whoever has waited reads from the backend as well: lists that all went on at the moment at
        // which the cache is there would keep small requests waiting.
        let Ok(_turn) = tokio::time::timeout(TURN, self.whole.acquire()).await else {
            return Err(Error::Busy);
        };
        self.list_stored(scope, target).await
    }

    /// See [`Store::list_page`](super::Store::list_page).
    pub(crate) async fn page(&self, request: ListRequest, at_least: Option<ResourceVersion>) -> Result<List> {
        self.core.sound()?;
        let cache = self.cache(&request.scope)?;
        let at = request.at.map(|version| self.core.epoch.revision(version));
        let target = match (at, at_least) {
            (Some(at), _) => at,
            (None, Some(version)) => self.core.epoch.revision(version),
            (None, None) => self.core.revision().await?,
        };
        let cached = PageRequest {
            prefix: path::scope(&request.scope)?,
            at,
            after: request.after.as_ref().map(path::record).transpose()?,
            limit: request.limit,
            count: request.count,
        };
        // What nobody has seen yet is not waited for: the backend knows whether it has happened.
        if target <= self.core.seen()
            && cache.reaches(target).await
            && let Some(list) = cache.page(&cached)
        {
            return Ok(list);
        }
        let list = self.core.list(request).await?;
        if self.core.epoch.revision(list.version) < target {
            return Err(Error::Future { current: list.version });
        }
        Ok(list)
    }

    /// See [`Store::count_cached`](super::Store::count_cached).
    pub(crate) fn count(&self, scope: &Scope, after: &Key) -> Result<Option<u64>> {
        let (prefix, after) = (path::scope(scope)?, path::record(after)?);
        let cache = self.cache(scope)?;
        let state = cache.state.read();
        let rest = state.heads.range((Bound::Excluded(after), Bound::Unbounded));
        let count = || rest.take_while(|(path, _)| path.starts_with(&prefix)).count() as u64;
        Ok(state.mark.ready.then(count))
    }

    /// See [`Store::usage`](super::Store::usage).
    pub(crate) async fn usage(&self, scope: &Scope) -> Result<BTreeMap<String, Usage>> {
        let cache = match scope.namespace {
            // Who asks for one namespace will ask again and again, before writes.
            Some(_) => Some(self.cache(scope)?),
            None => self.caches.lock().get(&(scope.group.clone(), scope.resource.clone())).cloned(),
        };
        let Some(cache) = cache else { return usage::count(&self.core, scope).await };
        match cache.reaches(self.core.revision().await?).await {
            true => Ok(cache.state.read().usage.of(scope.namespace.as_deref())),
            false => usage::count(&self.core, scope).await,
        }
    }

    /// See [`Store::watch`](super::Store::watch).
    pub(crate) async fn watch(
        &self,
        scope: &Scope,
        after: ResourceVersion,
    ) -> Result<BoxStream<'static, Result<WatchItem>>> {
        self.core.sound()?;
        let prefix = path::scope(scope)?;
        let Some(after) = self.core.epoch.of_this(after) else { return self.core.expired().await };
        self.cache(scope)?.subscribe(prefix, after).await
    }

    /// The cache of a resource, started where nobody used it before.
    fn cache(&self, scope: &Scope) -> Result<Arc<WatchCache>> {
        let prefix = path::scope(&Scope { namespace: None, ..scope.clone() })?;
        let mut caches = self.caches.lock();
        let cache = caches.entry((scope.group.clone(), scope.resource.clone())).or_insert_with(|| {
            let cache = Arc::new(WatchCache::new(Arc::clone(&self.core), prefix));
            self.core.tasks.spawn(Arc::clone(&cache).run());
            cache
        });
        Ok(Arc::clone(cache))
    }

    /// All pages of a list, from the backend. Only whoever holds a permit of `whole` may call it.
    async fn list_stored(&self, scope: &Scope, target: Revision) -> Result<List> {
        let request = |at, after| ListRequest { at, after, ..ListRequest::all(scope.clone()) };
        let mut list = self.core.list(request(None, None)).await?;
        if self.core.epoch.revision(list.version) < target {
            return Err(Error::Future { current: list.version });
        }
        while let Some(after) = list.next.take() {
            let page = self.core.list(request(Some(list.version), Some(after))).await?;
            list.objects.extend(page.objects);
            list.next = page.next;
        }
        Ok(List { remaining: Some(0), ..list })
    }
}

impl fmt::Debug for WatchCaches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hubs")
    }
}

impl WatchCache {
    fn new(core: Arc<Core>, prefix: Bytes) -> Self {
        Self {
            core,
            prefix,
            state: RwLock::default(),
            moved: signal::channel(CacheProgress::default()).0,
            outdated: Notify::new(),
        }
    }

    /// Whether the cache has, or soon will have, taken in everything up to this revision.
    async fn reaches(&self, target: Revision) -> bool {
        let mut moved = self.moved.subscribe();
        let mark = *moved.borrow_and_update();
        if !mark.ready || mark.at >= target {
            return mark.ready;
        }
        self.core.request_progress().await;
        let caught_up = moved.wait_for(|mark| mark.ready && mark.at >= target);
        tokio::time::timeout(CATCH_UP, caught_up).await.is_ok_and(|mark| mark.is_ok())
    }

    fn list(&self, prefix: &Bytes) -> List {
        let state = self.state.read();
        let at = state.mark.at;
        let heads = state.heads.range(prefix.clone()..).take_while(|(path, _)| path.starts_with(prefix));
        // What is current now can be read now, however long ago it was written.
        let objects = heads.map(|(_, head)| head.clone().map(|object| Object { at, ..object })).collect();
        List { objects, version: self.core.version(at), next: None, remaining: Some(0) }
    }

    fn publish(&self, mark: CacheProgress) {
        self.moved.send_replace(mark);
    }
}

impl State {
    /// Starts again from a list.
    fn restart(&mut self, heads: BTreeMap<Bytes, Result<Object>>, at: Revision) {
        let (generation, first) = (self.generation + 1, self.first + self.ring.len() as u64);
        let mut usage = Ledger::default();
        for (path, head) in &heads {
            usage.replace(path, None, Some(head));
        }
        *self = Self {
            mark: CacheProgress { ready: true, at },
            generation,
            heads,
            usage,
            first,
            floor: at,
            ..Self::default()
        };
    }

    /// Takes in one event.
    fn take_in(&mut self, core: &Core, path: Bytes, revision: Revision, now: Option<Result<Object>>) {
        let before = match &now {
            Some(now) => self.heads.insert(path.clone(), now.clone()),
            None => self.heads.remove(&path),
        };
        self.usage.replace(&path, before.as_ref(), now.as_ref());
        let before_unknown = matches!(&before, Some(Err(error)) if error.is_proven_damage());
        let event = event(core, revision, now, before).map(Arc::new);
        let bytes = event.as_ref().map_or(0, |event| weight(event)) + path.len() + size_of::<Entry>();
        self.bytes += bytes;
        let taken_in = Instant::now();
        self.ring.push_back(Entry { path, revision, event, before_unknown, bytes, taken_in });
    }

    /// Drops events that are too many, too large in sum, or older than the history: their payload may be gone.
    fn trim(&mut self, core: &Core) {
        let options = &core.options;
        while let Some(entry) = self.ring.front()
            && (self.ring.len() > options.ring_events
                || self.bytes > options.ring_bytes
                || entry.taken_in.elapsed() > options.history)
        {
            self.floor = entry.revision;
            self.bytes -= entry.bytes;
            self.first += 1;
            self.ring.pop_front();
        }
    }
}

/// Makes an event of two states. Where one does not open, there is no event: nobody could tell what it changed. Where the state before
/// is proven damage and the one after is not, an object is repaired: it is told as one that comes into being, because lists of
/// metadata have left it out, and to a client that knows it that is as good as a change.
fn event(
    core: &Core,
    revision: Revision,
    now: Option<Result<Object>>,
    before: Option<Result<Object>>,
) -> Result<Event> {
    let version = core.version(revision);
    let now = now.transpose()?;
    let damaged = matches!(&before, Some(Err(error)) if error.is_proven_damage());
    let before = if damaged && now.is_some() { None } else { before.transpose()? };
    let before = before.map(|object| Object {
        // The state before can be read as of just before.
        at: Revision(revision.0 - 1),
        version: if now.is_none() { version } else { object.version },
        ..object
    });
    Ok(Event { version, now, before })
}

/// What an event costs beside the heads that other events and the list of heads hold too.
fn weight(event: &Event) -> usize {
    let object = event.now.as_ref().or(event.before.as_ref());
    let key = |key: &Key| key.group.len() + key.resource.len() + 2 * (key.namespace.len() + key.name.len());
    let parts =
        |o: &Object| o.meta.len() + o.summary.len() + 32 * o.record.payload.chunks().len() + key(&o.key);
    size_of::<Event>() + object.map_or(0, parts)
}
