//! Readiness probes. A probe needs no certificate and costs etcd a linearizable read. So a probe that comes while another one is running
//! takes its result.

use std::{sync::Arc, time::Duration};

use futures::{
    FutureExt,
    future::{BoxFuture, WeakShared},
};
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::agent::{Agent, clients, settings::chain, supervisor::Etcd};

/// How long etcd has to answer a probe.
pub(super) const PROBE: Duration = Duration::from_secs(2);

/// Whether etcd answered, and if not, why.
type Outcome = Result<(), Arc<str>>;

/// The probe that is running, if one is.
#[derive(Default)]
pub(super) struct Probes {
    running: Mutex<Option<WeakShared<BoxFuture<'static, Outcome>>>>,
}

impl Probes {
    /// Whether etcd answers a linearizable read on the address of its clients. Backups have no say in it.
    ///
    /// # Errors
    /// Why it does not.
    pub(super) async fn probe(&self, agent: &Arc<Agent>) -> Outcome {
        let agent = Arc::clone(agent);
        self.share(async move {
            let read = async {
                match agent.supervisor.seen().etcd {
                    Etcd::Serves => clients::read(&agent.client().await?, PROBE).await.map(drop),
                    Etcd::Private | Etcd::Stopped => Err(clients::Error::NotRunning),
                }
            };
            match timeout(PROBE, read).await {
                Ok(read) => read.map_err(|error| chain(&error).into()),
                Err(_) => Err("etcd does not answer in time".into()),
            }
        })
        .await
    }

    /// Waits for the probe that is running; begins this one where none is.
    async fn share(&self, probe: impl Future<Output = Outcome> + Send + 'static) -> Outcome {
        let shared = {
            let mut running = self.running.lock();
            let joined = running.as_ref().and_then(WeakShared::upgrade).filter(|one| one.peek().is_none());
            joined.unwrap_or_else(|| {
                let begun = probe.boxed().shared();
                *running = begun.downgrade();
                begun
            })
        };
        shared.await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;
    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn probes_at_the_same_time_are_one_read_and_a_later_one_is_another() {
        let (probes, reads, answers) =
            (Probes::default(), Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let read = || {
            let (reads, answers) = (Arc::clone(&reads), Arc::clone(&answers));
            async move {
                reads.fetch_add(1, Ordering::Relaxed);
                answers.notified().await;
                Err("no".into())
            }
        };
        for round in 1..=2 {
            let waiting = join_all((0..100).map(|_| probes.share(read())));
            let (outcomes, ()) = tokio::join!(waiting, async { answers.notify_one() });
            assert!(outcomes.iter().all(|outcome| *outcome == Err("no".into())), "{outcomes:?}");
            assert_eq!(reads.load(Ordering::Relaxed), round);
        }
    }

    #[tokio::test]
    async fn a_probe_whose_clients_went_away_holds_nobody_up() {
        let probes = Probes::default();
        let gone = timeout(Duration::from_millis(1), probes.share(std::future::pending()));
        gone.await.expect_err("it never answers");
        probes.share(std::future::ready(Ok(()))).await.expect("another read");
    }
}
