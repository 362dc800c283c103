//! Watches: every one reads the log, at its own pace.
//!
//! The log is the only source, for what was and for what is new alike; commits merely wake the watches. So there is no
//! seam between replay and live events, a slow reader delays nobody and holds no memory, and what happened lately is
//! still in the memtables anyway.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, stream};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{
    super::{Error, Result, Revision, WatchItem, WatchStream},
    Shared,
};

/// Bytes of keys and values after which a batch of events is handed on.
const BATCH_BYTES: usize = 1 << 20;

struct Watch {
    shared: Arc<Shared>,
    newest: watch::Receiver<Revision>,
    nudges: watch::Receiver<u64>,
    prefix: Bytes,
    /// Everything up to here has been delivered.
    position: Revision,
    interval: Duration,
    /// When the next progress is due at the latest.
    due: Instant,
}

/// Everything under a prefix after a revision. Fails at once where that is compacted.
pub(super) async fn open(
    shared: Arc<Shared>,
    prefix: Bytes,
    after: Revision,
    interval: Duration,
) -> Result<WatchStream> {
    let oldest = shared.read(|engine| Ok(engine.floor())).await?;
    if after < oldest {
        return Err(Error::Compacted { requested: after, oldest });
    }
    let (newest, nudges) = (shared.newest.clone(), shared.nudges.subscribe());
    let due = Instant::now() + interval;
    let watch = Watch { shared, newest, nudges, prefix, position: after, interval, due };
    let items = stream::unfold(Some(watch), |state| async {
        let mut watch = state?;
        match watch.next().await {
            Ok(item) => Some((Ok(item), Some(watch))),
            Err(error) => Some((Err(error), None)),
        }
    });
    Ok(items.boxed())
}

impl Watch {
    async fn next(&mut self) -> Result<WatchItem> {
        loop {
            let newest = *self.newest.borrow_and_update();
            if newest > self.position {
                if let Some(item) = self.look().await? {
                    return Ok(item);
                }
            } else if Instant::now() >= self.due {
                return Ok(self.progress());
            } else {
                self.wait().await?;
            }
        }
    }

    /// Reads on in the log; none where nothing of it concerns this watch and no progress is due.
    async fn look(&mut self) -> Result<Option<WatchItem>> {
        let (prefix, from) = (self.prefix.clone(), self.position);
        let (events, upto) = self
            .shared
            .read(move |engine| {
                let view = engine.view(None)?;
                let oldest = engine.floor();
                if from < oldest {
                    return Err(Error::Compacted { requested: from, oldest });
                }
                view.events(&prefix, from, BATCH_BYTES)
            })
            .await?;
        self.position = upto;
        if !events.is_empty() {
            return Ok(Some(WatchItem::Events(events)));
        }
        Ok((Instant::now() >= self.due).then(|| self.progress()))
    }

    fn progress(&mut self) -> WatchItem {
        self.due = Instant::now() + self.interval;
        WatchItem::Progress(self.position)
    }

    async fn wait(&mut self) -> Result<()> {
        tokio::select! {
            changed = self.newest.changed() => {
                changed.map_err(|_| Error::Unavailable("the store is closed".into()))
            }
            // Due at once, but only after everything that was committed before the nudge.
            Ok(()) = self.nudges.changed() => {
                self.due = Instant::now();
                Ok(())
            }
            () = sleep_until(self.due) => Ok(()),
        }
    }
}
