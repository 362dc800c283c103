//! What the stores know of a hand-over, and the wait for it where there is no agent: in a process that copies snapshots.
//!
//! ```text
//! <source>/integrity/<name>.owner    seed-a/6: whose time the final snapshot ends
//! <target>/handover.json             that the wait of an id is over, so that nobody waits twice
//! ```

use std::time::Duration;

use jiff::Timestamp;
use repot_apimachinery::time::Time;
use repot_etcd_core::{
    handover::{self, Cleared, Evidence, Handover},
    ownership::{Etcd, Facts, OwnershipHistory, Seen, Verdict, decide},
    snapshot::{SnapshotName, chain::final_snapshot},
};
use tokio::time::{sleep, timeout};

use super::{Settings, freshness::Freshness};
use crate::{
    agent::clock,
    snapshot::store::{Result, Store, Stored},
};

/// From one look to the next while the owner before may still serve: it may say so any moment that it has ended.
pub const LOOK: Duration = Duration::from_secs(2);
/// How long a store has to answer. What it does not tell is not known, and the wait goes on.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the stores tell.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// What the stores give to decide whether the hand-over is over.
    pub evidence: Evidence,
    /// The hand-over that is recorded.
    pub recorded: Option<Handover>,
    /// The final snapshot at the source, where its store records whose time it ends; `None` also where the store did not answer.
    pub final_snapshot: Option<SnapshotName>,
}

impl Told {
    /// Asks where snapshots come from, and where a hand-over to this id is recorded. It takes less than an answer of DNS counts.
    pub async fn ask(settings: &Settings, source: Option<&Store>, record: Option<&Store>) -> Self {
        let patience = PATIENCE.min(settings.timing.interval * 3 / 4);
        let of = async |store: Option<&Store>| match store {
            Some(store) => patiently(patience, store, find_end(store)).await.flatten(),
            None => None,
        };
        let recorded = async {
            match record {
                Some(store) => patiently(patience, store, recorded(store, &settings.id)).await.flatten(),
                None => None,
            }
        };
        let (found, own, recorded) = tokio::join!(of(source), of(record), recorded);
        let (final_snapshot, final_of) = found.unzip();
        let own_final_of = own.map(|(_, id)| id);
        let evidence = Evidence { recorded: recorded.is_some(), final_of, own_final_of };
        Self { evidence, recorded, final_snapshot }
    }

    /// The hand-over at `now`, where it is over; it is not yet recorded.
    #[must_use]
    pub fn cleared(&self, settings: &Settings, seen: &Seen, now: Time) -> Option<Handover> {
        let (id, timing) = (&settings.id, &settings.timing);
        let cleared = handover::decide(id, seen.named_since, &self.evidence, timing, now).ok()?;
        if let (Cleared::Recorded, Some(recorded)) = (cleared, &self.recorded) {
            return Some(recorded.clone());
        }
        let cleared_at = Timestamp::now();
        let named_for = now.since(seen.named_since.unwrap_or(now));
        let is_final = cleared == Cleared::FinalSnapshot;
        Some(Handover {
            owner_id: id.clone(),
            named_since: cleared_at.checked_sub(named_for).unwrap_or(cleared_at),
            cleared_at,
            reason: cleared.word().to_owned(),
            final_snapshot: self.final_snapshot.as_ref().filter(|_| is_final).map(ToString::to_string),
        })
    }
}

async fn patiently<T>(
    patience: Duration,
    store: &Store,
    asked: impl Future<Output = Result<T>>,
) -> Option<T> {
    match timeout(patience, asked).await {
        Ok(Ok(found)) => Some(found),
        Ok(Err(error)) => {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(store = store.url(), error, "what it knows of the hand-over is not known");
            None
        }
        Err(_) => {
            tracing::warn!(store = store.url(), "it does not say in time what it knows of the hand-over");
            None
        }
    }
}

/// The hand-over to this id, where it is recorded. What cannot be read, or makes no sense, is none.
async fn recorded(store: &Store, own_id: &str) -> Result<Option<Handover>> {
    let json = store.handover().await?;
    let found: Option<Handover> = json.and_then(|json| serde_json::from_slice(&json).ok());
    Ok(found.filter(|found| found.owner_id == own_id && found.makes_sense(Timestamp::now())))
}

/// The final snapshot of the current history, and whose time it ends.
///
/// # Errors
/// Where the store cannot be read.
pub async fn find_final_snapshot(source: &Store) -> Result<Option<(SnapshotName, String)>> {
    let source = source.current().await?;
    find_final_snapshot_in(&source, &source.list_quickly().await?).await
}

async fn find_final_snapshot_in(source: &Store, all: &[Stored]) -> Result<Option<(SnapshotName, String)>> {
    let names: Vec<_> = all.iter().map(|one| one.name.clone()).collect();
    let Some(name) = final_snapshot(&names) else { return Ok(None) };
    Ok(source.ended_owner(name).await?.map(|id| (name.clone(), id)))
}

/// The snapshot of the current history that ends an owner's time, and whose: the final delta as soon as it is there, and else the final
/// snapshot. Nothing may have been stored after it.
///
/// # Errors
/// Where the store cannot be read.
pub async fn find_end(source: &Store) -> Result<Option<(SnapshotName, String)>> {
    let source = source.current().await?;
    let all = source.list_quickly().await?;
    let ends = |one: &&Stored| one.ends_owner;
    let newest = all.iter().filter(ends).map(|one| &one.name).max_by_key(|name| (name.created, name.last));
    let is_last = |name: &&SnapshotName| {
        // Another snapshot may have been begun at the same time.
        all.iter().all(|other| other.name.last <= name.last || other.name.created <= name.created)
    };
    match newest.filter(is_last) {
        Some(name) => Ok(source.ended_owner(name).await?.map(|id| (name.clone(), id))),
        None => find_final_snapshot_in(&source, &all).await,
    }
}

/// Records that a hand-over is over.
///
/// # Errors
/// As of [`Store::set_handover`].
pub async fn record(store: &Store, handover: &Handover) -> Result<()> {
    store.set_handover(serde_json::to_vec_pretty(handover).unwrap_or_default().into()).await
}

/// Waits until the etcd of `settings` may go on from the snapshots at `source`, and records that at `target`. It waits for as long as the
/// record names somebody else.
///
/// # Errors
/// Where it cannot be recorded.
pub async fn wait(settings: &Settings, source: &Store, target: &Store) -> Result<Handover> {
    let (freshness, mut seen) = (Freshness::new(settings.timing.ttl), Seen::default());
    let mut said = String::new();
    loop {
        let begun = now();
        let (answer, detail) = settings.look(&freshness).await;
        let told = match settings.is_named_by(&answer) {
            true => Told::ask(settings, Some(source), Some(target)).await,
            false => Told::default(),
        };
        let facts = Facts {
            answer,
            begun,
            own_id: settings.id.clone(),
            // Nobody who goes on from snapshots has joined anybody.
            joined_id: None,
            seen,
            etcd: Etcd::Stopped,
            past: OwnershipHistory::NoData,
            continues: Some(told.evidence.clone()),
        };
        let (verdict, new) = decide(&facts, &settings.timing, now());
        seen = new;
        if let (Verdict::Resume { .. }, Some(handover)) = (&verdict, told.cleared(settings, &seen, now())) {
            record(target, &handover).await?;
            return Ok(handover);
        }
        if let Verdict::StayDown(why) = verdict
            && said != why.reason
        {
            tracing::info!(reason = why.reason, detail, "{}", why.message);
            said = why.reason.to_owned();
        }
        let pause = if seen.named_since.is_some() { LOOK } else { settings.timing.interval };
        sleep(pause.min(settings.timing.interval)).await;
    }
}

fn now() -> Time {
    Time(clock::now().as_secs())
}
