//! Opening again what did not open although nothing proves that it is damaged: a key management service was away, or the
//! configuration had no key for it.
//!
//! Until then lists that would show the object fail, and its events end watches. So nobody has taken it for deleted, and whoever
//! lists after that is shown it. Events are mended too: a client that goes on from before them finds them whole.

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;

use super::{Entry, State, WatchCache, event, follow};
use crate::{
    Error, Result,
    backend::{RangeRequest, Revision},
    store::{path, types::Object},
};

/// How often a service is tried that was away: it does not say when it is back.
const AGAIN: Duration = Duration::from_secs(5);
/// How long one round may take. A service that does not answer costs a timeout for each seed that it is asked for.
const ROUND: Duration = Duration::from_secs(20);
/// Bytes of records that are read at once.
const PAGE_BYTES: usize = 2 << 20;

/// An event that does not open.
struct Closed {
    place: u64,
    path: Bytes,
    revision: Revision,
}

impl WatchCache {
    /// Runs beside following.
    pub(super) async fn heal(&self) {
        let mut replaced = self.core.keys.replaced();
        // Whether keys were replaced since the last round that came to its end.
        let mut has_new_keys = false;
        loop {
            let changed = async {
                tokio::select! {
                    // Nobody replaces keys of a store whose keyring is gone: the pause remains.
                    Ok(()) = replaced.changed() => {}
                    () = self.outdated.notified() => {}
                }
            };
            // A key that is missing comes with another configuration only.
            has_new_keys |= tokio::time::timeout(AGAIN, changed).await.is_ok();
            let retried = |error: &Error| match error {
                Error::Unavailable(_) => true,
                error => has_new_keys && !error.is_proven_damage(),
            };
            let round = async {
                self.heal_heads(retried).await?;
                self.heal_events(retried).await
            };
            match tokio::time::timeout(ROUND, round).await {
                Ok(Ok(())) => has_new_keys = false,
                Ok(Err(error)) => {
                    tracing::debug!(%error, "objects that do not open are tried again after a pause");
                }
                Err(_) => {
                    tracing::debug!("objects that do not open are tried again: the round took too long")
                }
            }
        }
    }

    /// Whether everything opens that is not proven damage.
    pub(super) fn is_open(&self) -> bool {
        let state = self.state.read();
        let closed = |error: &Error| !error.is_proven_damage();
        !state.heads.values().any(|head| head.as_ref().is_err_and(closed))
    }

    /// Opens heads again.
    ///
    /// # Errors
    /// Where the backend or a service is still away: the rest is left for the next round.
    async fn heal_heads(&self, retried: impl Fn(&Error) -> bool) -> Result<()> {
        let closed: BTreeSet<Bytes> = {
            let state = self.state.read();
            let closed = state.heads.iter().filter(|(_, head)| head.as_ref().is_err_and(&retried));
            closed.map(|(path, _)| path.clone()).collect()
        };
        let (Some(first), Some(last)) = (closed.first(), closed.last()) else { return Ok(()) };
        let mut request = RangeRequest {
            keys: first.clone()..path::after(last),
            at: None,
            limit: 0,
            max_bytes: PAGE_BYTES,
            keys_only: false,
        };
        loop {
            let page =
                self.core.backend.range(request.clone()).await.map_err(|error| self.core.error(error))?;
            if let Some(last) = page.kvs.last() {
                request.keys.start = path::after(&last.key);
            }
            for kv in page.kvs.into_iter().filter(|kv| closed.contains(&kv.key)) {
                let path = kv.key.clone();
                match follow::head(&self.core, kv, page.revision).await {
                    Ok(object) => self.state.write().reopen(&path, object, page.revision),
                    Err(error @ Error::Unavailable(_)) => return Err(error),
                    Err(_) => {}
                }
            }
            if !page.more {
                return Ok(());
            }
        }
    }

    /// Makes events again that did not open.
    async fn heal_events(&self, retried: impl Fn(&Error) -> bool) -> Result<()> {
        let closed: Vec<Closed> = {
            let state = self.state.read();
            let places = state.ring.iter().zip(state.first..);
            let closed = places.filter(|(entry, _)| entry.event.as_ref().is_err_and(&retried));
            let closed = closed.map(|(Entry { path, revision, .. }, place)| Closed {
                place,
                path: path.clone(),
                revision: *revision,
            });
            closed.collect()
        };
        for Closed { place, path, revision } in closed {
            let now = self.state_at(&path, revision).await?;
            let before = self.state_at(&path, Revision(revision.0 - 1)).await?;
            let made = event(&self.core, revision, now, before).map(std::sync::Arc::new);
            let mut state = self.state.write();
            let index = place.checked_sub(state.first).and_then(|index| usize::try_from(index).ok());
            // Places of a cache that started again are others.
            if let Some(entry) = index.and_then(|index| state.ring.get_mut(index))
                && entry.revision == revision
                && entry.path == path
                && made.is_ok()
            {
                entry.event = made;
            }
        }
        Ok(())
    }

    /// The head at a path as of a revision; `None`: there was none.
    ///
    /// # Errors
    /// Where it cannot be read now. What cannot be opened is a head that is an error.
    async fn state_at(&self, path: &Bytes, at: Revision) -> Result<Option<Result<Object>>> {
        let kv =
            self.core.backend.get(path.clone(), Some(at)).await.map_err(|error| self.core.error(error))?;
        match kv {
            None => Ok(None),
            Some(kv) => match follow::head(&self.core, kv, at).await {
                Err(error @ Error::Unavailable(_)) => Err(error),
                head => Ok(Some(head)),
            },
        }
    }
}

impl State {
    /// Puts a head that was read as of a revision in the place of one that did not open, if it is the state that the cache shows.
    fn reopen(&mut self, path: &Bytes, object: Object, at: Revision) {
        let shown = self.mark.at;
        let unchanged = || at >= self.floor && !self.ring.iter().any(|e| e.revision > at && e.path == *path);
        if object.modified > shown || (shown > at && !unchanged()) {
            return;
        }
        if let Some(head @ Err(_)) = self.heads.get_mut(path) {
            let before = std::mem::replace(head, Ok(object));
            self.usage.replace(path, Some(&before), Some(head));
        }
    }
}
