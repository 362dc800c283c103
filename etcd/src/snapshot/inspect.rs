//! Reading one snapshot of a store to its end, with every check there is.

use std::{
    fs::File,
    io::{self, BufRead, Read, Write},
    ops::RangeInclusive,
    path::PathBuf,
};

use bytes::Bytes;
use futures::{StreamExt, stream::BoxStream};
use repot_etcd_core::snapshot::{Kind, Revision};
use repot_storage::stream;
use tokio::task::spawn_blocking;

use super::{
    codec::{
        self, Database, Event, decoder,
        delta::{self, Found},
        feed::{Writer, feed, writer},
        read_full,
    },
    store::{self, Integrity, Reading, SnapshotDecryption, Store, Stored, Upload},
};

/// Why a snapshot is not good, or could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// Its content is not as it has to be.
    #[error("{place} is damaged")]
    Content {
        /// Store and object.
        place: String,
        /// What is wrong.
        #[source]
        source: codec::Error,
    },
    /// It is sealed, and the keys do not open it.
    #[error("{place} cannot be opened")]
    Keys {
        /// Store and object.
        place: String,
        /// Why.
        #[source]
        source: stream::Error,
    },
    /// It is not what was recorded when it was written.
    #[error(
        "{place} is damaged: it has {found} bytes of SHA-256 {found_hash}, recorded were {recorded} bytes of {recorded_hash}"
    )]
    Recorded {
        /// Store and object.
        place: String,
        /// Length.
        found: u64,
        /// Hash.
        found_hash: String,
        /// Length when it was written.
        recorded: u64,
        /// Hash when it was written.
        recorded_hash: String,
    },
    /// The store gave another number of bytes than it had announced.
    #[error("{place} came with {found} bytes in place of {listed}")]
    Length {
        /// Store and object.
        place: String,
        /// What came.
        found: u64,
        /// What was announced.
        listed: u64,
    },
    /// There was no room for a closer look.
    #[error("failed to use the scratch directory {path}")]
    Scratch {
        /// The directory or file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The process is about to end.
    #[error("broken off")]
    Stopped,
}

impl Error {
    /// Whether the snapshot is to blame, and not the way to it.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Content { source, .. } => !matches!(source, codec::Error::Scratch(_)),
            Self::Recorded { .. } | Self::Store(store::Error::Record { .. }) => true,
            Self::Store(_)
            | Self::Keys { .. }
            | Self::Length { .. }
            | Self::Scratch { .. }
            | Self::Stopped => false,
        }
    }
}

/// The result of this module's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A snapshot that is about to be read, and what was recorded of it.
pub(super) struct Opened {
    reading: Reading,
    recorded: Option<Integrity>,
    /// What opens it, where it is sealed; an error where nothing does, for those who have to.
    opening: store::Result<Option<SnapshotDecryption>>,
    place: String,
    bytes: u64,
}

impl Opened {
    /// Whether other tools are told to leave it out.
    pub(super) fn is_marked(&self) -> bool {
        self.reading.marked
    }
}

/// Asks for a snapshot and for its record at the same time.
///
/// # Errors
/// [`Error::Store`].
pub(super) async fn open(store: &Store, snapshot: &Stored) -> Result<Opened> {
    let recorded = async {
        match snapshot.recorded {
            true => store.integrity(&snapshot.name, snapshot.form).await,
            false => Ok(None),
        }
    };
    let (recorded, reading) = tokio::try_join!(recorded, store.read(snapshot))?;
    let (opening, place) = (store.opening(snapshot).await, snapshot.place(store));
    Ok(Opened { reading, recorded, opening, place, bytes: snapshot.bytes })
}

/// A snapshot as its name says it is: still compressed, and opened where it was sealed.
pub(super) type Input = Box<dyn BufRead + Send>;

/// Reads a snapshot once: its bytes go to `work` (on a thread that may block), to `tee` where there is one, and through a hash
/// that is compared with what was recorded of it.
///
/// # Errors
/// [`Error`]; what was recorded is compared last, since it says least.
pub(super) async fn pass<T: Send + 'static>(
    opened: Opened,
    tee: Option<&mut Upload>,
    work: impl FnOnce(Input) -> Result<T, codec::Error> + Send + 'static,
) -> Result<(Integrity, T)> {
    let Opened { reading, recorded, opening, place, bytes: listed } = opened;
    let (opening, (feed, fed)) = (opening?, feed());
    let to_its_end = opening.is_some();
    let worker = spawn_blocking(move || match opening {
        None => work(Box::new(fed)),
        Some(opening) => work(Box::new(opening.open(fed)?)),
    });
    let found = match pump(reading.bytes, Some((&feed, to_its_end)), tee).await {
        Ok(found) => found,
        Err(error) => {
            drop(feed);
            // It ends because nothing comes any more, and has nothing to tell.
            let _ = worker.await;
            return Err(error);
        }
    };
    feed.end().await;
    let outcome = worker.await.map_err(|_| Error::Stopped)?;
    let value = match outcome {
        Ok(value) => value,
        Err(codec::Error::Sealed(source)) if !source.is_damage() => {
            // A key that was altered looks like a wrong one; what was recorded tells them apart.
            check(place.clone(), &found, listed, recorded.as_ref())?;
            return Err(Error::Keys { place, source });
        }
        Err(source) => return Err(Error::Content { place, source }),
    };
    check(place, &found, listed, recorded.as_ref())?;
    Ok((found, value))
}

/// Reads a snapshot once, and its bytes go to `tee`. They have to be the recorded ones: whoever recorded them had read the content
/// to its end. Where nothing was recorded, that is done here.
///
/// # Errors
/// [`Error`].
pub(super) async fn pass_on(opened: Opened, snapshot: &Stored, tee: &mut Upload) -> Result<()> {
    if opened.recorded.is_none() {
        let work = read_content(snapshot, Look::default());
        return pass(opened, Some(tee), work).await.map(drop);
    }
    let Opened { reading, recorded, place, bytes: listed, .. } = opened;
    let found = pump(reading.bytes, None, Some(tee)).await?;
    check(place, &found, listed, recorded.as_ref())
}

/// Reads a snapshot once with all checks, opens it where it is sealed, and writes it to `target` as its name says it is.
///
/// # Errors
/// [`Error`].
pub(super) async fn pass_in_clear(opened: Opened, snapshot: &Stored, target: &mut Upload) -> Result<()> {
    let (copy, mut pieces) = writer();
    let look = read_content(snapshot, Look::default());
    let read = pass(opened, None, move |input| look(Box::new(Tee { input, copy, copied: 0 })));
    let written = async move {
        while let Some(piece) = pieces.recv().await {
            target.write(piece).await?;
        }
        Ok(())
    };
    // Whichever fails first is the reason of what the other would tell.
    tokio::try_join!(read, written).map(drop)
}

/// Copies what is read.
struct Tee {
    input: Input,
    copy: Writer,
    /// So much of what comes next was copied already.
    copied: usize,
}

impl BufRead for Tee {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let Self { input, copy, copied } = self;
        let bytes = input.fill_buf()?;
        copy.write_all(&bytes[*copied..])?;
        *copied = bytes.len();
        Ok(bytes)
    }

    fn consume(&mut self, amount: usize) {
        self.input.consume(amount);
        self.copied -= amount;
    }
}

impl Read for Tee {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(out)?;
        self.consume(count);
        Ok(count)
    }
}

impl Drop for Tee {
    fn drop(&mut self) {
        // Where nobody receives any more, whoever did tells why.
        let _ = self.copy.flush();
    }
}

fn check(place: String, found: &Integrity, listed: u64, recorded: Option<&Integrity>) -> Result<()> {
    if found.bytes != listed {
        return Err(Error::Length { place, found: found.bytes, listed });
    }
    compare(place, found, recorded)
}

/// Reads a snapshot to its end for its hash alone, and compares that with what is expected.
///
/// # Errors
/// [`Error::Store`], [`Error::Recorded`].
pub(super) async fn read_back(store: &Store, snapshot: &Stored, expected: &Integrity) -> Result<()> {
    let found = pump(store.read(snapshot).await?.bytes, None, None).await?;
    compare(snapshot.place(store), &found, Some(expected))
}

fn compare(place: String, found: &Integrity, recorded: Option<&Integrity>) -> Result<()> {
    match recorded {
        Some(recorded) if recorded != found => Err(Error::Recorded {
            place,
            found: found.bytes,
            found_hash: found.sha256.clone(),
            recorded: recorded.bytes,
            recorded_hash: recorded.sha256.clone(),
        }),
        _ => Ok(()),
    }
}

/// Moves bytes until their end, or until the reader has seen enough to refuse them, unless they are to be moved to their end
/// whatever it says. Each is hashed once, by the upload where there is one.
async fn pump(
    mut stream: BoxStream<'static, store::Result<Bytes>>,
    mut feed: Option<(&codec::feed::Feed, bool)>,
    mut tee: Option<&mut Upload>,
) -> Result<Integrity> {
    let (mut bytes, mut hash) = (0, codec::Sha256::default());
    while let Some(piece) = stream.next().await {
        let piece = piece?;
        // First of all, so that another thread is at it meanwhile.
        if let Some((reader, to_its_end)) = feed
            && !reader.send(piece.clone()).await
        {
            if !to_its_end {
                break;
            }
            feed = None;
        }
        match tee.as_deref_mut() {
            Some(upload) => upload.write(piece).await?,
            None => {
                bytes += piece.len() as u64;
                hash.update(&piece);
            }
        }
    }
    Ok(tee.map_or_else(|| Integrity::new(bytes, hash.finish()), |upload| upload.integrity()))
}

/// What a snapshot was found to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A database.
    Full(Database),
    /// Events.
    Delta(Found),
}

/// What to do with the content while it is read.
#[derive(Debug, Default)]
pub struct Look {
    /// Where a full snapshot is kept, to learn its revision. Without it only its hash is checked.
    pub keep: Option<File>,
    /// Ranges of revisions whose events are to be hashed, for a delta.
    pub ranges: Vec<RangeInclusive<Revision>>,
}

/// Reads the content of a snapshot; the thread is blocked meanwhile.
pub(super) fn read_content(
    snapshot: &Stored,
    mut look: Look,
) -> impl FnOnce(Input) -> Result<Content, codec::Error> + Send + 'static {
    let name = snapshot.name.clone();
    move |fed| {
        let content = decoder(name.compression, fed);
        match name.kind {
            Kind::Full => read_full(content, look.keep.as_mut()).map(Content::Full),
            Kind::Delta => {
                let each = |_: Event| Ok(());
                delta::read(content, (name.start, name.last), &look.ranges, each).map(Content::Delta)
            }
        }
    }
}

/// Reads a snapshot to its end and tells what it holds.
///
/// # Errors
/// [`Error`]; [`Error::is_damage`] tells whose fault it is.
pub async fn inspect(store: &Store, snapshot: &Stored, look: Look) -> Result<(Integrity, Content)> {
    let work = read_content(snapshot, look);
    pass(open(store, snapshot).await?, None, work).await
}
