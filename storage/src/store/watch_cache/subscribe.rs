//! One watcher: a place in the ring of a cache, or, where the ring does not go back far enough, a replay from the backend
//! until it meets the ring.

use std::{collections::VecDeque, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{
    StreamExt, future,
    stream::{self, BoxStream},
};
use tokio::{sync::watch as signal, time::Instant};

use super::{CacheProgress, WatchCache, event, follow};
use crate::{
    Error, Result,
    backend::{self, KeyEvent, KeyValue, Revision, WatchStream},
    store::{
        core::Core,
        types::{Event, Object, WatchItem},
    },
};

/// Events that are taken from the ring at once. A watcher keeps them until they are read, also when the ring has let them go.
const BATCH: usize = 64;
/// Their bytes, but for the first of them.
const BATCH_BYTES: usize = 256 << 10;
/// How often the backend tells its progress during a replay.
const PROGRESS: Duration = Duration::from_secs(1);

/// A watcher.
struct Watcher {
    cache: Arc<WatchCache>,
    prefix: Bytes,
    source: Source,
    moved: signal::Receiver<CacheProgress>,
    ready: VecDeque<Result<WatchItem>>,
    /// Everything up to and including this revision is delivered, or in `ready`.
    last: Revision,
    /// The last thing the watcher was told.
    told: Revision,
    /// When the next bookmark may be told.
    bookmark_at: Instant,
    ended: bool,
}

enum Source {
    Ring { generation: u64, place: u64 },
    Replay(WatchStream),
}

/// What the ring has for a watcher.
enum RingRead {
    Events { items: Vec<Result<Arc<Event>>>, place: u64, last: Revision },
    Nothing { at: Revision },
    Over(Error),
}

impl WatchCache {
    /// Watches a part of the resource.
    pub(super) async fn subscribe(
        self: Arc<Self>,
        prefix: Bytes,
        after: Revision,
    ) -> Result<BoxStream<'static, Result<WatchItem>>> {
        let source = match self.join(after) {
            Some(source) => source,
            None => Source::Replay(self.replay(after).await?),
        };
        let bookmark_at = Instant::now() + self.core.options.bookmark_every;
        let watcher = Watcher {
            moved: self.moved.subscribe(),
            cache: self,
            prefix,
            source,
            ready: VecDeque::new(),
            last: after,
            told: after,
            bookmark_at,
            ended: false,
        };
        let items = stream::unfold(watcher, |mut watcher| async { Some((watcher.next().await?, watcher)) });
        Ok(items.boxed())
    }

    async fn replay(&self, after: Revision) -> Result<WatchStream> {
        let items = self.core.backend.watch(self.prefix.clone(), after, PROGRESS).await;
        items.map_err(|error| self.core.error(error))
    }

    /// A place in the ring after a revision, if the ring goes back that far.
    fn join(&self, after: Revision) -> Option<Source> {
        let state = self.state.read();
        if !state.mark.ready || after < state.floor {
            return None;
        }
        let skip = state.ring.partition_point(|entry| entry.revision <= after);
        Some(Source::Ring { generation: state.generation, place: state.first + skip as u64 })
    }

    fn take(&self, generation: u64, place: u64, prefix: &Bytes, after: Revision) -> RingRead {
        let state = self.state.read();
        if generation != state.generation {
            return RingRead::Over(Error::Unavailable("the watch cache started again".into()));
        }
        let Some(skip) = place.checked_sub(state.first) else { return RingRead::Over(Error::Slow) };
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let count = batch(state.ring.iter().skip(skip).map(|entry| entry.bytes));
        let (mut items, mut place, mut last) = (Vec::new(), place, None);
        for entry in state.ring.iter().skip(skip).take(count) {
            place += 1;
            last = Some(entry.revision);
            if entry.revision > after && entry.path.starts_with(prefix) {
                items.push(entry.event.clone());
            }
        }
        match last {
            Some(last) => RingRead::Events { items, place, last },
            None => RingRead::Nothing { at: state.mark.at },
        }
    }
}

/// How many of the events of these sizes are taken at once; at least one where there is one.
fn batch(sizes: impl Iterator<Item = usize>) -> usize {
    let mut bytes = 0_usize;
    let fits = |size: &usize| {
        let first = bytes == 0;
        bytes = bytes.saturating_add(*size);
        first || bytes <= BATCH_BYTES
    };
    sizes.take(BATCH).take_while(fits).count()
}

impl Watcher {
    async fn next(&mut self) -> Option<Result<WatchItem>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                self.told(&item);
                return Some(item);
            }
            if self.ended || self.cache.core.stop.is_cancelled() {
                return None;
            }
            match &mut self.source {
                Source::Ring { generation, place } => {
                    let taken = self.cache.take(*generation, *place, &self.prefix, self.last);
                    self.take_from_ring(taken).await;
                }
                Source::Replay(items) => {
                    // Only with nothing left to deliver: a place in the ring does not wait.
                    if let Some(source) = self.cache.join(self.last) {
                        self.source = source;
                        continue;
                    }
                    let stop = self.cache.core.stop.clone();
                    let item = stop.run_until_cancelled(items.next()).await?;
                    self.take_from_replay(item).await;
                }
            }
        }
    }

    fn told(&mut self, item: &Result<WatchItem>) {
        match item {
            Ok(WatchItem::Event(event)) => self.told = self.cache.core.epoch.revision(event.version),
            Ok(WatchItem::Bookmark(version)) => {
                self.told = self.cache.core.epoch.revision(*version);
                self.bookmark_at = Instant::now() + self.cache.core.options.bookmark_every;
            }
            Err(_) => {}
        }
    }

    async fn take_from_ring(&mut self, taken: RingRead) {
        match taken {
            RingRead::Events { items, place, last } => {
                if let Source::Ring { place: own, .. } = &mut self.source {
                    *own = place;
                }
                // Not further: the rest of the last transaction may be in the next batch. Places keep them apart.
                self.last = self.last.max(Revision(last.0 - 1));
                for item in items {
                    self.deliver(item);
                }
            }
            RingRead::Nothing { at } => {
                self.last = self.last.max(at);
                self.bookmark_or_wait(at).await;
            }
            RingRead::Over(error) => self.fail(error),
        }
    }

    /// Nothing is undelivered: tells how far that is, if it is time, or waits until the cache moves.
    async fn bookmark_or_wait(&mut self, at: Revision) {
        if at > self.told && Instant::now() >= self.bookmark_at {
            self.ready.push_back(Ok(WatchItem::Bookmark(self.cache.core.version(at))));
            return;
        }
        let stop = self.cache.core.stop.clone();
        let due = async {
            if at > self.told {
                tokio::time::sleep_until(self.bookmark_at).await
            } else {
                future::pending().await
            }
        };
        let moved = async {
            if self.moved.changed().await.is_err() {
                future::pending::<()>().await; // The cache lives as long as this watcher does.
            }
        };
        let (due, moved) = (pin!(due), pin!(moved));
        stop.run_until_cancelled(future::select(due, moved)).await;
    }

    async fn take_from_replay(&mut self, item: Option<backend::Result<backend::WatchItem>>) {
        match item {
            Some(Ok(backend::WatchItem::Events(events))) => {
                for event in events {
                    let revision = event.revision;
                    if event.key.starts_with(&self.prefix) {
                        let event = replayed(&self.cache.core, event).await;
                        self.deliver(event);
                    }
                    self.last = revision;
                }
            }
            Some(Ok(backend::WatchItem::Progress(revision))) => {
                self.last = self.last.max(revision);
                if self.last > self.told && Instant::now() >= self.bookmark_at {
                    self.ready.push_back(Ok(WatchItem::Bookmark(self.cache.core.version(self.last))));
                }
            }
            Some(Err(error)) => self.fail(self.cache.core.error(error)),
            None => self.fail(Error::Unavailable("the watch of the backend ended".into())),
        }
    }

    fn deliver(&mut self, event: Result<Arc<Event>>) {
        match event {
            Ok(event) if !self.ended => self.ready.push_back(Ok(WatchItem::Event(event))),
            Ok(_) => {}
            Err(error) => self.fail(error),
        }
    }

    fn fail(&mut self, error: Error) {
        // Closing the store makes the backend fail too: that is an end, not an error.
        if !self.ended && !self.cache.core.stop.is_cancelled() {
            self.ready.push_back(Err(error));
        }
        self.ended = true;
    }
}

async fn replayed(core: &Core, change: KeyEvent) -> Result<Arc<Event>> {
    let is_new = change.now.as_ref().is_some_and(|kv| kv.created == kv.modified);
    if change.before.is_none() && !is_new {
        // There was a state before, and it is compacted by now.
        let oldest = core.backend.oldest().await.map_err(|error| core.error(error))?;
        return Err(Error::Expired { oldest: core.version(oldest) });
    }
    let now = opened(core, change.now, change.revision).await;
    let before = opened(core, change.before, change.revision).await;
    event(core, change.revision, now, before).map(Arc::new)
}

async fn opened(core: &Core, kv: Option<KeyValue>, at: Revision) -> Option<Result<Object>> {
    match kv {
        Some(kv) => Some(follow::head(core, kv, at).await),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_ends_at_its_number_or_its_bytes_and_has_one_event_at_least() {
        assert_eq!(batch([].into_iter()), 0);
        assert_eq!(batch(std::iter::repeat(100)), BATCH);
        assert_eq!(batch(std::iter::repeat(BATCH_BYTES / 4)), 4);
        assert_eq!(batch(std::iter::repeat(BATCH_BYTES * 2)), 1);
        assert_eq!(batch(std::iter::repeat(usize::MAX)), 1);
    }
}
