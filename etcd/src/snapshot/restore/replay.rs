//! Events into the private etcd: one transaction for each revision, and the revision checked after each.

use std::{fs::File, io::BufReader, path::Path, time::Duration};

use etcd_client::{Client, CompactionOptions, KvClient, PutOptions, Txn, TxnOp};
use tokio::{sync::mpsc, task::spawn_blocking};

use super::{Error, Progress, Result, at, leases::Leases, private::Etcd, work::Work};
use crate::snapshot::{
    Revision, SnapshotName,
    codec::{self, Event, EventKind, Revisions, decoder, delta},
    inspect, take,
};

/// How many transactions are read ahead.
const AHEAD: usize = 64;

/// Applies deltas, and leaves a snapshot of the result in the working directory.
pub(super) async fn run(
    etcd: &Etcd,
    work: &Work,
    lease_ttl: Duration,
    (base, deltas): (Revision, &[&SnapshotName]),
    progress: &(impl Fn(Progress) + Sync),
) -> Result<Revisions> {
    let client = &etcd.client;
    let mut replay = Replay {
        kv: client.kv_client().max_decoding_message_size(usize::MAX),
        leases: Leases::keep(client, lease_ttl).await?,
        at: base,
    };
    expect(client, base, "the full snapshot").await?;
    progress(Progress::Replaying(base));
    for name in deltas {
        replay.apply(&work.object(name), name).await?;
        expect(client, name.last, &name.to_string()).await?;
        progress(Progress::Applied((*name).clone()));
    }
    let revisions = keep(client, &work.replayed(), replay.at).await?;
    // Leases are kept alive until here.
    drop(replay);
    Ok(revisions)
}

async fn expect(client: &Client, expected: Revision, after: &str) -> Result<()> {
    let found = take::revision(client).await.map_err(Error::Take)?;
    match found == expected {
        true => Ok(()),
        false => Err(Error::RevisionOff { after: after.to_owned(), expected, found }),
    }
}

struct Replay {
    kv: KvClient,
    leases: Leases,
    at: Revision,
}

impl Replay {
    async fn apply(&mut self, path: &Path, name: &SnapshotName) -> Result<()> {
        let file = File::open(path).map_err(at(path))?;
        let (sender, mut revisions) = mpsc::channel(AHEAD);
        let (known, own_name) = (self.at, name.clone());
        let reader = spawn_blocking(move || read(file, &own_name, known, sender));
        while let Some((revision, events)) = revisions.recv().await {
            self.commit(revision, events).await?;
        }
        let outcome = reader.await.map_err(|_| Error::Stopped)?;
        outcome.map_err(|source| inspect::Error::Content { place: path.display().to_string(), source })?;
        Ok(())
    }

    /// One revision.
    async fn commit(&mut self, revision: Revision, events: Vec<Event>) -> Result<()> {
        for event in &events {
            self.leases.ensure(event.lease).await?;
        }
        let operations: Vec<TxnOp> = events.into_iter().map(operation).collect();
        let answer = self.kv.txn(Txn::new().and_then(operations)).await;
        let answer = answer.map_err(|source| Error::Etcd { task: "apply a revision", source })?;
        let found = Revision(answer.header().map_or(0, etcd_client::ResponseHeader::revision));
        if found != revision {
            let after = format!("the events of revision {revision}");
            return Err(Error::RevisionOff { after, expected: revision, found });
        }
        self.at = revision;
        Ok(())
    }
}

fn operation(event: Event) -> TxnOp {
    match event.kind {
        EventKind::Put => TxnOp::put(event.key, event.value, Some(PutOptions::new().with_lease(event.lease))),
        EventKind::Delete => TxnOp::delete(event.key, None),
    }
}

/// Reads the events of a delta after a revision, those of one revision together.
fn read(
    file: File,
    name: &SnapshotName,
    known: Revision,
    out: mpsc::Sender<(Revision, Vec<Event>)>,
) -> Result<(), codec::Error> {
    let content = decoder(name.compression, BufReader::new(file));
    let mut group: Vec<Event> = Vec::new();
    // Nobody takes them any more when the replay has failed; it says why.
    let stopped = || codec::Error::Events("nobody reads on".to_owned());
    delta::read(content, (name.start, name.last), &[], |event| {
        if event.mod_revision <= known {
            return Ok(());
        }
        if let Some(first) = group.first()
            && first.mod_revision < event.mod_revision
        {
            let whole = (first.mod_revision, std::mem::take(&mut group));
            out.blocking_send(whole).map_err(|_| stopped())?;
        }
        group.push(event);
        Ok(())
    })?;
    match group.first().map(|first| first.mod_revision) {
        Some(revision) => out.blocking_send((revision, group)).map_err(|_| stopped()),
        None => Ok(()),
    }
}

/// Takes the history and the holes out of the database, and keeps a snapshot of it. The history is of no use: it is marked as
/// compacted in the end.
async fn keep(client: &Client, path: &Path, last: Revision) -> Result<Revisions> {
    let failed = |task| move |source| Error::Etcd { task, source };
    let physical = CompactionOptions::new().with_physical();
    let compacted = client.kv_client().compact(last.0, Some(physical)).await;
    compacted.map_err(failed("compact its history"))?;
    client.maintenance_client().defragment().await.map_err(failed("defragment its database"))?;
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
