//! What a store does unasked: forgets history that is out of its window, rotates intents, collects chunks.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{collect::Duty, core::Core, duty::Candidate, intent::Intents};
use crate::{Error, backend::Revision};

/// Runs until the store is closed. Every replica forgets history; what one has done is no work for the next. One replica collects.
/// No part waits for another one: an audit of a large store takes minutes, and a chunk store that hangs answers when its bound of
/// time is over.
pub(super) async fn run(core: Arc<Core>, intents: Arc<Intents>) {
    let (core, candidate) = (&*core, &Candidate::default());
    let chunks = in_turn(core, "chunks", || collect(core, candidate));
    let values = in_turn(core, "objects of the chunk store", || tidy(core, candidate));
    tokio::join!(forget_history(core, &intents), chunks, values);
}

/// How often each part looks whether there is something to do.
fn period(core: &Core) -> Duration {
    (core.options.history / 5).clamp(Duration::from_millis(20), Duration::from_secs(60))
}

async fn forget_history(core: &Core, intents: &Intents) {
    let mut compactor = Compactor::default();
    while core.stop.run_until_cancelled(tokio::time::sleep(period(core))).await.is_some() {
        if let Err(error) = compactor.step(core, Instant::now()).await {
            tracing::warn!(%error, "history was not compacted, trying again");
        }
        intents.rotate();
    }
}

/// Does one part of the work every [`StoreOptions::collect_every`](super::StoreOptions::collect_every).
async fn in_turn<F: Future<Output = Result<(), Error>>>(core: &Core, what: &str, work: impl Fn() -> F) {
    let mut begun = Instant::now();
    while core.stop.run_until_cancelled(tokio::time::sleep(period(core))).await.is_some() {
        if begun.elapsed() >= core.options.collect_every {
            begun = Instant::now();
            let Some(pass) = core.stop.run_until_cancelled(work()).await else { return };
            if let Err(error) = pass {
                core.metrics.pass_failed();
                tracing::warn!(%error, "{what} were not collected, trying again");
            }
        }
    }
}

/// What to compare where this replica is the one that collects; `None`: another one does.
async fn duty(core: &Core, candidate: &Candidate) -> Result<Option<Duty>, Error> {
    match candidate.hold(core).await {
        Ok(held) => Ok(held.map(|fence| Duty { remove: true, fence: Some(fence) })),
        // Garbage is to go just then: all do it.
        Err(Error::NoSpace(_)) => Ok(Some(Duty { remove: true, fence: None })),
        Err(error) => Err(error),
    }
}

/// A pass over the chunks that manifests name, and when it is time, over all.
async fn collect(core: &Core, candidate: &Candidate) -> Result<(), Error> {
    let Some(duty) = duty(core, candidate).await? else { return Ok(()) };
    let report = core.collect(&duty).await?;
    core.metrics.passed(report.removed);
    tracing::debug!(?report, "chunks collected");
    if duty.fence.is_some()
        && let Some(report) = core.audit_in_turn(&duty).await?
    {
        tracing::info!(?report, "all chunks were counted");
    }
    Ok(())
}

/// A pass over what the backend keeps elsewhere.
async fn tidy(core: &Core, candidate: &Candidate) -> Result<(), Error> {
    if duty(core, candidate).await?.is_none() {
        return Ok(());
    }
    core.backend.tidy().await.map_err(|error| core.error(error))
}

/// Remembers which revision was the newest when.
#[derive(Default)]
struct Compactor {
    samples: VecDeque<(Instant, Revision)>,
}

impl Compactor {
    /// Compacts what was superseded before the window began. A fresh process knows nothing of the past, and so keeps it a
    /// window longer.
    async fn step(&mut self, core: &Core, now: Instant) -> Result<(), Error> {
        let newest = core.revision().await?;
        self.samples.push_back((now, newest));
        let mut target = None;
        while let Some((when, revision)) = self.samples.front()
            && now.duration_since(*when) >= core.options.history
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{
        Keyring, StoreOptions,
        backend::{
            Backend, Op, Txn,
            embedded::{Embedded, Options},
        },
    };

    const KEYS: &str = "{apiVersion: apiserver.config.k8s.io/v1, kind: EncryptionConfiguration, \
                        resources: [{resources: ['*.*'], providers: [{identity: {}}]}]}";

    #[tokio::test]
    async fn history_stays_for_its_window() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { min_free_bytes: 0, ..Options::default() };
        let backend = Arc::new(Embedded::open(dir.path(), options).await.unwrap());
        let keys = Arc::new(Keyring::parse(KEYS).unwrap());
        let core = Core::new(backend.clone(), keys, StoreOptions::default()).await.unwrap();
        let (mut compactor, begin, second) = (Compactor::default(), Instant::now(), Duration::from_secs(1));
        let written = async || {
            let ops = vec![Op::Put("/a".into(), "1".into())];
            backend.txn(Txn { compares: vec![], ops }).await.unwrap();
            backend.revision().await.unwrap()
        };
        let window = StoreOptions::default().history;
        let first = written().await;
        compactor.step(&core, begin).await.unwrap();
        written().await;
        compactor.step(&core, begin + window / 2).await.unwrap();
        written().await;
        compactor.step(&core, begin + window - second).await.unwrap();
        assert_eq!(backend.oldest().await.unwrap(), Revision(0), "all of it was there a moment ago");
        compactor.step(&core, begin + window + second).await.unwrap();
        assert_eq!(backend.oldest().await.unwrap(), first);
    }
}
