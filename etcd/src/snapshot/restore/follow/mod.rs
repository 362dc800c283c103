//! A restore that goes on: a private etcd holds what the newest full snapshot and its deltas hold, and takes each new delta as it
//! appears in the store. What is left at the end is the last delta, however large the etcd is.
//!
//! The etcd runs on the data directory of the member to be: `etcdutl` gives it the ids of that member and of its cluster. So nothing is
//! copied at the end, and the directory becomes the data directory by one rename. A private etcd takes what the store has at first, and
//! the revision is raised in its database when it ends (`codec/raise.rs`). Where the caller has the member's own etcd ([`MemberEtcd`]),
//! that one goes on once nothing is left to apply, and is not started again at the end. Where it fails, a private one begins anew.
//!
//! A process that ends leaves the working directory. The next one continues where the machine was not restarted since and etcd is at
//! exactly the revision that was written down; otherwise it begins anew.

mod beyond;
mod engine;
mod held;
mod record;

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    runtime::Builder,
    sync::{mpsc, oneshot, watch},
    task::spawn_blocking,
    time::sleep,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Error, Options, Result, work::Work};
use crate::snapshot::store::{Store, Stored};
use beyond::{ends, has_full_after, newest_beyond};
pub use engine::MemberEtcd;
use engine::Own;
use held::{ApplyError, Held};
use record::Record;
use repot_etcd_core::snapshot::{
    Revision, SnapshotName,
    chain::{PlanError, deltas_after},
};

/// From one look into the store to the next.
const LOOK: Duration = Duration::from_secs(1);
/// After a look that took no longer, nothing worth mentioning is left to apply.
const SHORT: Duration = Duration::from_secs(5);
/// After a failure.
const AGAIN: Duration = Duration::from_secs(5);
/// A full snapshot may be there before the deltas that lead to it; deltas are taken every 20 s if nobody says otherwise.
const BEHIND: Duration = Duration::from_secs(120);

/// The store, and the history in it, that a standby follows.
#[derive(Clone, Debug)]
pub struct Source {
    /// The store with all its histories.
    pub root: Store,
    /// The history in it; the one that is written at the moment where it is `None`.
    pub history: Option<String>,
}

/// How far a standby is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StandbyState {
    /// The full snapshot that it began with; `None` until that is restored.
    pub base: Option<SnapshotName>,
    /// Deltas that were applied since.
    pub deltas: usize,
    /// The revision that it holds; `None` until it has applied all that the store had at first.
    pub revision: Option<Revision>,
    /// Whether the store says that an owner's time ends at this revision, or has a final snapshot of it: nothing more is to come.
    pub ended: bool,
    /// What it does, or why it does not go on.
    pub message: String,
}

/// What a standby has become a data directory of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Followed {
    /// The full snapshot that it began with.
    pub base: SnapshotName,
    /// Deltas that were applied since.
    pub deltas: usize,
    /// The revision of the snapshots.
    pub revision: Revision,
    /// The revision that etcd will have.
    pub bumped: Revision,
    /// Whether the member's own etcd runs on it.
    pub runs: bool,
}

type Ask = oneshot::Sender<Result<Followed>>;

/// A standby that runs. When this is dropped it ends, and leaves its working directory to the next one.
#[derive(Debug)]
pub struct Follower {
    asks: mpsc::Sender<Ask>,
    state: watch::Receiver<StandbyState>,
    _stop: DropGuard,
}

impl Follower {
    /// Begins to follow. [`Options::from`] and [`Options::parallel`] are not used. It goes on through failures of the store and of the
    /// private etcd.
    #[must_use]
    pub fn start(source: Source, options: Options) -> Self {
        Self::start_on(source, options, None)
    }

    /// The same with the member's own etcd, which runs on when the standby has ended.
    #[must_use]
    pub fn start_on(source: Source, options: Options, own: Option<Arc<dyn MemberEtcd>>) -> Self {
        let (asks, asked) = mpsc::channel(1);
        let (told, state) = watch::channel(StandbyState::default());
        let task = Task { source, options, own, asks: asked, pending: None, told };
        // A thread of its own: what a small transaction costs is to wake up whoever is next, and etcd dies with this thread.
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        spawn_blocking(move || match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => drop(runtime.block_on(stopped.run_until_cancelled(task.run()))),
            Err(error) => {
                drop(task.told.send(StandbyState { message: error.to_string(), ..Default::default() }))
            }
        });
        Self { asks, state, _stop: stop.drop_guard() }
    }

    /// How far the standby is at the moment.
    #[must_use]
    pub fn state(&self) -> StandbyState {
        self.state.borrow().clone()
    }

    /// The same, to be waited for: each look into the store may change it.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<StandbyState> {
        self.state.clone()
    }

    /// Applies what the store has by now, and makes the data directory. The standby has ended then; after an error it follows on, and
    /// this can be called again. Where no delta leads to the newest full snapshot, it begins anew with that one first.
    ///
    /// # Errors
    /// As of [`restore`](super::restore).
    pub async fn finish(&self) -> Result<Followed> {
        let (ask, answer) = oneshot::channel();
        self.asks.send(ask).await.map_err(|_| Error::Stopped)?;
        answer.await.map_err(|_| Error::Stopped)?
    }
}

/// Whether an earlier process has left something to continue from for this data directory.
#[must_use]
pub fn is_left(data_dir: &Path) -> bool {
    Record::exists(&Work::beside(data_dir))
}

/// How a round ended.
enum End {
    /// The data directory is there, or nobody waits any more.
    Over,
    /// What is held does not lead to what is in the store.
    Anew(String),
}

/// What a look into the store gave.
enum Look {
    /// There is nothing that is not applied.
    Complete,
    /// Something is beyond, and a delta that leads there may still come.
    Behind(String),
    Anew(String),
}

struct Task {
    source: Source,
    options: Options,
    own: Own,
    asks: mpsc::Receiver<Ask>,
    /// Who waits for the data directory.
    pending: Option<Ask>,
    told: watch::Sender<StandbyState>,
}

impl Task {
    async fn run(mut self) {
        loop {
            match self.round().await {
                Ok(End::Over) => return,
                Ok(End::Anew(why)) => {
                    tracing::warn!(why, "the standby begins anew");
                    self.told.send_replace(StandbyState { message: why, ..Default::default() });
                }
                Err(error) => {
                    self.told.send_replace(StandbyState { message: text(&error), ..Default::default() });
                    if let Some(own) = self.own.take_if(|_| error.is_of_etcd()) {
                        tracing::warn!(error = text(&error), "the standby goes on with a private etcd");
                        own.end().await;
                    }
                    self.refuse(error);
                    if !self.pause(AGAIN).await {
                        return;
                    }
                }
            }
        }
    }

    /// From the start of a private etcd to its end.
    async fn round(&mut self) -> Result<End> {
        let work = Work::reopen(&self.options.data_dir)?;
        let history = self.history().await?;
        let store = self.source.root.history(&history);
        let told = self.told.clone();
        let say = move |message: String| told.send_modify(|state| state.message = message);
        let source = (&store, history.as_str());
        if let Some(own) = &self.own {
            // One of a round before.
            own.end().await;
        }
        let held = match Held::resume(source, &self.options, self.own.clone(), &work).await {
            Some(held) => held,
            None => Held::begin(source, &self.options, &work, &say).await?,
        };
        self.follow(&store, work, held).await
    }

    async fn history(&self) -> Result<String> {
        match &self.source.history {
            Some(named) => Ok(named.clone()),
            None => Ok(self.source.root.current_history().await?),
        }
    }

    async fn follow(&mut self, store: &Store, work: Work, mut held: Held) -> Result<End> {
        loop {
            let begun = Instant::now();
            let looked = self.look(store, &work, &mut held).await;
            let message = match looked {
                Ok(Look::Complete) if self.pending.is_some() => return self.finish(work, held).await,
                Ok(Look::Complete) => {
                    // While a long look goes on, much may come.
                    let is_next = held.is_private() && begun.elapsed() < SHORT;
                    if let Some(own) = self.own.clone().filter(|_| is_next) {
                        held = held.go_on_with(own, &self.options, &work).await?;
                    }
                    String::new()
                }
                Ok(Look::Behind(why)) => why,
                Ok(Look::Anew(why)) => {
                    Record::forget(work.dir());
                    return Ok(End::Anew(why));
                }
                Err(ApplyError::Etcd(error)) => return Err(error),
                Err(ApplyError::Fetch(error)) => {
                    let message = text(&error);
                    self.refuse(error);
                    message
                }
            };
            let pause = if message.is_empty() { LOOK } else { AGAIN };
            self.tell(&held, message);
            if !self.pause(pause).await {
                return Ok(End::Over);
            }
            if let Some(error) = held.died() {
                return Err(error);
            }
        }
    }

    /// Applies what is new in the store.
    async fn look(&self, store: &Store, work: &Work, held: &mut Held) -> Result<Look, ApplyError> {
        let history = self.history().await.map_err(ApplyError::Fetch)?;
        if history != held.history {
            let why = format!("AnotherHistory: {} is followed, and {history} is written now", held.history);
            return Ok(Look::Anew(why));
        }
        let all = store.list_quickly().await.map_err(|error| ApplyError::Fetch(error.into()))?;
        let names: Vec<SnapshotName> = all.iter().map(|one| one.name.clone()).collect();
        let (gap, damaged) = match deltas_after(&names, held.reached()) {
            Ok(deltas) => (None, self.apply(store, &all, &deltas, work, held).await?),
            Err(gap) => (Some(gap), false),
        };
        held.ended = all.iter().any(|one| ends(one, held.reached()));
        let beyond = newest_beyond(&names, held);
        if gap.is_none() && beyond.is_none() && !damaged {
            held.behind = None;
            return Ok(Look::Complete);
        }
        let since = held.behind.get_or_insert_with(Instant::now);
        // What leads to a final snapshot is there before it.
        let is_final = beyond.as_ref().is_some_and(|full| full.is_final);
        let may_come = !damaged && !is_final;
        let waits = since.elapsed() < BEHIND && self.pending.is_none() && may_come;
        match (beyond, gap) {
            (Some(full), _) => {
                let why = format!("no delta leads from revision {} to {full}", held.reached());
                Ok(if waits { Look::Behind(why) } else { Look::Anew(why) })
            }
            (None, Some(gap)) if waits => Ok(Look::Behind(gap.to_string())),
            (None, gap) => {
                let source = gap.unwrap_or(PlanError::NoFull);
                Err(ApplyError::Fetch(Error::Plan { store: store.url().to_owned(), source }))
            }
        }
    }

    /// Applies deltas; true where one is damaged, and a full snapshot makes up for it.
    async fn apply(
        &self,
        store: &Store,
        all: &[Stored],
        deltas: &[SnapshotName],
        work: &Work,
        held: &mut Held,
    ) -> Result<bool, ApplyError> {
        for name in deltas {
            let Some(one) = all.iter().find(|one| one.name == *name) else { continue };
            match held.apply(store, one, work).await {
                Ok(()) => {
                    let message = self.told.borrow().message.clone();
                    self.tell(held, message);
                }
                Err(ApplyError::Fetch(error)) if error.is_damage() && has_full_after(all, name) => {
                    tracing::warn!(
                        error = text(&error),
                        "a delta is damaged, and a full snapshot has what it had"
                    );
                    return Ok(true);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    async fn finish(&mut self, work: Work, held: Held) -> Result<End> {
        let followed = held.finish(&self.options, work).await?;
        if let Some(ask) = self.pending.take() {
            // Whoever asked may have gone; the data directory is there all the same.
            let _ = ask.send(Ok(followed));
        }
        Ok(End::Over)
    }

    fn tell(&self, held: &Held, message: String) {
        // To change to the member's own etcd takes time, which nobody should have to wait for who saw that this follows.
        let follows = self.own.is_none() || !held.is_private();
        let state = StandbyState {
            base: Some(held.base.clone()),
            deltas: held.deltas,
            revision: follows.then(|| held.reached()),
            ended: held.ended,
            message,
        };
        self.told.send_if_modified(|told| {
            let changed = *told != state;
            if changed && told.message != state.message && !state.message.is_empty() {
                tracing::warn!(why = state.message, "the standby does not go on");
            }
            *told = state;
            changed
        });
    }

    fn refuse(&mut self, error: Error) {
        if let Some(ask) = self.pending.take() {
            let _ = ask.send(Err(error));
        }
    }

    /// Waits, or until somebody asks; false when nobody can ask any more.
    async fn pause(&mut self, length: Duration) -> bool {
        if self.pending.is_some() {
            return true;
        }
        tokio::select! {
            ask = self.asks.recv() => {
                self.pending = ask;
                self.pending.is_some()
            }
            () = sleep(length) => true,
        }
    }
}

fn text(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
