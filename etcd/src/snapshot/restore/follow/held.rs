//! What a standby holds: an etcd, and how far it is.

use std::{
    fs::{self, File},
    path::PathBuf,
    sync::Arc,
    time::Instant,
};

use repot_etcd_core::snapshot::{Revision, SnapshotName};

use super::{
    Followed,
    engine::{Engine, MemberEtcd, Own},
    record::Record,
};
use crate::snapshot::{
    codec::{raise_revision, read_revisions},
    restore::{
        Error, Options, Result, at, fetch_base, fetch_delta,
        replay::{Replay, expect, plus},
        select::{self, Selection},
        tools::{Etcdutl, MemberIdentity},
        work::Work,
    },
    store::{Store, Stored},
    take,
};

/// After so many revisions the history of the private etcd is compacted: nobody reads it.
const COMPACT: i64 = 10_000;

/// An etcd that is at a revision of a store.
pub(super) struct Held {
    pub(super) base: SnapshotName,
    pub(super) history: String,
    pub(super) deltas: usize,
    /// Whether the store says that an owner's time ends at the revision that this holds.
    pub(super) ended: bool,
    /// Since when the store has something beyond that no delta leads to.
    pub(super) behind: Option<Instant>,
    etcd: Engine,
    /// How much further the etcd is than the snapshots.
    ahead: i64,
    replay: Replay,
    compacted: Revision,
    /// What is written down; `None` where it cannot be continued.
    record: Option<Record>,
}

impl Held {
    /// Restores the newest full snapshot into the working directory, and starts a private etcd on it.
    pub(super) async fn begin(
        (store, history): (&Store, &str),
        options: &Options,
        work: &Work,
        say: &(impl Fn(String) + Sync),
    ) -> Result<Self> {
        work.clear()?;
        let etcdutl = Etcdutl::find(&options.etcdutl).await?;
        let all = store.list().await?;
        let base = select::select(store, &all, &Selection::Newest)?.base;
        say(format!("reading {base}"));
        let stored = all.iter().find(|one| one.name == base).ok_or(Error::Stopped)?;
        let revisions = fetch_base(store, stored, &work.base()).await?;
        if revisions.current < base.last {
            return Err(Error::BaseRevision { name: base, found: revisions.current });
        }
        let identity = MemberIdentity { member: &options.member, bump: 0 };
        etcdutl.restore(&work.base(), &work.replay(), &identity).await?;
        fs::remove_file(work.base()).map_err(at(&work.base()))?;
        let record = Record::new((store.url(), history), &options.member, &base);
        let start = Start { base, history, reached: revisions.current, record };
        let mut held = Self::start(options, None, work, start).await?;
        held.write(work)?;
        Ok(held)
    }

    /// Continues from what an earlier process has left; `None` where it is not known to be whole.
    pub(super) async fn resume(
        (store, history): (&Store, &str),
        options: &Options,
        own: Own,
        work: &Work,
    ) -> Option<Self> {
        let (record, base) = Record::read(work.dir(), (store.url(), history), &options.member)?;
        let (reached, deltas) = (record.reached(), record.deltas);
        let own = match record.ahead {
            0 => None,
            _ if own.is_none() => return None,
            _ => own,
        };
        let start = Start { base, history, reached, record: Some(record) };
        let started = Self::start(options, own, work, start).await;
        match started {
            Ok(held) => Some(Self { deltas, ..held }),
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::info!(error, "the standby begins anew: what is on disk cannot be continued");
                None
            }
        }
    }

    async fn start(options: &Options, own: Own, work: &Work, start: Start<'_>) -> Result<Self> {
        let Start { base, history, reached, record } = start;
        let ahead = own.as_ref().map_or(0, |_| ahead(options));
        let mut etcd = Engine::start(own, options, work).await?;
        let outcome = async {
            let replay = Replay::begin_ahead(etcd.client(), reached, ahead, options.lease_ttl).await?;
            expect(etcd.client(), plus(reached, ahead), "the start").await?;
            Ok(replay)
        }
        .await;
        let replay = outcome.map_err(|error| etcd.died().unwrap_or(error))?;
        Ok(Self {
            base,
            history: history.to_owned(),
            deltas: 0,
            ended: false,
            behind: None,
            etcd,
            ahead,
            replay,
            compacted: reached,
            record,
        })
    }

    /// Whether a private etcd holds it.
    pub(super) fn is_private(&self) -> bool {
        matches!(self.etcd, Engine::Private(_))
    }

    /// Goes on with the member's own etcd, on the same data and with the revision raised.
    pub(super) async fn go_on_with(
        self,
        own: Arc<dyn MemberEtcd>,
        options: &Options,
        work: &Work,
    ) -> Result<Self> {
        let Self { base, history, deltas, ended, behind, etcd, replay, record, .. } = self;
        let reached = replay.at();
        drop(replay);
        // Until it is written down again, nobody continues from this.
        Record::forget(work.dir());
        if let Engine::Private(etcd) = etcd {
            etcd.end().await?;
        }
        let ahead = ahead(options);
        raise_by(work.replay(), reached, ahead).await?;
        let record = record.map(|mut record| {
            record.ahead = ahead;
            record
        });
        let start = Start { base, history: &history, reached, record };
        let mut held = Self { deltas, ended, behind, ..Self::start(options, Some(own), work, start).await? };
        held.write(work)?;
        Ok(held)
    }

    /// The revision that it holds.
    pub(super) fn reached(&self) -> Revision {
        self.replay.at()
    }

    /// Why the etcd is no longer there; `None` while it is.
    pub(super) fn died(&mut self) -> Option<Error> {
        self.etcd.died()
    }

    /// Applies a delta of the store. One that is damaged changes nothing.
    pub(super) async fn apply(&mut self, store: &Store, one: &Stored, work: &Work) -> Result<(), ApplyError> {
        let path = work.object(&one.name);
        // An attempt before may have left it.
        let _ = fs::remove_file(&path);
        fetch_delta(store, one, work, (0, &[])).await.map_err(ApplyError::Fetch)?;
        let applied = async {
            self.replay.apply(&path, &one.name).await?;
            expect(self.etcd.client(), plus(one.name.last, self.ahead), &one.name.to_string()).await?;
            self.deltas += 1;
            self.write(work)?;
            self.compact().await
        };
        let outcome = applied.await;
        fs::remove_file(&path).map_err(at(&path)).map_err(ApplyError::Etcd)?;
        outcome.map_err(|error| ApplyError::Etcd(self.died().unwrap_or(error)))
    }

    fn write(&mut self, work: &Work) -> Result<()> {
        let reached = self.reached();
        match &mut self.record {
            Some(record) => {
                record.deltas = self.deltas;
                record.write(work.dir(), reached)
            }
            None => Ok(()),
        }
    }

    async fn compact(&mut self) -> Result<()> {
        let reached = self.reached();
        if reached.0 - self.compacted.0 < COMPACT {
            return Ok(());
        }
        let revision = plus(reached, self.ahead).0;
        let compacted = self.etcd.client().kv_client().compact(revision, None).await;
        compacted.map_err(|source| Error::Etcd { task: "compact its history", source })?;
        self.compacted = reached;
        Ok(())
    }

    /// Lets the data directory appear, with the revision raised and all history before that marked as compacted. A private etcd is ended
    /// before; the member's own one runs on.
    pub(super) async fn finish(self, options: &Options, work: Work) -> Result<Followed> {
        let Self { base, deltas, etcd, ahead, replay, .. } = self;
        let revision = replay.at();
        expect(etcd.client(), plus(revision, ahead), "all deltas").await?;
        // With it ends what keeps leases alive.
        drop(replay);
        let data = work.replay();
        let bumped = Revision(revision.0.saturating_add_unsigned(options.bump_revision));
        let runs = match etcd {
            Engine::Private(etcd) => {
                etcd.end().await?;
                raise_by(data.clone(), revision, bumped.0 - revision.0).await?;
                false
            }
            Engine::Own(..) => true,
        };
        Work::finish_from(&data, &options.data_dir)?;
        work.remove();
        Ok(Followed { base, deltas, revision, bumped, runs })
    }
}

/// With what it starts.
struct Start<'a> {
    base: SnapshotName,
    history: &'a str,
    reached: Revision,
    record: Option<Record>,
}

/// The member's own etcd serves with the revision that it has, so that is raised before it starts. A private one is raised at its end.
fn ahead(options: &Options) -> i64 {
    i64::try_from(options.bump_revision).unwrap_or(i64::MAX)
}

/// A delta was not applied.
pub(super) enum ApplyError {
    /// It could not be had from the store. Nothing was changed.
    Fetch(Error),
    /// The etcd failed, or is not where it should be.
    Etcd(Error),
}

async fn raise_by(data: PathBuf, revision: Revision, more: i64) -> Result<()> {
    let raised = tokio::task::spawn_blocking(move || raise(&data, revision, plus(revision, more)));
    raised.await.map_err(|_| Error::Stopped)?
}

/// Raises the revision of a data directory that no etcd uses.
fn raise(data: &std::path::Path, revision: Revision, bumped: Revision) -> Result<()> {
    let path = data.join("member/snap/db");
    let file = File::options().read(true).write(true).open(&path).map_err(at(&path))?;
    let bytes = file.metadata().map_err(at(&path))?.len();
    let failed = |error| Error::Take(take::Error::Content(error));
    let found = read_revisions(&file, bytes).map_err(failed)?.current;
    if found != revision {
        return Err(Error::RevisionOff { after: "its end".to_owned(), expected: revision, found });
    }
    if bumped > revision {
        raise_revision(&file, bumped).map_err(failed)?;
    }
    Ok(())
}
