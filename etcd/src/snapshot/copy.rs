//! From one store to another: in parallel, newest first, every byte verified at the source, on the way and at the target.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use repot_etcd_core::snapshot::{
    SnapshotName,
    chain::{self, final_snapshot},
};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep_until, timeout_at},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    inspect::{self, Opened, read_back},
    store::{self, Form, Integrity, Mode, Store, Stored},
};

/// How often a store is asked whether the final snapshot has come.
const POLL: Duration = Duration::from_millis(500);
/// So many of those that are sent in parts are under way at once: each of them takes some parts' worth of memory.
const LARGE_AT_ONCE: usize = 2;

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

/// What became of each snapshot of a copy.
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

/// Which snapshots of the source's current history are copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// All of them.
    #[default]
    All,
    /// What a restore of the newest state needs: the newest full snapshot, and the deltas after it. All of them where there is none.
    Newest,
    /// All that are not newer than the newest one that the target has as well: an etcd that began with that one writes to the target by
    /// now. Readers are not led to them.
    Older,
}

impl Scope {
    fn select(self, mut all: Vec<Stored>, there: &[Stored]) -> Vec<Stored> {
        let names: Vec<SnapshotName> = all.iter().map(|one| one.name.clone()).collect();
        match (self, chain::plan(&names, None)) {
            (Self::Newest, Ok(plan)) => {
                all.retain(|one| one.name == plan.base || plan.deltas.contains(&one.name));
            }
            (Self::Older, _) => {
                let shared = names.iter().filter(|name| there.iter().any(|other| other.name == **name));
                let newest = shared.map(|name| name.last).max().unwrap_or_default();
                all.retain(|one| one.name.last <= newest);
            }
            (Self::All, _) | (Self::Newest, Err(_)) => {}
        }
        all
    }
}

/// Which snapshots are copied, how many at once, and whether the target is trusted.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which snapshots are copied.
    pub scope: Scope,
    /// Snapshots that this process has copied already: they are not read again.
    pub copied: BTreeSet<String>,
    /// So many at once; of large ones no more than two.
    pub parallel: usize,
    /// Whether a snapshot that is at the target, of the recorded length and with the recorded hash, is taken to be whole without
    /// being read again.
    pub trust_target: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { scope: Scope::All, copied: BTreeSet::new(), parallel: 16, trust_target: false }
    }
}

/// Waits until the current history of the source has a final snapshot after which nothing was stored; `None` when it has none within `limit`. That it
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
    let source = source.current().await?;
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

/// Copies the snapshots of the source's current history, by their scope, that are not yet whole at the target.
///
/// # Guarantees
/// What is counted as copied was whole at the source, and was read at the target byte for byte as it was at the source. A copy that was
/// broken off is taken up by running it again: what is done is left alone, what is not whole is copied again. A snapshot appears at
/// the target whole or not at all. What is sealed stays sealed under the keys that it has, and what is not is not sealed on the way.
/// When all are there, whoever reads the target is led to them, unless their scope says otherwise: an etcd that wrote another history
/// there is not the newest any more.
///
/// # Errors
/// When one of the stores cannot be listed, or the target cannot be told what its current history is. What is wrong with single
/// snapshots is in the report.
pub async fn copy(
    source: &Store,
    target: &Store,
    options: Options,
    progress: impl Fn(Progress) + Sync,
) -> store::Result<Report> {
    let source = source.current().await?;
    let from = options.scope.select(source.list_quickly().await?, &target.list_quickly().await?);
    let leads = options.scope != Scope::Older;
    let report = run(from, &source, target, Way { options, adopts: false }, progress).await?;
    if leads && report.failed.is_empty() && !report.done.is_empty() {
        target.begin_first_history_again().await?;
    }
    Ok(report)
}

/// Copies these snapshots of the source to a target that has none of them. Each is opened with the keys of the source and sealed with
/// those of the target, so that it rests there as what the target writes itself: in clear where that has no keys.
///
/// # Errors
/// As [`copy`].
pub(crate) async fn adopt(from: Vec<Stored>, source: &Store, target: &Store) -> store::Result<Report> {
    run(from, source, target, Way { options: Options::default(), adopts: true }, |_| {}).await
}

/// Copies these snapshots of the source, as they are, to a target that may have them already. Readers are not led to them.
///
/// # Errors
/// As [`copy`]. What is wrong with single snapshots is in the report.
pub(crate) async fn copy_these(from: Vec<Stored>, source: &Store, target: &Store) -> store::Result<Report> {
    run(from, source, target, Way { options: Options::default(), adopts: false }, |_| {}).await
}

/// Copies ahead what a later [`copy`] with these options would copy by now, and gives the names of what is whole at the target. Readers
/// are not led to it. What fails is left to the later one.
pub async fn copy_ahead(source: &Store, target: &Store, options: Options) -> BTreeSet<String> {
    let ahead = async {
        let source = source.current().await?;
        let from = options.scope.select(source.list_quickly().await?, &target.list_quickly().await?);
        run(from, &source, target, Way { options, adopts: false }, |_| {}).await
    };
    match ahead.await {
        Ok(report) => report.done.iter().map(|(name, ..)| name.to_string()).collect(),
        Err(error) => {
            tracing::warn!(store = source.url(), %error, "nothing was copied ahead");
            BTreeSet::new()
        }
    }
}

/// How each snapshot is copied.
#[derive(Clone, Debug)]
struct Way {
    options: Options,
    /// Whether it becomes what the target writes itself.
    adopts: bool,
}

async fn run(
    from: Vec<Stored>,
    source: &Store,
    target: &Store,
    way: Way,
    progress: impl Fn(Progress) + Sync,
) -> store::Result<Report> {
    let to = target.list_quickly().await?;
    progress(Progress::Begun { snapshots: from.len(), bytes: from.iter().map(|one| one.bytes).sum() });
    let large = Arc::new(Semaphore::new(LARGE_AT_ONCE));
    let work = stream::iter(from.into_iter().rev()).map(|one| {
        let (source, target, large) = (source.clone(), target.clone(), Arc::clone(&large));
        let form = if way.adopts { target.form() } else { one.form };
        let there = to.iter().find(|other| other.name == one.name && other.form == form).cloned();
        let (name, bytes) = (one.name.clone(), one.bytes);
        let is_done = way.options.copied.contains(&name.to_string());
        let job = Job { source, target, one, form, there, way: way.clone(), large, is_done };
        async move {
            // On a task of its own, so that each core has something to do.
            let outcome = AbortOnDropHandle::new(tokio::spawn(job.run())).await;
            (name, bytes, outcome.unwrap_or(Err(inspect::Error::Stopped)).map_err(Arc::new))
        }
    });
    let mut report = Report::default();
    let mut work = work.buffer_unordered(way.options.parallel.max(1));
    while let Some((name, bytes, outcome)) = work.next().await {
        match outcome {
            Ok(None) => {}
            Ok(Some(outcome)) => {
                progress(Progress::Done { name: name.clone(), bytes, outcome });
                report.done.push((name, bytes, outcome));
            }
            Err(error) => {
                progress(Progress::Failed { name: name.clone(), error: Arc::clone(&error) });
                report.failed.push((name, error));
            }
        }
    }
    report.done.sort_by(|a, b| b.0.cmp(&a.0));
    report.failed.sort_by(|a, b| b.0.cmp(&a.0));
    Ok(report)
}

/// One snapshot, and what was at the target before.
struct Job {
    source: Store,
    target: Store,
    one: Stored,
    /// What it is to be at the target.
    form: Form,
    there: Option<Stored>,
    way: Way,
    large: Arc<Semaphore>,
    /// This process has copied it already.
    is_done: bool,
}

impl Job {
    /// What became of it; `None` where it is marked as not to be listed, which is seen when it is asked for.
    async fn run(self) -> inspect::Result<Option<Outcome>> {
        let Self { source, target, one, form, .. } = &self;
        let _permit = match one.bytes > store::PART_BYTES as u64 {
            true => Some(self.large.acquire().await.map_err(|_| inspect::Error::Stopped)?),
            false => None,
        };
        if let Some(there) = &self.there {
            if source.is_marked(one).await? {
                return Ok(None);
            }
            if self.is_done || self.is_whole(there).await? {
                return Ok(Some(Outcome::Present));
            }
            tracing::warn!(snapshot = %one.name, target = target.url(), "is not whole at the target and is copied again");
        }
        let opened = inspect::open(source, one).await?;
        if opened.is_marked() {
            return Ok(None);
        }
        let integrity = self.transfer(opened).await?;
        // As it was written, whatever the record says; the record says what was written, whatever is there.
        let written = target.written(&one.name, *form, integrity.bytes);
        // Neither is dropped because the other fails: an object without its record is worse than a bad one with it.
        let (recorded, same) = tokio::join!(
            target.record(&one.name, *form, &integrity),
            read_back(target, &written, &integrity)
        );
        recorded?;
        same?;
        Ok(Some(if self.there.is_some() { Outcome::Repaired } else { Outcome::Copied }))
    }

    /// Whether its bytes are others at the target.
    fn is_changed(&self) -> bool {
        self.way.adopts && (self.one.form, self.form) != (Form::Clear, Form::Clear)
    }

    /// Reads it to the end with all checks while it goes to the target; it appears there only after they have passed.
    async fn transfer(&self, opened: Opened) -> inspect::Result<Integrity> {
        let mode = if self.there.is_some() { Mode::Replace } else { Mode::Create };
        let mut upload = match self.is_changed() {
            true => self.target.upload(&self.one.name, mode).await?,
            false => self.target.upload_as_it_is(&self.one, mode).await?,
        };
        let passed = match self.is_changed() {
            true => inspect::pass_in_clear(opened, &self.one, &mut upload).await,
            false => inspect::pass_on(opened, &self.one, &mut upload).await,
        };
        match passed {
            Ok(()) => Ok(upload.finish().await?),
            Err(error) => {
                upload.abort().await;
                Err(error)
            }
        }
    }

    /// Whether what is at the target is what is at the source.
    async fn is_whole(&self, there: &Stored) -> inspect::Result<bool> {
        let Self { target, one, .. } = self;
        if there.bytes != one.bytes || !there.recorded {
            return Ok(false);
        }
        let recorded = match target.integrity(&one.name, one.form).await {
            Ok(Some(recorded)) => recorded,
            // A record that cannot be read proves nothing.
            Ok(None) | Err(store::Error::Record { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        if recorded.bytes != there.bytes || !self.agrees(&recorded).await? {
            return Ok(false);
        }
        if self.way.options.trust_target {
            return Ok(true);
        }
        match read_back(target, there, &recorded).await {
            Ok(()) => Ok(true),
            Err(error) if error.is_damage() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the source recorded the same, if it recorded anything.
    async fn agrees(&self, recorded: &Integrity) -> inspect::Result<bool> {
        if !self.one.recorded {
            return Ok(true);
        }
        let at_source = self.source.integrity(&self.one.name, self.one.form).await?;
        Ok(at_source.is_none_or(|at_source| at_source == *recorded))
    }
}
