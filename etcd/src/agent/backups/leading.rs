//! What the leader's agent does: it follows all events, saves them as deltas, and takes full snapshots.

use std::{collections::VecDeque, time::Duration};

use jiff::Timestamp;
use repot_apimachinery::{schedule, time::Time};
use repot_etcd_core::snapshot::{Compression, Kind, Revision, SnapshotName, decide};
use tokio::{
    task::yield_now,
    time::{Instant, MissedTickBehavior, interval, timeout, timeout_at},
};

use super::{Ask, Error, LeaderSlot, PATIENCE, Request, Standing, Taker};
use crate::{
    agent::{
        clients,
        history::{OwnHistory, limit},
        settings::chain,
    },
    snapshot::{
        codec::Event,
        store,
        take::{self, Draft, Events},
    },
};

/// How often it is looked whether something is due.
const TICK: Duration = Duration::from_millis(500);
/// Every so many ticks it is looked who leads.
const TICKS: u32 = 4;
/// How long the last event may take to come.
const EVENTS: Duration = Duration::from_secs(30);

/// Where the leader stands: everything up to `saved` is in the store, and what comes after is in the draft.
struct Line {
    history: OwnHistory,
    compression: Compression,
    events: Option<Events>,
    /// Events that came, and are in no draft yet.
    came: VecDeque<Event>,
    draft: Option<(Draft, Instant)>,
    saved: Revision,
    /// When the next full one is due.
    due: Option<Time>,
    full: Option<SnapshotName>,
}

fn now() -> Time {
    Time(u64::try_from(Timestamp::now().as_second()).unwrap_or_default())
}

impl Taker {
    /// Takes snapshots as long as this member leads.
    pub(super) async fn lead(&mut self, slot: &LeaderSlot) -> Result<(), Error> {
        let mut line = self.begin(slot).await?;
        self.broken = false;
        if let Some(ask) = self.pending.take() {
            self.answer(slot, &mut line, ask).await?;
        }
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut count = 0_u32;
        loop {
            tokio::select! {
                more = line.more() => {
                    more.inspect_err(|error| self.broken |= needs_full(error))?;
                    if line.draft.as_ref().is_some_and(|(draft, _)| draft.bytes() >= self.agent.settings.snapshots.memory) {
                        self.save(&mut line).await?;
                    }
                    // Without it, nobody would renew the lease of etcd while there are more events.
                    yield_now().await;
                }
                Some(ask) = self.asks.recv() => self.answer(slot, &mut line, ask).await?,
                _ = ticks.tick() => {
                    count += 1;
                    if count.is_multiple_of(TICKS) && !self.still_leads(slot).await {
                        tracing::info!("another member leads; it goes on with the snapshots");
                        return Ok(());
                    }
                    self.tick(slot, &mut line).await?;
                }
            }
        }
    }

    async fn still_leads(&self, slot: &LeaderSlot) -> bool {
        matches!(self.standing().await, Standing::Leader(new) if (new.member, &new.cluster) == (slot.member, &slot.cluster))
    }

    async fn begin(&mut self, slot: &LeaderSlot) -> Result<Line, Error> {
        let config = self.agent.settings.config.store.as_ref().ok_or(Error::NoStore)?;
        let history = OwnHistory::open(config)?;
        let store = history.snapshots();
        let names: Vec<SnapshotName> = store.list_quickly().await?.into_iter().map(|one| one.name).collect();
        let current = clients::read(&slot.client, PATIENCE).await?;
        let full = names.iter().filter(|name| name.kind == Kind::Full).max().cloned();
        let ours = match &full {
            Some(full) => store.cluster(full).await?.as_deref() == Some(&slot.cluster),
            None => false,
        };
        let due = full.as_ref().and_then(|full| {
            schedule::next(
                &self.agent.settings.snapshots.full,
                Time(u64::try_from(full.created).unwrap_or_default()),
            )
        });
        let facts = decide::Facts {
            names: &names,
            ours,
            current,
            due: due.is_some_and(|due| due <= now()),
            broken: self.broken,
        };
        let compression = self.agent.settings.snapshots.compression;
        let mut line = Line {
            history,
            compression,
            events: None,
            came: VecDeque::new(),
            draft: None,
            saved: Revision(0),
            due,
            full,
        };
        match decide::start(&facts) {
            decide::Start::Refuse(why) => return Err(Error::AnotherHistory(why)),
            decide::Start::Full(why) => {
                tracing::info!(why, "a full snapshot is taken");
                line.saved = self.full(slot, &mut line, false).await?.last;
            }
            decide::Start::Continue(after) => {
                tracing::info!(after = after.0, "snapshots go on");
                line.history.make_current().await?;
                line.saved = after;
                // Otherwise it is told once the first of what is missing is in the store.
                if after == current {
                    self.state.send_modify(|state| state.failing = None);
                }
                let delta = names.iter().filter(|name| name.kind == Kind::Delta).max().cloned();
                let full = line.full.clone();
                self.state.send_modify(|state| (state.full, state.delta) = (full, delta));
            }
        }
        if self.agent.settings.snapshots.delta.is_some() {
            line.events = Some(Events::after(&slot.client, line.saved).await?);
        }
        Ok(line)
    }

    async fn tick(&mut self, slot: &LeaderSlot, line: &mut Line) -> Result<(), Error> {
        if line.due.is_some_and(|due| due <= now()) {
            self.full(slot, line, false).await?;
        }
        let period = self.agent.settings.snapshots.delta;
        let old = |since: Instant| period.is_some_and(|period| since.elapsed() >= period);
        if line.draft.as_ref().is_some_and(|(_, since)| old(*since)) {
            self.save(line).await?;
        }
        Ok(())
    }

    /// Answers somebody. What fails, fails for everybody: all begins anew.
    async fn answer(&mut self, slot: &LeaderSlot, line: &mut Line, ask: Ask) -> Result<(), Error> {
        let outcome = match ask.request {
            Request::Full { is_final } => self.full(slot, line, is_final).await.map(Some),
            Request::Delta => self.delta(slot, line).await,
        };
        match outcome {
            Ok(taken) => drop(ask.answer.send(Ok(taken))),
            Err(error @ (Error::NoDeltas | Error::Late { .. })) => drop(ask.answer.send(Err(error))),
            Err(error) => {
                self.pending = Some(ask);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Takes a full snapshot. Deltas go on as if there were none: so the one before it leads up to the newest state, too.
    async fn full(
        &mut self,
        slot: &LeaderSlot,
        line: &mut Line,
        is_final: bool,
    ) -> Result<SnapshotName, Error> {
        // Another etcd that was started by mistake may have led readers of the store to its own one meanwhile.
        line.history.make_current().await?;
        let store = line.history.snapshots();
        let at = Timestamp::now();
        let how = (line.compression, is_final);
        let taken = take::full(&slot.client, store, &self.agent.scratch, how, at).await;
        let name = match taken {
            Ok(taken) => taken.name,
            // Two within a second that hold the same.
            Err(take::Error::Store(store::Error::Exists { .. })) if line.full.is_some() => {
                return line.full.clone().ok_or(Error::Stopped);
            }
            Err(error) => return Err(error.into()),
        };
        store.set_cluster(&name, &slot.cluster).await?;
        tracing::info!(%name, "a full snapshot is taken");
        line.due = schedule::next(&self.agent.settings.snapshots.full, now());
        line.full = Some(name.clone());
        self.state.send_modify(|state| {
            (state.full, state.failing) = (Some(name.clone()), None);
            state.taken.0 += 1;
        });
        self.retain(&line.history).await;
        Ok(name)
    }

    async fn delta(&mut self, slot: &LeaderSlot, line: &mut Line) -> Result<Option<SnapshotName>, Error> {
        if line.events.is_none() {
            return Err(Error::NoDeltas);
        }
        let asked = clients::read(&slot.client, PATIENCE).await?;
        let end = Instant::now() + EVENTS;
        while line.reaches() < asked {
            match timeout_at(end, line.more()).await {
                Ok(more) => more.inspect_err(|error| self.broken |= needs_full(error))?,
                Err(_) => return Err(Error::Late { asked, after: EVENTS }),
            }
            yield_now().await;
        }
        self.save(line).await
    }

    async fn save(&mut self, line: &mut Line) -> Result<Option<SnapshotName>, Error> {
        let Some((draft, _)) = line.draft.take() else { return Ok(None) };
        line.history.check_is_open().await?;
        let name = draft.save(line.history.snapshots(), Timestamp::now()).await?.name;
        tracing::debug!(%name, "a delta is saved");
        line.saved = name.last;
        self.state.send_modify(|state| {
            (state.delta, state.failing) = (Some(name.clone()), None);
            state.taken.1 += 1;
        });
        Ok(Some(name))
    }

    /// Deletes what is not kept. A failure is of no consequence for the snapshots that there are.
    async fn retain(&self, history: &OwnHistory) {
        let (store, settings) = (history.snapshots(), &self.agent.settings.snapshots);
        let work = async {
            let all = store.list_quickly().await?;
            let names: Vec<SnapshotName> = all.iter().map(|one| one.name.clone()).collect();
            let gone = decide::superfluous(&names, settings.retention, now());
            for one in all.iter().filter(|one| gone.contains(&one.name)) {
                store.delete(one).await?;
                tracing::debug!(name = %one.name, "a snapshot is not kept");
                self.state.send_modify(|state| state.deleted += 1);
            }
            if let Some(retention) = settings.closed_retention {
                let deleted = history.delete_closed(limit(Timestamp::now(), retention)).await?;
                self.state.send_modify(|state| state.deleted += deleted);
            }
            Ok::<_, store::Error>(())
        };
        match timeout(Duration::from_secs(600), work).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(error = chain(&error), "old snapshots are left"),
            Err(_) => tracing::warn!("old snapshots are left: deleting them takes too long"),
        }
    }
}

/// Whether events are missing, which only a full snapshot makes up for.
fn needs_full(error: &Error) -> bool {
    matches!(error, Error::Take(take::Error::Compacted { .. } | take::Error::Content(_)))
}

impl Line {
    /// The newest revision that is saved or in the draft.
    fn reaches(&self) -> Revision {
        let draft = self.draft.as_ref().and_then(|(draft, _)| draft.last());
        draft.unwrap_or(self.saved).max(self.saved)
    }

    /// Takes in some of the next events; for ever, where none are followed. It can be broken off.
    async fn more(&mut self) -> Result<(), Error> {
        let Some(events) = &mut self.events else { return std::future::pending().await };
        if self.came.is_empty() {
            self.came = events.next().await?.into();
        }
        if self.draft.is_none() {
            self.draft = Some((Draft::new(self.compression, self.saved)?, Instant::now()));
        }
        if let Some((draft, _)) = &mut self.draft {
            draft.push_some(&mut self.came, Timestamp::now())?;
        }
        Ok(())
    }
}
