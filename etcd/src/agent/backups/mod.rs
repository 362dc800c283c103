//! Snapshots on schedule and by request, taken by the leader's agent alone and one at a time.
//!
//! Whoever leads looks at what is in the store and goes on from there: with the events after the newest delta, or with a full
//! snapshot where that is not possible ([`decide`]). One who has lost the lead throws away what it has not saved: the next one gets the
//! same events from etcd. Should both save some, they overlap with equal events, which a restore takes.
//!
//! Nothing is kept while the store fails: then all begins anew from what is in the store, so memory is bounded by one delta.

mod leading;

use std::{sync::Arc, time::Duration};

use etcd_client::Client;
use repot_etcd_core::snapshot::SnapshotName;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{Agent, clients, settings::chain, supervisor::Etcd};
use crate::snapshot::{store, take};

/// How often it is looked who leads.
const LOOK: Duration = Duration::from_secs(1);
/// The pause after a failure; it doubles each time.
const PAUSE: Duration = Duration::from_secs(2);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How long etcd has to say who leads.
const PATIENCE: Duration = Duration::from_secs(5);
/// Requests that wait.
const REQUESTS: usize = 16;

/// Why there is no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another member leads.
    #[error("this member does not lead; {}", .0.as_ref().map_or("no member does".to_owned(), |id| format!("member {id:x} does")))]
    NotLeader(Option<u64>),
    /// There is no store.
    #[error("no store for snapshots is configured")]
    NoStore,
    /// Deltas are off.
    #[error("deltas are switched off by snapshots.deltaPeriod")]
    NoDeltas,
    /// etcd could not be asked.
    #[error(transparent)]
    Etcd(#[from] clients::Error),
    /// It could not be taken.
    #[error(transparent)]
    Take(#[from] take::Error),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// What is in the store is not of this etcd.
    #[error("{0}")]
    AnotherHistory(String),
    /// It was still waited for the last event.
    #[error("etcd is at revision {asked}, and its events up to there did not come within {after:?}")]
    Late {
        /// The revision.
        asked: repot_etcd_core::snapshot::Revision,
        /// The time they had.
        after: Duration,
    },
    /// The agent is about to end, or has lost the lead meanwhile.
    #[error("broken off")]
    Stopped,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// A full snapshot.
    Full {
        /// Whether etcd is to write nothing after it.
        is_final: bool,
    },
    /// The events since the last one.
    Delta,
}

/// What was taken; nothing where a delta was asked for and there are no events.
type Answer = Result<Option<SnapshotName>, Error>;

struct Ask {
    request: Request,
    answer: oneshot::Sender<Answer>,
}

/// What the agent knows of the snapshots in the store, and of those that it took, deleted or failed to take.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Whether this agent is the one who takes them.
    pub leads: bool,
    /// The newest full one that this agent has taken or found.
    pub full: Option<SnapshotName>,
    /// The newest delta that this agent has taken or found.
    pub delta: Option<SnapshotName>,
    /// Why none can be taken, while that is so.
    pub failing: Option<String>,
    /// How many were taken: full ones, deltas.
    pub taken: (u64, u64),
    /// How many attempts have failed.
    pub failed: u64,
    /// How many were deleted.
    pub deleted: u64,
}

/// Where snapshots are asked for.
#[derive(Clone, Debug)]
pub(super) struct Backups {
    asks: mpsc::Sender<Ask>,
    state: watch::Receiver<State>,
}

/// The other end of [`Backups`].
pub(super) struct Inbox {
    asks: mpsc::Receiver<Ask>,
    state: watch::Sender<State>,
}

/// The one who takes them.
pub(super) struct Taker {
    agent: Arc<Agent>,
    asks: mpsc::Receiver<Ask>,
    /// The one that is answered next, although it came while nothing could be done.
    pending: Option<Ask>,
    state: watch::Sender<State>,
    /// Only a full snapshot helps.
    broken: bool,
}

/// Who leads.
enum Standing {
    Leader(Box<LeaderSlot>),
    Follower(Option<u64>),
}

/// The leader's place.
struct LeaderSlot {
    client: Client,
    member: u64,
    cluster: String,
}

impl Backups {
    /// With what its [`Taker`] is made of.
    pub(super) fn new() -> (Self, Inbox) {
        let (sender, asks) = mpsc::channel(REQUESTS);
        let (state, seen) = watch::channel(State::default());
        (Self { asks: sender, state: seen }, Inbox { asks, state })
    }

    /// Has a snapshot taken.
    pub(super) async fn ask(&self, request: Request) -> Answer {
        let (answer, answered) = oneshot::channel();
        self.asks.send(Ask { request, answer }).await.map_err(|_| Error::Stopped)?;
        answered.await.map_err(|_| Error::Stopped)?
    }

    /// How they stand.
    pub(super) fn state(&self) -> State {
        self.state.borrow().clone()
    }
}

impl Taker {
    pub(super) fn new(agent: Arc<Agent>, inbox: Inbox) -> Self {
        let Inbox { asks, state } = inbox;
        Self { agent, asks, pending: None, state, broken: false }
    }

    /// Takes snapshots until `stop`.
    pub(super) async fn run(mut self, stop: &CancellationToken) {
        let mut pause = PAUSE;
        while !stop.is_cancelled() {
            let before = self.state.borrow().taken;
            let outcome = match self.standing().await {
                Standing::Leader(slot) if self.agent.settings.config.store.is_some() => {
                    self.state.send_modify(|state| state.leads = true);
                    let mut seen = self.agent.supervisor.follow();
                    tokio::select! {
                        outcome = self.lead(&slot) => outcome,
                        // An etcd whose clients are cut off runs on, and its final snapshot needs what it has of the machine.
                        _ = seen.wait_for(|seen| seen.etcd != Etcd::Serves) => Ok(()),
                        () = stop.cancelled() => break,
                    }
                }
                Standing::Leader(_) => self.idle(|| Error::NoStore, stop).await,
                Standing::Follower(leader) => self.idle(|| Error::NotLeader(leader), stop).await,
            };
            match outcome {
                Ok(()) => pause = PAUSE,
                Err(error) => {
                    self.fail(error);
                    if self.state.borrow().taken != before {
                        pause = PAUSE;
                    }
                    self.rest(pause, stop).await;
                    pause = LONGEST_PAUSE.min(pause * 2);
                }
            }
        }
    }

    /// Waits for a look at who leads. Somebody who asks makes it come at once, and is refused only by what is so then.
    async fn idle(&mut self, refusal: impl Fn() -> Error, stop: &CancellationToken) -> Result<(), Error> {
        self.state.send_modify(|state| (state.leads, state.failing) = (false, None));
        if let Some(ask) = self.pending.take() {
            let _ = ask.answer.send(Err(refusal()));
        }
        tokio::select! {
            Some(ask) = self.asks.recv() => self.pending = Some(ask),
            () = sleep(LOOK) => {}
            () = stop.cancelled() => {}
        }
        Ok(())
    }

    fn fail(&mut self, error: Error) {
        tracing::warn!(error = chain(&error), "no snapshot can be taken");
        self.state.send_modify(|state| {
            state.failing = Some(chain(&error));
            state.failed += 1;
        });
        if let Some(ask) = self.pending.take() {
            let _ = ask.answer.send(Err(error));
        }
    }

    /// Waits before the next attempt; somebody who asks makes it come at once.
    async fn rest(&mut self, pause: Duration, stop: &CancellationToken) {
        tokio::select! {
            Some(ask) = self.asks.recv() => self.pending = Some(ask),
            () = sleep(pause) => {}
            () = stop.cancelled() => {}
        }
    }

    async fn standing(&self) -> Standing {
        // The final snapshot of a private etcd is the matter of whoever ordered that.
        let seen = self.agent.supervisor.seen();
        let Some(at) = seen.at.filter(|_| seen.etcd == Etcd::Serves) else { return Standing::Follower(None) };
        let asked = async {
            let client = clients::local(&self.agent.settings, at).await.ok()?;
            let status = client.maintenance_client().status().await.ok()?;
            let header = status.header()?;
            let (member, cluster) = (header.member_id(), header.cluster_id());
            Some(match status.leader() {
                leader if leader == member && !status.is_learner() => {
                    Standing::Leader(Box::new(LeaderSlot { client, member, cluster: format!("{cluster:x}") }))
                }
                0 => Standing::Follower(None),
                leader => Standing::Follower(Some(leader)),
            })
        };
        timeout(PATIENCE, asked).await.ok().flatten().unwrap_or(Standing::Follower(None))
    }
}
