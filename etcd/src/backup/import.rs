//! The newest state of another store into a named backup.
//!
//! A store has snapshots that an agent took, and backups below it that were asked for. Of the current history and all backups the
//! newest counts, by when it was taken.

use jiff::Timestamp;
use repot_etcd_core::snapshot::{
    SnapshotName,
    chain::{self, Plan, PlanError},
};

use super::{
    Backups, Error, Result, clear,
    record::{self, BackupRecord, Verdict},
    take::{Asked, Filled, recorded},
};
use crate::snapshot::{
    copy,
    store::{self, Store, Stored},
};

/// Copies the newest state of another store into a backup, or does nothing where it is in the store already. The other store is
/// only read. That it cannot be opened is recorded like everything else that goes wrong.
///
/// # Guarantees
/// As [`super::take::take`]. Every snapshot is read with all checks on the way, and once more at the target. It rests there as what
/// the target takes itself: sealed with its keys where it has some, whatever it was at the source.
///
/// # Errors
/// [`Error`]; where the store can be written, the failure is recorded there too.
pub async fn import(
    backups: &Backups,
    asked: &Asked<'_>,
    source: impl FnOnce() -> store::Result<Store>,
    now: Timestamp,
) -> Result<BackupRecord> {
    recorded(backups, asked, now, async |target| fill(&source()?, &target).await).await
}

async fn fill(source: &Store, target: &Store) -> Result<Filled> {
    // What an attempt before this one has left may be newer by its name than what is the newest now.
    clear(target).await?;
    let State { store, plan, parts } = newest(source).await?;
    let wanted = parts.len();
    // Whoever restores from the target has the keys of the target.
    let report = copy::adopt(parts, &store, target).await?;
    if let Some((snapshot, source)) = report.failed.into_iter().next() {
        return Err(Error::Copy { snapshot, source });
    }
    if report.done.len() < wanted {
        return Err(Error::Vanished(store.url().to_owned()));
    }
    let bytes = target.list_quickly().await?.iter().map(|one| one.bytes).sum();
    Ok(Filled { revision: plan.reaches().0, bytes, snapshot: plan.base })
}

/// A state that can be restored.
struct State {
    store: Store,
    plan: Plan,
    /// The snapshots that make it up.
    parts: Vec<Stored>,
}

impl State {
    /// When it was taken, and how far it reaches.
    fn age(&self) -> (i64, i64) {
        let last = self.plan.deltas.last().unwrap_or(&self.plan.base);
        (last.created, self.plan.reaches().0)
    }
}

async fn newest(source: &Store) -> Result<State> {
    let mut newest = state(source.current().await?).await?;
    let backups = Backups::of(source);
    for name in backups.names().await? {
        if !is_good(&backups, &name).await? {
            continue;
        }
        let other = state(backups.store(&name)?).await?;
        if other.as_ref().map(State::age) > newest.as_ref().map(State::age) {
            newest = other;
        }
    }
    newest.ok_or_else(|| Error::Empty(source.url().to_owned()))
}

/// Whether a backup was stored, and nobody found it to be damaged.
async fn is_good(backups: &Backups, name: &str) -> Result<bool> {
    let taken = backups.taken(name).await?;
    if taken.is_none_or(|taken| taken.state != record::State::Stored) {
        return Ok(false);
    }
    Ok(!matches!(backups.verdict(name).await?, Some(Verdict::Corrupt(_))))
}

/// The newest state that the snapshots of one store make up; nothing where there are none.
async fn state(store: Store) -> Result<Option<State>> {
    let all = store.list().await?;
    let names: Vec<SnapshotName> = all.iter().map(|one| one.name.clone()).collect();
    let plan = match chain::plan(&names, None) {
        Ok(plan) => plan,
        Err(PlanError::NoFull) => return Ok(None),
        Err(source) => return Err(Error::Chain { store: store.url().to_owned(), source }),
    };
    let is_part = |one: &Stored| one.name == plan.base || plan.deltas.contains(&one.name);
    let parts = all.into_iter().filter(is_part).collect();
    Ok(Some(State { store, plan, parts }))
}
