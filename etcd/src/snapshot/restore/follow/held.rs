//! What a standby holds: a private etcd, and how far it is.

use std::{
    fs::{self, File},
    time::Instant,
};

use etcd_client::Client;
use repot_etcd_core::snapshot::{Revision, SnapshotName};

use super::{Followed, record::Record};
use crate::snapshot::{
    codec::{raise_revision, read_revisions},
    restore::{
        Error, Options, Result, at, fetch_base, fetch_delta, private,
        replay::{Replay, expect},
        select::{self, Selection},
        tools::{Etcdutl, MemberIdentity},
        work::Work,
    },
    store::{Store, Stored},
    take,
};

/// After so many revisions the history of the private etcd is compacted: nobody reads it.
const COMPACT: i64 = 10_000;

/// A private etcd that is at a revision of a store.
pub(super) struct Held {
    pub(super) base: SnapshotName,
    pub(super) history: String,
    pub(super) deltas: usize,
    /// Whether the store says that an owner's time ends at the revision that this holds.
    pub(super) ended: bool,
    /// Since when the store has something beyond that no delta leads to.
    pub(super) behind: Option<Instant>,
    etcd: private::Etcd,
    replay: Replay,
    compacted: Revision,
    /// What is written down; `None` where it cannot be continued.
    record: Option<Record>,
}

impl Held {
    /// Restores the newest full snapshot into the working directory, and starts the private etcd on it.
    pub(super) async fn begin(
        store: &Store,
        history: &str,
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
        let seat = MemberIdentity { member: &options.member, bump: 0 };
        etcdutl.restore(&work.base(), &work.replay(), &seat).await?;
        fs::remove_file(work.base()).map_err(at(&work.base()))?;
        let record = Record::new(store.url(), history, &options.member, &base);
        let mut held = Self::start(options, work, (base, history), revisions.current, record).await?;
        held.write(work)?;
        Ok(held)
    }

    /// Continues from what an earlier process has left; `None` where it is not known to be whole.
    pub(super) async fn resume(store: &Store, history: &str, options: &Options, work: &Work) -> Option<Self> {
        let (record, base) = Record::read(work.dir(), store.url(), history, &options.member)?;
        let (reached, deltas) = (record.reached(), record.deltas);
        let started = Self::start(options, work, (base, history), reached, Some(record)).await;
        match started {
            Ok(held) => Some(Self { deltas, ..held }),
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::info!(error, "the standby begins anew: what is on disk cannot be continued");
                None
            }
        }
    }

    async fn start(
        options: &Options,
        work: &Work,
        (base, history): (SnapshotName, &str),
        reached: Revision,
        record: Option<Record>,
    ) -> Result<Self> {
        let name = &options.member.name;
        let mut etcd = private::Etcd::start_as(&options.etcd, work.dir(), &work.replay(), name).await?;
        let outcome = async {
            let replay = Replay::begin(&etcd.client, reached, options.lease_ttl).await?;
            expect(&etcd.client, reached, "the start").await?;
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
            replay,
            compacted: reached,
            record,
        })
    }

    /// The revision that it holds.
    pub(super) fn reached(&self) -> Revision {
        self.replay.at()
    }

    /// Why the private etcd is no longer there; `None` while it is.
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
            expect(&self.etcd.client, one.name.last, &one.name.to_string()).await?;
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
        let client: &Client = &self.etcd.client;
        let compacted = client.kv_client().compact(reached.0, None).await;
        compacted.map_err(|source| Error::Etcd { task: "compact its history", source })?;
        self.compacted = reached;
        Ok(())
    }

    /// Ends the private etcd and lets the data directory appear, with the revision raised and all history marked as compacted.
    pub(super) async fn finish(self, options: &Options, work: Work) -> Result<Followed> {
        let Self { base, deltas, etcd, replay, .. } = self;
        let revision = replay.at();
        expect(&etcd.client, revision, "all deltas").await?;
        // With it ends what keeps leases alive.
        drop(replay);
        etcd.end().await?;
        let bumped = Revision(revision.0.saturating_add_unsigned(options.bump_revision));
        let data = work.replay();
        let raised = tokio::task::spawn_blocking(move || raise(&data, revision, bumped).map(|()| data));
        let data = raised.await.map_err(|_| Error::Stopped)??;
        Work::finish_from(&data, &options.data_dir)?;
        work.remove();
        Ok(Followed { base, deltas, revision, bumped })
    }
}

/// A delta was not applied.
pub(super) enum ApplyError {
    /// It could not be had from the store. Nothing was changed.
    Fetch(Error),
    /// The private etcd failed, or is not where it should be.
    Etcd(Error),
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
