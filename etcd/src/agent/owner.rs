//! Ownership: what a look at the record means for this member's etcd.
//!
//! ```text
//! look at the record ──► repot_etcd_core::ownership::decide ──► orders to the supervisor, with the end of the lease
//!                                                           └──► when it is lost: mark, final snapshot (`final_snapshot`), stay down
//! ```
//!
//! Whatever is decided to end etcd is ordered before anything else is tried. A look that teaches nothing is repeated soon; the lease
//! goes on meanwhile, and its end is kept by the [guard](super::guard) and not by this loop.

use std::{path::Path, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use repot_api::conditions::Reason;
use repot_apimachinery::time::Time;
use repot_etcd_core::{
    agent::config::ClusterState,
    handover::Handover,
    ownership::{Answer, Facts, OwnershipHistory, Seen, Verdict, decide},
    timing::epoch,
};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    Agent,
    clock::{self, Deadline, WallClockOffset},
    final_snapshot::{self, FinalSnapshotTask, Outcome},
    mark::{self, OwnershipMarker},
    report::{Ownership, StatusReporter},
    settings::{chain, open, open_all},
    supervisor::Etcd,
    volume::{self, Volume},
};
use crate::owner::{
    Settings,
    freshness::Freshness,
    handover::{self, Told},
};

/// After a look that taught nothing.
const AGAIN: Duration = Duration::from_secs(1);
/// From one look to the next where somebody asks for it.
const ASKED: Duration = Duration::from_millis(500);
/// How long the store has to take the record of a hand-over.
const RECORD: Duration = Duration::from_secs(5);

/// Looks at the record and does what follows, until `stop`.
pub(super) async fn run(agent: &Agent, settings: &Settings, volume: &Volume, stop: &CancellationToken) {
    let mut owner = Owner::new(agent, settings, volume);
    let freshness = Freshness::new(settings.timing.ttl);
    let look = async || {
        let begun = (clock::whole_seconds(), WallClockOffset::read());
        (begun, settings.look(&freshness).await)
    };
    let (mut looks, mut due, mut begun_at) = (FuturesUnordered::new(), Instant::now(), None::<Instant>);
    loop {
        tokio::select! {
            // A slow look does not hold up the next one.
            () = sleep_until(due) => {
                looks.push(look());
                begun_at = Some(Instant::now());
                due = Instant::now() + settings.timing.interval;
            }
            Some((begun, (answer, detail))) = looks.next() => {
                let begun = owner.subtract_pauses(begun);
                let judged = stop.run_until_cancelled(owner.judge(begun, &answer, detail.as_deref())).await;
                if judged.is_none() {
                    return;
                }
                if owner.was_paused || owner.seen.confirmed.max(owner.seen.lost) < Some(begun) {
                    due = due.min(Instant::now() + AGAIN);
                } else if owner.waits {
                    due = due.min(Instant::now() + handover::LOOK);
                }
            }
            () = agent.owner_check.notified() => {
                due = due.min(begun_at.map_or_else(Instant::now, |begun| begun + ASKED));
            }
            () = stop.cancelled() => return,
        }
    }
}

/// Whether an etcd without a record in its configuration must not be started: it lost ownership when it had one, and another etcd may
/// have gone on. Taking the record out of the configuration does not give ownership back. The board says so.
pub(super) fn stays_down_without_record(dir: &Path, board: &StatusReporter) -> bool {
    let (reason, message, mark) = match OwnershipMarker::read(dir) {
        Ok(None) => return false,
        Ok(Some(mark)) if mark.loss().is_none() => return false,
        Ok(Some(mark)) => ("OwnershipLost", mark.lasting(dir), Some(mark)),
        Err(error) => ("VolumeUnreadable", chain(&error), None),
    };
    let cut_off = mark.as_ref().and_then(OwnershipMarker::ended_id);
    let final_snapshot = mark.and_then(|mark| mark.snapshot);
    let handover = None;
    board.say_ownership(Ownership {
        verdict: "StayDown",
        reason,
        message,
        cut_off,
        final_snapshot,
        handover,
    });
    true
}

struct Owner<'a> {
    agent: &'a Agent,
    settings: &'a Settings,
    volume: &'a Volume,
    seen: Seen,
    /// The offset of the wall clock when the newest look was judged.
    offset: WallClockOffset,
    /// Whether the machine was paused between the two newest looks.
    was_paused: bool,
    /// Under which id the data were served, and what happened when it was lost.
    mark: Option<OwnershipMarker>,
    /// Whether the mark is on disk.
    is_marked: bool,
    /// Why the final snapshot is not tried again.
    given_up: Option<String>,
    /// Whether the owner before is waited for.
    waits: bool,
    /// The hand-over to this etcd, once it is over.
    handover: Option<Handover>,
}

impl<'a> Owner<'a> {
    fn new(agent: &'a Agent, settings: &'a Settings, volume: &'a Volume) -> Self {
        Self {
            agent,
            settings,
            volume,
            seen: Seen::default(),
            offset: WallClockOffset::read(),
            was_paused: false,
            mark: None,
            is_marked: false,
            given_up: None,
            waits: false,
            handover: None,
        }
    }

    /// By the wall clock as it was when the end of the lease was decided.
    fn deadline(&self, until: Time) -> Deadline {
        Deadline::at(Duration::from_secs(until.0), self.offset)
    }

    /// Returns when a look began. Time for which the machine was paused is subtracted, here and from `confirmed`. It is not subtracted from
    /// `named_since`, so the next owner never waits less.
    fn subtract_pauses(&mut self, (begun, then): (Time, WallClockOffset)) -> Time {
        let offset = WallClockOffset::read();
        let paused = self.offset.paused_until(offset);
        self.offset = offset;
        self.was_paused = !paused.is_zero();
        if !paused.is_zero() {
            tracing::warn!(
                ?paused,
                "the wall clock was set forward: this machine may have been paused for as long"
            );
        }
        let earlier = |time: Time, held: Duration| {
            Time(time.0.saturating_sub(held.as_secs() + u64::from(held.subsec_nanos() > 0)))
        };
        self.seen.confirmed = self.seen.confirmed.map(|confirmed| earlier(confirmed, paused));
        earlier(begun, then.paused_until(offset))
    }

    async fn judge(&mut self, begun: Time, answer: &Answer, detail: Option<&str>) {
        let detail = detail.or_else(|| match answer {
            Answer::Record(values) if values.len() > 1 && values.contains(&self.settings.id) => {
                Some("the record names us and others, or the same twice")
            }
            _ => None,
        });
        loop {
            let etcd = self.agent.supervisor.seen().etcd;
            let past = match self.past(etcd) {
                Ok(past) => past,
                // Without knowing what happened, nothing is started.
                Err(error) => {
                    return self.say("StayDown", Some(&Reason::new("VolumeUnreadable", chain(&error))), None);
                }
            };
            let told = self.ask_of_the_owner_before(past, answer).await;
            let facts = Facts {
                answer: answer.clone(),
                begun,
                own_id: self.settings.id.clone(),
                joined_id: self.settings.joined_id.clone(),
                seen: self.seen,
                etcd,
                past,
                continues: told.as_ref().map(|told| told.evidence.clone()),
            };
            let (verdict, seen) = decide(&facts, &self.settings.timing, clock::whole_seconds());
            self.seen = seen;
            self.waits = told.is_some() && seen.named_since.is_some();
            let supervisor = &self.agent.supervisor;
            match verdict {
                Verdict::Serve { until } => {
                    supervisor.renew(self.deadline(until));
                    self.say("Serve", None, detail);
                }
                Verdict::Resume { until } => match self.serve_as_own_id().await {
                    Ok(()) => {
                        self.waits = false;
                        if let Some(told) = told {
                            self.record(&told).await;
                        }
                        supervisor.order(Etcd::Serves, Some(self.deadline(until)));
                        self.say("Serve", None, detail);
                    }
                    Err(error) => {
                        self.say("StayDown", Some(&Reason::new("VolumeUnwritable", chain(&error))), None)
                    }
                },
                Verdict::StopEtcd(why) => {
                    supervisor.order(Etcd::Stopped, None);
                    self.say("Stop", Some(&why), detail);
                    supervisor.reached(Etcd::Stopped).await;
                    continue;
                }
                Verdict::CutOffClients(why) => {
                    supervisor.order(Etcd::Private, Some(Deadline::after(final_snapshot::LIFE)));
                    self.say("CutOff", Some(&why), detail);
                    self.cut_off().await;
                    supervisor.left(Etcd::Serves).await;
                    continue;
                }
                Verdict::TakeFinalSnapshot(why) => self.finish(&why).await,
                Verdict::StayDown(why) => {
                    let served = self.mark.as_ref().filter(|_| past == OwnershipHistory::AnotherId);
                    let served = served.map(|mark| mark.another_id(self.volume.dir()));
                    // One that is about to be started for clients; where nothing is known the end of the lease does it, so that a
                    // restore of many minutes is not broken off by a resolver that is away for one.
                    if self.seen.lost.is_some()
                        || !matches!(past, OwnershipHistory::Sound | OwnershipHistory::NoData)
                    {
                        supervisor.order(Etcd::Stopped, None);
                    }
                    self.say("StayDown", Some(&why), detail.or(served.as_deref()));
                }
            }
            return;
        }
    }

    /// Of an etcd that serves it says nothing: only what is stopped has a past that counts, and a volume may hang.
    fn past(&mut self, etcd: Etcd) -> Result<OwnershipHistory, volume::Error> {
        if self.mark.is_none() && etcd != Etcd::Serves {
            self.mark = OwnershipMarker::read(self.volume.dir())?;
            self.is_marked = self.mark.is_some();
        }
        let is_other = |mark: &OwnershipMarker| !mark.is_of(&self.settings.id);
        match self.mark.as_ref() {
            Some(mark) if let Some(loss) = mark.loss() => Ok(loss),
            _ if etcd == Etcd::Serves => Ok(OwnershipHistory::Sound),
            mark => match mark::unmarked(self.volume)? {
                OwnershipHistory::Sound if mark.is_some_and(is_other) => Ok(OwnershipHistory::AnotherId),
                past => Ok(past),
            },
        }
    }

    /// What the stores tell of the owner before, where this etcd is about to begin: from the snapshots of that owner, or empty. An empty
    /// one waits as long: the configuration may have forgotten what to restore.
    async fn ask_of_the_owner_before(&self, past: OwnershipHistory, answer: &Answer) -> Option<Told> {
        let config = &self.agent.settings.config;
        // An id without an epoch may be back after somebody else.
        let is_own =
            |mark: &OwnershipMarker| mark.is_of(&self.settings.id) && epoch(&self.settings.id).is_some();
        let has_begun = self.mark.as_ref().is_some_and(is_own);
        if past != OwnershipHistory::NoData || has_begun || config.cluster_state == ClusterState::Existing {
            return None;
        }
        if !self.settings.is_named_by(answer) {
            return Some(Told::default());
        }
        let source = config.restore.as_ref().and_then(|restore| open(&restore.store).ok());
        let record = config.store.as_ref().and_then(|store| open_all(store).ok());
        Some(Told::ask(self.settings, source.as_ref(), record.as_ref()).await)
    }

    /// Records that the hand-over is over: whoever fills volumes for this id later need not wait again.
    async fn record(&mut self, told: &Told) {
        let Some(handover) = told.cleared(self.settings, &self.seen, clock::whole_seconds()) else { return };
        let store = self.agent.settings.config.store.as_ref().and_then(|store| open_all(store).ok());
        if let (Some(store), true) = (store, told.recorded.as_ref() != Some(&handover)) {
            let written = timeout(RECORD, handover::record(&store, &handover)).await;
            if !matches!(written, Ok(Ok(()))) {
                tracing::warn!(store = store.url(), "that the hand-over is over cannot be recorded");
            }
        }
        self.handover = Some(handover);
    }

    /// Remembers as whom clients are let in, before they are.
    async fn serve_as_own_id(&mut self) -> Result<(), volume::Error> {
        if self.mark.as_ref().is_some_and(|mark| mark.is_of(&self.settings.id)) {
            return Ok(());
        }
        let mark = OwnershipMarker::served(&self.settings.id, jiff::Timestamp::now());
        mark.write(self.volume.dir().to_owned()).await?;
        (self.mark, self.is_marked) = (Some(mark), true);
        Ok(())
    }

    /// Remembers that clients are cut off. In this process that holds even where it cannot be written.
    async fn cut_off(&mut self) {
        let new = || OwnershipMarker::cut_off(&self.settings.id, jiff::Timestamp::now());
        let mark = self.mark.take().filter(|mark| mark.loss().is_some()).unwrap_or_else(new);
        self.write(&mark).await;
        self.mark = Some(mark);
    }

    async fn write(&mut self, mark: &OwnershipMarker) {
        let written = mark.write(self.volume.dir().to_owned()).await;
        self.is_marked = written.is_ok();
        if let Err(error) = written {
            tracing::error!(error = chain(&error), "what happened to the data cannot be remembered");
        }
    }

    async fn finish(&mut self, why: &Reason) {
        if let Some(given_up) = &self.given_up {
            return self.say("StayDown", Some(why), Some(given_up));
        }
        self.cut_off().await;
        let lost = self.seen.lost.unwrap_or_else(clock::whole_seconds);
        let task = FinalSnapshotTask { agent: self.agent, settings: self.settings, lost };
        let outcome = task.run(&|doing| self.say("FinalSnapshot", Some(why), Some(doing))).await;
        match outcome {
            Outcome::StoredSnapshot(name, delta) => {
                let mark = OwnershipMarker::cut_off(&self.settings.id, jiff::Timestamp::now());
                let mark = self.mark.take().unwrap_or(mark).with_snapshot(name, delta);
                self.write(&mark).await;
                self.mark = Some(mark);
                self.say("StayDown", Some(why), None);
                task.linger().await;
            }
            Outcome::GivenUp(given_up) => {
                self.say("StayDown", Some(why), Some(&given_up));
                self.given_up = Some(given_up);
            }
        }
        self.agent.supervisor.order(Etcd::Stopped, None);
        self.agent.supervisor.reached(Etcd::Stopped).await;
    }

    fn say(&self, verdict: &'static str, why: Option<&Reason>, detail: Option<&str>) {
        let message = [why.map(|why| why.message.as_str()), detail];
        let message: Vec<&str> = message.into_iter().flatten().collect();
        if let Some(mark) = self.mark.as_ref().filter(|mark| mark.delta.is_some()) {
            self.agent.board.set_final_delta(mark.delta.clone());
        }
        self.agent.board.say_ownership(Ownership {
            verdict,
            reason: why.map_or("", |why| why.reason),
            message: message.join("; "),
            cut_off: self.mark.as_ref().filter(|_| self.is_marked).and_then(OwnershipMarker::ended_id),
            final_snapshot: self.mark.as_ref().and_then(|mark| mark.snapshot.clone()),
            handover: self.handover.clone(),
        });
    }
}
