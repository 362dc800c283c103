//! From one store to another: in parallel, newest first, every byte verified at the source, on the way and at the target.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{
    SnapshotName,
    chain::final_snapshot,
    inspect::{self, Look, pass, read_content},
    store::{self, Integrity, Mode, Store, Stored},
};

/// How often a store is asked whether the final snapshot has come.
const POLL: Duration = Duration::from_millis(500);

/// What became of one snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was not at the target.
    Copied,
    /// It was at the target, cut or changed, and was copied again.
    Repaired,
    /// It was at the target, whole.
    Present,
}

/// What is told while it goes on.
#[derive(Clone, Debug)]
pub enum Progress {
    /// So many snapshots of so many bytes are at the source.
    Begun {
        /// How many.
        snapshots: usize,
        /// Their bytes.
        bytes: u64,
    },
    /// One is done.
    Done {
        /// Which.
        name: SnapshotName,
        /// Its bytes.
        bytes: u64,
        /// What became of it.
        outcome: Outcome,
    },
    /// One could not be copied; the others go on.
    Failed {
        /// Which.
        name: SnapshotName,
        /// Why.
        error: Arc<inspect::Error>,
    },
}

/// What was copied.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What became of each, newest first.
    pub done: Vec<(SnapshotName, u64, Outcome)>,
    /// Which could not be copied, and why.
    pub failed: Vec<(SnapshotName, Arc<inspect::Error>)>,
}

impl Report {
    /// How many have an outcome.
    #[must_use]
    pub fn count(&self, outcome: Outcome) -> usize {
        self.done.iter().filter(|(_, _, other)| *other == outcome).count()
    }
}

/// How to copy.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// So many at once.
    pub parallel: usize,
    /// Whether a snapshot that is at the target, of the recorded length and with the recorded hash, is taken to be whole without
    /// being read again.
    pub trust_target: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { parallel: 4, trust_target: false }
    }
}

/// Waits until the source has a final snapshot after which nothing was stored; `None` when it has none within `limit`. That it
/// cannot be asked for a while is no reason to give up before.
///
/// # Errors
/// When the last answer before the deadline was an error.
pub async fn wait_for_final(source: &Store, limit: Duration) -> store::Result<Option<SnapshotName>> {
    let end = Instant::now() + limit;
    let mut last = Ok(None);
    loop {
        let again = Instant::now() + POLL;
        match timeout_at(end, look_for_final(source)).await {
            Ok(Ok(Some(found))) => return Ok(Some(found)),
            Ok(Ok(None)) => last = Ok(None),
            Ok(Err(error)) => {
                tracing::warn!(store = source.url(), %error, "still waiting for the final snapshot");
                last = Err(error);
            }
            Err(_) => {}
        }
        if again >= end {
            return last;
        }
        sleep_until(again).await;
    }
}

/// The mark of another tool takes a request each, so only that of the one that was found is looked at.
async fn look_for_final(source: &Store) -> store::Result<Option<SnapshotName>> {
    let mut list = source.list_quickly().await?;
    loop {
        let names: Vec<SnapshotName> = list.iter().map(|one| one.name.clone()).collect();
        let Some(found) = final_snapshot(&names) else { return Ok(None) };
        let Some(at) = list.iter().position(|one| one.name == *found) else { return Ok(None) };
        if !source.is_marked(&list[at]).await? {
            return Ok(Some(found.clone()));
        }
        list.remove(at);
    }
}

/// Copies all snapshots that are not yet whole at the target.
///
/// # Guarantees
/// What is counted as copied was whole at the source, and was read at the target byte for byte as it was at the source. A copy that was
/// broken off is taken up by running it again: what is done is left alone, what is not whole is copied again. A snapshot appears at
/// the target whole or not at all.
///
/// # Errors
/// When one of the stores cannot be listed. What is wrong with single snapshots is in the report.
pub async fn copy(
    source: &Store,
    target: &Store,
    options: Options,
    progress: impl Fn(Progress) + Sync,
) -> store::Result<Report> {
    let (from, to) = tokio::try_join!(source.list(), target.list_quickly())?;
    progress(Progress::Begun { snapshots: from.len(), bytes: from.iter().map(|one| one.bytes).sum() });
    let work = stream::iter(from.iter().rev()).map(|one| {
        let there = to.iter().find(|other| other.name == one.name);
        let progress = &progress;
        async move {
            let outcome = copy_one(source, target, one, there, options).await;
            let outcome = outcome.map_err(Arc::new);
            let (name, bytes) = (one.name.clone(), one.bytes);
            progress(match &outcome {
                Ok(outcome) => Progress::Done { name, bytes, outcome: *outcome },
                Err(error) => Progress::Failed { name, error: Arc::clone(error) },
            });
            (one, outcome)
        }
    });
    let mut report = Report::default();
    let mut work = work.buffer_unordered(options.parallel.max(1));
    while let Some((one, outcome)) = work.next().await {
        match outcome {
            Ok(outcome) => report.done.push((one.name.clone(), one.bytes, outcome)),
            Err(error) => report.failed.push((one.name.clone(), error)),
        }
    }
    report.done.sort_by(|a, b| b.0.cmp(&a.0));
    report.failed.sort_by(|a, b| b.0.cmp(&a.0));
    Ok(report)
}

async fn copy_one(
    source: &Store,
    target: &Store,
    one: &Stored,
    there: Option<&Stored>,
    options: Options,
) -> inspect::Result<Outcome> {
    if let Some(there) = there {
        if is_whole(source, target, one, there, options.trust_target).await? {
            return Ok(Outcome::Present);
        }
        tracing::warn!(snapshot = %one.name, target = target.url(), "is not whole at the target and is copied again");
    }
    let mode = if there.is_some() { Mode::Replace } else { Mode::Create };
    let mut upload = target.upload(&one.name, mode).await?;
    // Read to the end with all checks while it goes to the target; it appears there only after they have passed.
    let work = read_content(one, Look::default());
    let integrity = match pass(source, one, Some(&mut upload), work).await {
        Ok((integrity, _)) => integrity,
        Err(error) => {
            upload.abort().await;
            return Err(error);
        }
    };
    upload.finish().await?;
    target.record(&one.name, &integrity).await?;
    read_back(target, &one.name).await?;
    Ok(if there.is_some() { Outcome::Repaired } else { Outcome::Copied })
}

/// Whether what is at the target is what is at the source.
async fn is_whole(
    source: &Store,
    target: &Store,
    one: &Stored,
    there: &Stored,
    trust: bool,
) -> inspect::Result<bool> {
    if there.bytes != one.bytes || !there.recorded {
        return Ok(false);
    }
    let recorded = match target.integrity(&one.name).await {
        Ok(Some(recorded)) => recorded,
        // A record that cannot be read proves nothing.
        Ok(None) | Err(store::Error::Record { .. }) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    if recorded.bytes != there.bytes || !agrees(source, one, &recorded).await? {
        return Ok(false);
    }
    if trust {
        return Ok(true);
    }
    match read_back(target, &one.name).await {
        Ok(()) => Ok(true),
        Err(error) if error.is_damage() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether the source recorded the same, if it recorded anything.
async fn agrees(source: &Store, one: &Stored, recorded: &Integrity) -> inspect::Result<bool> {
    if !one.recorded {
        return Ok(true);
    }
    Ok(source.integrity(&one.name).await?.is_none_or(|at_source| at_source == *recorded))
}

/// Reads what is at the target and compares it with its record.
async fn read_back(target: &Store, name: &SnapshotName) -> inspect::Result<()> {
    let Some(mut there) = target.head(name).await? else {
        let place = target.place_of(name);
        return Err(inspect::Error::Length { place, found: 0, listed: 0 });
    };
    there.recorded = true;
    pass(target, &there, None, |mut fed| {
        std::io::copy(&mut fed, &mut std::io::sink()).map(drop).map_err(super::codec::Error::of)
    })
    .await
    .map(drop)
}
