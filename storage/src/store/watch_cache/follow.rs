//! How a cache keeps up: it lists, then watches from there, and goes on where it was when the backend stumbles.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::StreamExt;
use tokio::{sync::watch, time::Instant};

use super::{CacheProgress, WatchCache};
use crate::{
    Error, Result,
    backend::{self, KeyEvent, KeyValue, RangeRequest, Revision, WatchItem, prefix_range},
    store::{core::Core, path, types::Object},
};

/// How often the backend tells its progress while nothing happens. Lists ask for it when they need it.
const PROGRESS: Duration = Duration::from_secs(10);
/// Bytes of records that are read at once.
const PAGE_BYTES: usize = 2 << 20;
/// How long an event waits for a key management service that is away: longer than the service's failures are remembered.
const HOLD: Duration = Duration::from_secs(5);
/// Pauses after failures.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How following ended.
enum End {
    /// The backend failed: go on after the last event.
    Stumbled(Error),
    /// History after the last event is gone: start again.
    Lost(Error),
}

impl WatchCache {
    /// Runs until the store is closed.
    pub(super) async fn run(self: Arc<Self>) {
        let stop = self.core.stop.clone();
        stop.run_until_cancelled(async { tokio::join!(self.keep_up(), self.heal()) }).await;
    }

    async fn keep_up(&self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let began = self.moved.borrow().at;
            let end = match self.fill().await {
                Ok(()) => self.follow(&mut pause).await,
                Err(error) => error,
            };
            tracing::warn!(error = %end, "watch cache starts again");
            // Whoever gets on between failures is not made to wait longer and longer.
            pause = if self.moved.borrow().at > began { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
            tokio::time::sleep(pause).await;
        }
    }

    /// Reads all heads as of one revision.
    async fn fill(&self) -> Result<()> {
        let mut request = RangeRequest {
            keys: prefix_range(&self.prefix),
            at: None,
            limit: 0,
            max_bytes: PAGE_BYTES,
            keys_only: false,
        };
        let mut heads = BTreeMap::new();
        let keys = self.core.keys.replaced();
        loop {
            let page =
                self.core.backend.range(request.clone()).await.map_err(|error| self.core.error(error))?;
            if let Some(last) = page.kvs.last() {
                request.keys.start = path::after(&last.key);
            }
            for kv in page.kvs {
                heads.insert(kv.key.clone(), head(&self.core, kv, page.revision).await);
                tokio::task::consume_budget().await;
            }
            request.at = Some(page.revision);
            if !page.more {
                let mark = {
                    let mut state = self.state.write();
                    state.restart(heads, self.core.met(page.revision));
                    state.mark
                };
                self.publish(mark);
                self.open_again_if_replaced(&keys);
                return Ok(());
            }
        }
    }

    /// Follows until history is lost.
    async fn follow(&self, pause: &mut Duration) -> Error {
        loop {
            match self.follow_once(pause).await {
                End::Lost(error) => return error,
                End::Stumbled(error) => {
                    tracing::debug!(%error, "watch cache goes on after a pause");
                    tokio::time::sleep(*pause).await;
                    *pause = (*pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    async fn follow_once(&self, pause: &mut Duration) -> End {
        let after = self.moved.borrow().at;
        // A backend that was put back to an earlier state would wait for `after` to come again.
        if let Err(error) = self.core.revision().await {
            return End::Stumbled(error);
        }
        let mut items = match self.core.backend.watch(self.prefix.clone(), after, PROGRESS).await {
            Ok(items) => items,
            Err(error) => return self.end(error),
        };
        while let Some(item) = items.next().await {
            match item {
                Ok(WatchItem::Events(events)) => self.take_in(events).await,
                Ok(WatchItem::Progress(revision)) => self.progress(revision),
                Err(error) => return self.end(error),
            }
            *pause = FIRST_PAUSE;
        }
        End::Stumbled(Error::Unavailable("the watch of the backend ended".into()))
    }

    fn end(&self, error: backend::Error) -> End {
        let lost = matches!(error, backend::Error::Compacted { .. } | backend::Error::Future { .. });
        let error = self.core.error(error);
        if lost { End::Lost(error) } else { End::Stumbled(error) }
    }

    /// Takes in whole transactions.
    async fn take_in(&self, events: Vec<KeyEvent>) {
        let Some(at) = events.last().map(|event| event.revision) else { return };
        let keys = self.core.keys.replaced();
        let mut opened = Vec::with_capacity(events.len());
        for event in events {
            let now = match event.now {
                Some(kv) => Some(self.patient_head(kv, event.revision).await),
                None => None,
            };
            opened.push((event.key, event.revision, now));
        }
        let mark = {
            let mut state = self.state.write();
            for (path, revision, now) in opened {
                state.take_in(&self.core, path, revision, now);
            }
            state.trim(&self.core);
            state.mark.at = at;
            state.mark
        };
        self.core.met(at);
        self.publish(mark);
        self.open_again_if_replaced(&keys);
    }

    /// What was opened before keys were replaced, and taken in after that, was not there when others were opened again.
    fn open_again_if_replaced(&self, keys: &watch::Receiver<u64>) {
        if keys.has_changed().unwrap_or(false) {
            self.outdated.notify_one();
        }
    }

    /// Opens a record. Where a key management service is away, waits for it a little: the first object that another replica writes
    /// after its start needs a call, and one call that fails would end all watches. Only one event waits: as long as
    /// something does not open, others are not held up.
    async fn patient_head(&self, kv: KeyValue, at: Revision) -> Result<Object> {
        let deadline = Instant::now() + HOLD;
        loop {
            match head(&self.core, kv.clone(), at).await {
                Err(Error::Unavailable(_)) if Instant::now() < deadline && self.is_open() => {
                    tokio::time::sleep(FIRST_PAUSE).await;
                }
                opened => return opened,
            }
        }
    }

    fn progress(&self, revision: Revision) {
        let mark: CacheProgress = {
            let mut state = self.state.write();
            state.mark.at = state.mark.at.max(revision);
            state.trim(&self.core);
            state.mark
        };
        self.core.met(revision);
        self.publish(mark);
    }
}

/// Opens a record and keeps what is small of it.
pub(super) async fn head(core: &Core, kv: KeyValue, at: Revision) -> Result<Object> {
    let mut object = core.open(kv, at).await?;
    object.record = Arc::new(object.record.slim());
    Ok(object)
}
