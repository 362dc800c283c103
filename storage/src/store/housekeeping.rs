//! What a store does unasked: forgets history that is out of its window, rotates intents, collects chunks.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{core::Core, intent::Intents};
use crate::{Error, backend::Revision};

/// Runs until the store is closed. Every replica does this; what one has done is no work for the next.
pub(super) async fn run(core: Arc<Core>, intents: Arc<Intents>) {
    let period = (core.options.history / 5).clamp(Duration::from_millis(20), Duration::from_secs(60));
    let mut compactor = Compactor::default();
    let mut collected = Instant::now();
    while core.stop.run_until_cancelled(tokio::time::sleep(period)).await.is_some() {
        if let Err(error) = compactor.step(&core).await {
            tracing::warn!(%error, "history was not compacted, trying again");
        }
        intents.rotate().await;
        if collected.elapsed() >= core.options.collect_every {
            collected = Instant::now();
            let Some(pass) = core.stop.run_until_cancelled(core.collect()).await else { return };
            match pass {
                Ok(report) => tracing::debug!(?report, "chunks collected"),
                Err(error) => tracing::warn!(%error, "chunks were not collected, trying again"),
            }
            let Some(tidied) = core.stop.run_until_cancelled(core.backend.tidy()).await else { return };
            if let Err(error) = tidied {
                tracing::warn!(%error, "the backend was not tidied, trying again");
            }
        }
    }
}

/// Remembers which revision was the newest when.
#[derive(Default)]
struct Compactor {
    samples: VecDeque<(Instant, Revision)>,
}

impl Compactor {
    /// Compacts what was superseded before the window began. A fresh process knows nothing of the past, and so keeps it a
    /// window longer.
    async fn step(&mut self, core: &Core) -> Result<(), Error> {
        let newest = core.revision().await?;
        self.samples.push_back((Instant::now(), newest));
        let mut target = None;
        while let Some((when, revision)) = self.samples.front()
            && when.elapsed() >= core.options.history
        {
            target = Some(*revision);
            self.samples.pop_front();
        }
        let Some(revision) = target else { return Ok(()) };
        match core.backend.compact(revision).await {
            // Another replica was here first.
            Ok(()) | Err(crate::backend::Error::Compacted { .. }) => Ok(()),
            Err(error) => Err(core.error(error)),
        }
    }
}
