//! From a live etcd into a store.
//!
//! The name of a full snapshot says the revision that is in it: the whole database is received first, its hash is checked, and its
//! revision is read out of it. That it holds everything that was written before is checked too, since a member answers from what
//! it has, and may be behind.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Read, Seek, Write},
    path::Path,
};

use bytes::Bytes;
use etcd_client::{Client, WatchOptions, WatchStream};
use jiff::Timestamp;
use repot_etcd_core::snapshot::{Compression, Kind, Revision, SnapshotName};
use tokio::task::spawn_blocking;

use super::{
    codec::{self, Encoder, Event, Revisions, Trailed, delta::DeltaWriter, feed, read_full},
    store::{self, Integrity, Mode, Store, Upload},
};

/// Why there is no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// etcd did not answer as it should.
    #[error("failed to {task}")]
    Etcd {
        /// What was asked of it.
        task: &'static str,
        /// Why.
        #[source]
        source: etcd_client::Error,
    },
    /// The member that was asked is behind.
    #[error(
        "the snapshot ends at revision {found}, though the cluster was at {asked} before: its member is behind"
    )]
    Stale {
        /// In the snapshot.
        found: Revision,
        /// Of the cluster.
        asked: Revision,
    },
    /// The events asked for are gone.
    #[error("events before revision {compacted} are compacted; a full snapshot is needed")]
    Compacted {
        /// The oldest revision that is left.
        compacted: Revision,
    },
    /// The watch ended.
    #[error("etcd ended the watch: {0}")]
    WatchEnded(String),
    /// What came is no snapshot.
    #[error("what etcd sent is no whole snapshot")]
    Content(#[source] codec::Error),
    /// There is no room to keep it.
    #[error("failed to make a scratch file in {path}")]
    Scratch {
        /// The directory.
        path: std::path::PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The process is about to end.
    #[error("broken off")]
    Stopped,
}

/// The result of this module's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// How much is compressed at once.
const BUFFER: usize = 256 << 10;

/// A snapshot that is in a store now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSnapshot {
    /// Name that the snapshot has in the store.
    pub name: SnapshotName,
    /// Its length and hash in the store.
    pub integrity: Integrity,
}

/// A database of a live etcd, in a file: checked, its hash behind it.
#[derive(Debug)]
pub struct Received {
    /// The file with the database and, behind it, its hash.
    pub file: File,
    /// What etcd will be at with it.
    pub revisions: Revisions,
}

/// Receives a snapshot of one member into a file, and checks that it is whole and holds everything written before this call.
///
/// # Errors
/// [`Error::Etcd`], [`Error::Content`], [`Error::Stale`].
pub async fn receive(client: &Client, mut file: File) -> Result<Received> {
    let asked = revision(client).await?;
    let mut maintenance = client.maintenance_client();
    let failed = |source| Error::Etcd { task: "take a snapshot", source };
    let mut stream = maintenance.snapshot().await.map_err(failed)?;
    let (feed, fed) = feed::feed();
    let worker = spawn_blocking(move || {
        let found = read_full(fed, Some(&mut file))?;
        Ok((file, found.revisions.unwrap_or_default()))
    });
    while let Some(piece) = stream.message().await.map_err(failed)? {
        // A worker that refused the bytes says why below.
        if !feed.send(Bytes::copy_from_slice(piece.blob())).await {
            break;
        }
    }
    feed.end().await;
    let (file, revisions) = worker.await.map_err(|_| Error::Stopped)?.map_err(Error::Content)?;
    if revisions.current < asked {
        return Err(Error::Stale { found: revisions.current, asked });
    }
    Ok(Received { file, revisions })
}

/// The revision of the cluster, by a linearizable read.
pub(super) async fn revision(client: &Client) -> Result<Revision> {
    let options = etcd_client::GetOptions::new().with_count_only();
    let answer = client.kv_client().get("revision", Some(options)).await;
    let answer = answer.map_err(|source| Error::Etcd { task: "ask for the revision", source })?;
    Ok(Revision(answer.header().map_or(0, etcd_client::ResponseHeader::revision)))
}

/// Takes a full snapshot; `scratch` is a directory with room for the database.
///
/// # Errors
/// [`Error`]. The store has nothing of it then.
pub async fn full(
    client: &Client,
    store: &Store,
    scratch: &Path,
    (compression, is_final): (Compression, bool),
    now: Timestamp,
) -> Result<StoredSnapshot> {
    let file = tempfile::tempfile_in(scratch)
        .map_err(|source| Error::Scratch { path: scratch.to_owned(), source })?;
    let received = receive(client, file).await?;
    let name = SnapshotName {
        kind: Kind::Full,
        start: Revision(0),
        last: received.revisions.current,
        created: now.as_second(),
        compression,
        is_final,
    };
    let mut upload = store.upload(&name, Mode::Create).await?;
    let (writer, mut pieces) = feed::writer();
    let worker = spawn_blocking(move || encode(received.file, compression, writer));
    while let Some(piece) = pieces.recv().await {
        if let Err(error) = upload.write(piece).await {
            upload.abort().await;
            return Err(error.into());
        }
    }
    if let Err(source) = worker.await.map_err(|_| Error::Stopped)? {
        upload.abort().await;
        return Err(Error::Content(source));
    }
    finish(store, name, upload).await
}

/// Compresses a database and its hash. The hash is checked once more on the way, so what a disk made of the file is not
/// uploaded as good.
fn encode(mut file: File, compression: Compression, writer: feed::Writer) -> Result<(), codec::Error> {
    file.rewind().map_err(codec::Error::Scratch)?;
    let mut encoder = Encoder::of_large(compression, writer)?;
    let mut content = Trailed::new(&file);
    let mut buffer = vec![0; BUFFER];
    loop {
        match content.read(&mut buffer).map_err(codec::Error::of)? {
            0 => break,
            count => encoder.write_all(&buffer[..count]).map_err(codec::Error::Read)?,
        }
    }
    let trailer = content.trailer().ok_or(codec::Error::NoTrailer)?;
    encoder.write_all(&trailer).map_err(codec::Error::Read)?;
    encoder.finish().and_then(|mut writer| writer.flush()).map_err(codec::Error::Read)
}

async fn finish(store: &Store, name: SnapshotName, upload: Upload) -> Result<StoredSnapshot> {
    let integrity = upload.finish().await?;
    store.record(&name, store.form(), &integrity).await?;
    Ok(StoredSnapshot { name, integrity })
}

/// A delta that grows, compressed, in memory. When it is saved is the caller's matter.
pub struct Draft {
    writer: DeltaWriter<Vec<u8>>,
    compression: Compression,
}

impl Draft {
    /// A delta of what comes after a revision.
    ///
    /// # Errors
    /// [`Error::Content`] for a compression that is only read.
    pub fn new(compression: Compression, after: Revision) -> Result<Self> {
        let writer = DeltaWriter::new(compression, after.next(), Vec::new()).map_err(Error::Content)?;
        Ok(Self { writer, compression })
    }

    /// Adds an event that was seen at a time.
    ///
    /// # Errors
    /// [`Error::Content`] where it does not follow on the one before.
    pub fn push(&mut self, event: &Event, seen: Timestamp) -> Result<()> {
        self.writer.push(event, seen).map_err(Error::Content)
    }

    /// Adds the first of these events, whole revisions until they have 256 KiB: whoever compresses more at once keeps others waiting,
    /// such as the one who renews a lease. `seen`: when they came.
    ///
    /// # Errors
    /// As [`Draft::push`].
    pub fn push_some(&mut self, events: &mut VecDeque<Event>, seen: Timestamp) -> Result<()> {
        let (mut bytes, mut revision) = (0, None);
        while let Some(event) = events.front() {
            if bytes >= PIECE && revision != Some(event.mod_revision) {
                return Ok(());
            }
            bytes += event.key.len() + event.value.len();
            revision = Some(event.mod_revision);
            self.push(event, seen)?;
            events.pop_front();
        }
        Ok(())
    }

    /// Its length so far, not compressed; for a limit.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.writer.bytes()
    }

    /// The revision of its last event; `None` while it is empty.
    #[must_use]
    pub fn last(&self) -> Option<Revision> {
        self.writer.last()
    }

    /// Writes it into a store.
    ///
    /// # Errors
    /// [`Error::Content`] when it is empty, [`Error::Store`].
    pub async fn save(self, store: &Store, now: Timestamp) -> Result<StoredSnapshot> {
        let (bytes, written) = self.writer.finish().map_err(Error::Content)?;
        let name = SnapshotName {
            kind: Kind::Delta,
            start: written.start,
            last: written.last,
            created: now.as_second(),
            compression: self.compression,
            is_final: false,
        };
        let mut upload = store.upload(&name, Mode::Create).await?;
        if let Err(error) = upload.write(bytes.into()).await {
            upload.abort().await;
            return Err(error.into());
        }
        finish(store, name, upload).await
    }
}

/// How much is compressed at once, in bytes: some milliseconds of work.
const PIECE: usize = 256 << 10;
/// The largest message of a watch. A fragment is about 2 MiB unless a single event is larger; but etcd does not split what it sends right
/// after it has announced the watch.
const MESSAGE_BYTES: usize = 1 << 30;

/// The events of an etcd after a revision.
pub struct Events {
    stream: WatchStream,
    /// Of a revision whose other events may come with the next fragment.
    held: Vec<Event>,
}

impl Events {
    /// Follows all keys. etcd may send a thousand revisions at once, which are hundreds of megabytes where values are large; so it is asked
    /// for fragments.
    ///
    /// # Errors
    /// [`Error::Etcd`].
    pub async fn after(client: &Client, revision: Revision) -> Result<Self> {
        let from = revision.next().0;
        let options = WatchOptions::new().with_all_keys().with_start_revision(from).with_fragment();
        let mut client = client.watch_client().max_decoding_message_size(MESSAGE_BYTES);
        let watched = client.watch("", Some(options)).await;
        let stream = watched.map_err(|source| Error::Etcd { task: "watch all keys", source })?;
        Ok(Self { stream, held: Vec::new() })
    }

    /// The next events: all of one or more revisions, never a part of one.
    ///
    /// # Errors
    /// [`Error::Compacted`], [`Error::WatchEnded`], [`Error::Etcd`]. The watch is over then.
    pub async fn next(&mut self) -> Result<Vec<Event>> {
        loop {
            let message = self.stream.message().await;
            let message = message.map_err(|source| Error::Etcd { task: "watch all keys", source })?;
            let message = message.ok_or_else(|| Error::WatchEnded("without a word".to_owned()))?;
            if message.compact_revision() > 0 {
                return Err(Error::Compacted { compacted: Revision(message.compact_revision()) });
            }
            if message.canceled() {
                return Err(Error::WatchEnded(message.cancel_reason().to_owned()));
            }
            if message.events().is_empty() {
                continue;
            }
            self.held.extend(message.events().iter().map(Event::from));
            let whole = take_whole(&mut self.held, message.0.fragment);
            if !whole.is_empty() {
                return Ok(whole);
            }
        }
    }
}

/// Takes the events that are complete. After a fragment with more to come, those of the last revision are not: it may end within a
/// transaction.
fn take_whole(held: &mut Vec<Event>, more_to_come: bool) -> Vec<Event> {
    let last = held.last().map(|event| event.mod_revision).filter(|_| more_to_come);
    let complete = held.partition_point(|event| last.is_none_or(|last| event.mod_revision < last));
    let rest = held.split_off(complete);
    std::mem::replace(held, rest)
}

#[cfg(test)]
mod tests {
    use crate::snapshot::codec::EventKind;

    use super::*;

    fn event(revision: i64, bytes: usize) -> Event {
        let revision = Revision(revision);
        Event {
            kind: EventKind::Put,
            key: format!("/{bytes}").into_bytes(),
            value: vec![7; bytes],
            create_revision: revision,
            mod_revision: revision,
            version: 1,
            lease: 0,
        }
    }

    #[test]
    fn a_revision_in_fragments_is_taken_as_a_whole() {
        let mut held = Vec::new();
        let mut taken = |revisions: &[i64], more_to_come| {
            held.extend(revisions.iter().map(|&at| event(at, 1)));
            let taken = take_whole(&mut held, more_to_come);
            taken.iter().map(|event| event.mod_revision.0).collect::<Vec<_>>()
        };
        assert_eq!(taken(&[2, 3, 3], true), [2]);
        assert_eq!(taken(&[3, 3], true), [0; 0]);
        assert_eq!(taken(&[3, 4], true), [3, 3, 3, 3, 3]);
        assert_eq!(taken(&[], true), [0; 0]);
        assert_eq!(taken(&[4, 5], false), [4, 4, 5]);
        assert_eq!(taken(&[6], false), [6]);
        assert_eq!(taken(&[], false), [0; 0]);
    }

    #[test]
    fn a_piece_ends_with_a_revision() {
        let events = [(2, PIECE / 2), (3, PIECE), (3, PIECE + 1), (3, 5), (4, 1), (5, PIECE)];
        let mut events: VecDeque<Event> = events.into_iter().map(|(at, bytes)| event(at, bytes)).collect();
        let mut draft = Draft::new(Compression::Gzip, Revision(1)).expect("a draft");
        let mut left = Vec::new();
        while !events.is_empty() {
            draft.push_some(&mut events, Timestamp::UNIX_EPOCH).expect("they follow on each other");
            left.push((draft.last().expect("an event").0, events.len()));
        }
        assert_eq!(left, [(3, 2), (5, 0)]);
    }
}
