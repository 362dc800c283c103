//! Events into the private etcd: one transaction for each revision, and the revision checked after each.
//!
//! Each demands to find what those before it have done (`evidence.rs`), so that many can be sent at once (`queue.rs`).

use std::{
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use etcd_client::{Client, CompactionOptions, Compare, CompareOp, PutOptions, Txn, TxnOp};
use repot_etcd_core::snapshot::{Revision, SnapshotName};
use tokio::{runtime::Builder, sync::mpsc, task::spawn_blocking};
use tokio_util::sync::CancellationToken;

use super::{
    Error, Progress, Result, at,
    evidence::{Demand, Evidence},
    leases::Leases,
    private,
    queue::{Queue, Step},
    tools::{Etcdutl, MemberIdentity},
    work::Work,
};
use crate::snapshot::{
    codec::{self, Event, EventKind, Revisions, decoder, delta},
    inspect, take,
};

/// How many bunches of revisions are read ahead.
const AHEAD: usize = 2;
/// How many revisions are a bunch.
const BUNCH: usize = 64;
/// After so many bytes of keys and values a bunch takes no more.
const BUNCH_BYTES: usize = 4 << 20;
/// From this share of a database that is not in use it is worth writing it anew: one part in so many. What grew large in the
/// replay is in any case: it may come near to a quota, which counts what is not in use as well.
const HOLES: i64 = 4;
const LARGE: i64 = 512 << 20;

/// What is to be replayed, and by what.
pub(super) struct Job {
    pub(super) etcdutl: Etcdutl,
    pub(super) etcd: PathBuf,
    pub(super) work: Arc<Work>,
    pub(super) lease_ttl: Duration,
    /// The revision of the full snapshot.
    pub(super) base: Revision,
    pub(super) deltas: Vec<SnapshotName>,
}

/// Applies deltas, and leaves a snapshot of the result in the working directory. All of it is done by one thread: most of what a
/// small transaction costs is to wake up whoever is next.
pub(super) async fn on_its_own(job: Job, progress: &(impl Fn(Progress) + Sync)) -> Result<Revisions> {
    let stop = CancellationToken::new();
    // When nobody waits any more, it ends.
    let _guard = stop.clone().drop_guard();
    let (told, mut news) = mpsc::unbounded_channel();
    let thread = spawn_blocking(move || {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(Error::Thread)?;
        let outcome = runtime.block_on(stop.run_until_cancelled(job.run(told)));
        outcome.unwrap_or(Err(Error::Stopped))
    });
    while let Some(one) = news.recv().await {
        progress(one);
    }
    thread.await.map_err(|_| Error::Stopped)?
}

impl Job {
    async fn run(self, told: mpsc::UnboundedSender<Progress>) -> Result<Revisions> {
        let own = private::member();
        let identity = MemberIdentity { member: &own, bump: 0 };
        self.etcdutl.restore(&self.work.base(), &self.work.replay(), &identity).await?;
        let mut etcd = private::Etcd::start(&self.etcd, self.work.dir(), &self.work.replay()).await?;
        let outcome = self.replay(&etcd.client, &told).await;
        // Why it died explains more than what failed for it.
        if let Some(error) = etcd.died() {
            return Err(error);
        }
        let revisions = outcome?;
        etcd.stop().await?;
        Ok(revisions)
    }

    async fn replay(&self, client: &Client, told: &mpsc::UnboundedSender<Progress>) -> Result<Revisions> {
        // Nobody listens only when nobody waits for the outcome either.
        let tell = |progress| drop(told.send(progress));
        let mut replay = Replay::begin(client, self.base, self.lease_ttl).await?;
        expect(client, self.base, "the full snapshot").await?;
        tell(Progress::Replaying(self.base));
        for name in &self.deltas {
            replay.apply(&self.work.object(name), name).await?;
            expect(client, name.last, &name.to_string()).await?;
            tell(Progress::Applied(name.clone()));
        }
        // Leases are kept alive until this is done.
        keep(client, &self.work.replayed(), replay.queue.at()).await
    }
}

pub(super) async fn expect(client: &Client, expected: Revision, after: &str) -> Result<()> {
    let found = take::revision(client).await.map_err(Error::Take)?;
    match found == expected {
        true => Ok(()),
        false => Err(Error::RevisionOff { after: after.to_owned(), expected, found }),
    }
}

/// Applies deltas to a private etcd, one after the other.
pub(super) struct Replay {
    queue: Queue,
    leases: Leases,
    evidence: Evidence,
    /// How much further the private etcd is than the events say.
    ahead: i64,
}

impl Replay {
    /// On an etcd that is at this revision. Its leases are kept alive until this is dropped.
    pub(super) async fn begin(client: &Client, revision: Revision, lease_ttl: Duration) -> Result<Self> {
        Self::begin_ahead(client, revision, 0, lease_ttl).await
    }

    /// On an etcd that holds what a history holds at this revision, and whose own revision is `ahead` of that.
    pub(super) async fn begin_ahead(
        client: &Client,
        revision: Revision,
        ahead: i64,
        lease_ttl: Duration,
    ) -> Result<Self> {
        let kv = client.kv_client().max_decoding_message_size(usize::MAX);
        let leases = Leases::keep(client, lease_ttl).await?;
        let queue = Queue::new(kv, plus(revision, ahead));
        Ok(Self { queue, leases, evidence: Evidence::default(), ahead })
    }

    /// The last revision of the events that is known to be there.
    pub(super) fn at(&self) -> Revision {
        plus(self.queue.at(), -self.ahead)
    }

    /// Applies what a file with a delta has beyond that revision.
    pub(super) async fn apply(&mut self, path: &Path, name: &SnapshotName) -> Result<()> {
        let file = File::open(path).map_err(at(path))?;
        let (sender, mut revisions) = mpsc::channel(AHEAD);
        let (known, own_name) = (self.at(), name.clone());
        let reader = spawn_blocking(move || read(file, &own_name, known, sender));
        while let Some(bunch) = revisions.recv().await {
            for events in bunch {
                self.send(events).await?;
            }
        }
        self.queue.drain().await?;
        let outcome = reader.await.map_err(|_| Error::Stopped)?;
        outcome.map_err(|source| inspect::Error::Content { place: path.display().to_string(), source })?;
        Ok(())
    }

    /// The events of one revision.
    async fn send(&mut self, mut events: Vec<Event>) -> Result<()> {
        for event in &mut events {
            event.mod_revision = plus(event.mod_revision, self.ahead);
        }
        let Some(revision) = events.last().map(|last| last.mod_revision) else { return Ok(()) };
        for event in &events {
            self.leases.ensure(event.lease).await?;
        }
        let demands = self.evidence.demands();
        self.evidence.add(&events);
        if demands.is_none() {
            self.queue.drain().await?;
        }
        let compares: Vec<Compare> = demands.into_iter().flatten().map(compare).collect();
        let bytes = events.iter().map(|event| event.key.len() + event.value.len()).sum();
        let operations: Vec<TxnOp> = events.into_iter().map(operation).collect();
        self.queue.push(Step { revision, bytes, txn: Txn::new().when(compares).and_then(operations) }).await
    }
}

pub(super) fn plus(revision: Revision, more: i64) -> Revision {
    Revision(revision.0.saturating_add(more))
}

fn compare(demand: Demand) -> Compare {
    match demand {
        Demand::Written(key, revision) => Compare::mod_revision(key, CompareOp::Equal, revision.0),
        Demand::Absent(key) => Compare::version(key, CompareOp::Equal, 0),
    }
}

fn operation(event: Event) -> TxnOp {
    match event.kind {
        EventKind::Put => TxnOp::put(event.key, event.value, Some(PutOptions::new().with_lease(event.lease))),
        EventKind::Delete => TxnOp::delete(event.key, None),
    }
}

/// Reads the events of a delta after a revision, those of one revision together, and some revisions at a time.
fn read(
    file: File,
    name: &SnapshotName,
    known: Revision,
    out: mpsc::Sender<Vec<Vec<Event>>>,
) -> Result<(), codec::Error> {
    let content = decoder(name.compression, BufReader::new(file));
    let mut bunch = Bunch { out, revisions: Vec::new(), bytes: 0 };
    delta::read(content, (name.start, name.last), &[], |event| match event.mod_revision <= known {
        true => Ok(()),
        false => bunch.add(event),
    })?;
    bunch.send()
}

/// Revisions that are handed on together: a thread that is woken up for each of them does little else.
struct Bunch {
    out: mpsc::Sender<Vec<Vec<Event>>>,
    revisions: Vec<Vec<Event>>,
    bytes: usize,
}

impl Bunch {
    fn add(&mut self, event: Event) -> Result<(), codec::Error> {
        let bytes = event.key.len() + event.value.len();
        let last = self.revisions.last_mut();
        match last.filter(|events| events.iter().any(|other| other.mod_revision == event.mod_revision)) {
            Some(events) => events.push(event),
            None => {
                if self.revisions.len() >= BUNCH || self.bytes >= BUNCH_BYTES {
                    self.send()?;
                }
                self.revisions.push(vec![event]);
            }
        }
        self.bytes += bytes;
        Ok(())
    }

    fn send(&mut self) -> Result<(), codec::Error> {
        self.bytes = 0;
        let sent = self.out.blocking_send(std::mem::take(&mut self.revisions));
        // Nobody takes them any more when the replay has failed; it says why.
        sent.map_err(|_| codec::Error::Events("nobody reads on".to_owned()))
    }
}

/// Takes the history and most holes out of the database, and keeps a snapshot of it. The history is of no use: it is marked as
/// compacted in the end.
async fn keep(client: &Client, path: &Path, last: Revision) -> Result<Revisions> {
    let failed = |task| move |source| Error::Etcd { task, source };
    let physical = CompactionOptions::new().with_physical();
    let compacted = client.kv_client().compact(last.0, Some(physical)).await;
    compacted.map_err(failed("compact its history"))?;
    let mut maintenance = client.maintenance_client();
    let status = maintenance.status().await.map_err(failed("tell the size of its database"))?;
    // Of the database, not of raft, whatever the library calls it.
    let used = status.raft_used_db_size();
    let size = status.db_size();
    if size >= LARGE || size.saturating_sub(used) >= size / HOLES {
        maintenance.defragment().await.map_err(failed("defragment its database"))?;
    }
    let file = File::options().create_new(true).read(true).write(true).open(path).map_err(at(path))?;
    let received = take::receive(client, file).await.map_err(Error::Take)?;
    received.file.sync_all().map_err(at(path))?;
    match received.revisions.current == last {
        true => Ok(received.revisions),
        false => Err(Error::RevisionOff {
            after: "all events".to_owned(),
            expected: last,
            found: received.revisions.current,
        }),
    }
}
