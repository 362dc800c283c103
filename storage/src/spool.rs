//! Bytes that wait on a disk until there is room for them in memory: sealed under a key that only this process has and only as
//! long as they wait, in a file without a name. After a crash nothing of them can be found, let alone read.
//!
//! ```text
//! piece 0, piece 1, …   each: nonce (12) ++ AES-256-GCM of up to 256 KiB ++ tag (16); all but the last are full
//! ```
//!
//! The associated data of a piece is its number; how long the whole is, is kept in memory. So no piece can be altered, moved or
//! left out unnoticed.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;

use crate::seal::{Cipher, DataKey, NONCE, Refused, TAG};

/// Bytes of a full piece. As much stays in memory before there is a file at all.
pub const PIECE: usize = 256 << 10;
/// A full piece in the file.
const SEALED: usize = NONCE + PIECE + TAG;

/// Why bytes cannot wait here, or cannot be had back. The directory is named; what the bytes are is not.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing more fits.
    #[error("{} has no space left", .0.display())]
    Full(PathBuf),
    /// The file system fails.
    #[error("{}: {source}", .dir.display())]
    Io {
        /// Where.
        dir: PathBuf,
        /// How.
        source: io::Error,
    },
    /// What is in the file is not what was written there.
    #[error("a file in {} was altered", .0.display())]
    Altered(PathBuf),
    /// The cipher or the random generator refused to work.
    #[error("the cipher or the random generator refused to work")]
    Cipher,
    /// Work on the file was cut short.
    #[error("work on a file was cut short")]
    CutShort,
}

/// The result of a call to the spool.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A directory in which bytes may wait. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Spool {
    place: Arc<SpoolDir>,
}

#[derive(Debug)]
struct SpoolDir {
    dir: PathBuf,
    min_free: u64,
}

impl Spool {
    /// In this directory, which must exist. With less than `min_free` bytes free on its file system it counts as full, so that
    /// what waits does not take the place of what rests.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>, min_free: u64) -> Self {
        Self { place: Arc::new(SpoolDir { dir: dir.into(), min_free }) }
    }

    /// The directory in which bytes wait, as given to [`Spool::new`].
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.place.dir
    }

    /// Begins to take bytes.
    #[must_use]
    pub fn writer(&self) -> Writer {
        Writer { place: Arc::clone(&self.place), open: None, buffer: empty(), len: 0, pieces: 0 }
    }

    /// Sees whether a file can be made, written and read.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Full`].
    pub async fn probe(&self) -> Result<()> {
        let mut writer = self.writer();
        writer.push(&[0; PIECE + 1]).await?;
        writer.finish().await?.read().await.map(drop)
    }
}

impl SpoolDir {
    fn failed(&self, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::Full(self.dir.clone()),
            _ => Error::Io { dir: self.dir.clone(), source },
        }
    }

    fn expect_space(&self) -> Result<()> {
        if self.min_free == 0 {
            return Ok(());
        }
        let stat = rustix::fs::statvfs(&self.dir).map_err(|error| self.failed(error.into()))?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        if free < self.min_free { Err(Error::Full(self.dir.clone())) } else { Ok(()) }
    }
}

/// A file and the key of what is in it.
struct Open {
    file: File,
    cipher: Cipher,
}

/// Takes bytes as they come.
pub struct Writer {
    place: Arc<SpoolDir>,
    open: Option<Arc<Open>>,
    /// Room for a nonce, and then bytes that are not written yet: less than a piece.
    buffer: Vec<u8>,
    len: u64,
    pieces: u64,
}

impl Writer {
    /// Takes more bytes. Holds no more than a piece of them in memory.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Io`], [`Error::Cipher`]; what was taken before is then lost.
    pub async fn push(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.len += bytes.len() as u64;
        while !bytes.is_empty() {
            // A full piece is written when more comes, so that what fits into one never gets a file.
            if self.buffer.len() == NONCE + PIECE {
                self.write().await?;
            }
            let (now, later) = bytes.split_at(bytes.len().min(NONCE + PIECE - self.buffer.len()));
            self.buffer.extend_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    /// Bytes that were taken.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether no bytes were taken so far.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// That is all.
    ///
    /// # Errors
    /// As [`Writer::push`].
    pub async fn finish(mut self) -> Result<Spooled> {
        if self.open.is_none() {
            return Ok(Spooled(Kept::Memory(Bytes::from(self.buffer).slice(NONCE..))));
        }
        if self.buffer.len() > NONCE {
            self.write().await?;
        }
        let Self { place, open, len, .. } = self;
        let open = open.ok_or(Error::CutShort)?;
        Ok(Spooled(Kept::File(Waiting { place, open, len })))
    }

    async fn write(&mut self) -> Result<()> {
        let (place, open, number) = (Arc::clone(&self.place), self.open.take(), self.pieces);
        let mut buffer = std::mem::take(&mut self.buffer);
        let (open, buffer) = blocking(move || {
            place.expect_space()?;
            let open = match open {
                Some(open) => open,
                None => Arc::new(Open::new(&place)?),
            };
            open.cipher.seal(0, &number.to_be_bytes(), &mut buffer).map_err(|Refused| Error::Cipher)?;
            let written = open.file.write_all_at(&buffer, number * SEALED as u64);
            written.map_err(|error| place.failed(error))?;
            buffer.truncate(NONCE);
            Ok((open, buffer))
        })
        .await?;
        (self.open, self.buffer) = (Some(open), buffer);
        self.pieces += 1;
        Ok(())
    }
}

impl Open {
    fn new(place: &SpoolDir) -> Result<Self> {
        // Without a name from the first moment where the file system can do that, else from the second.
        let file = tempfile::tempfile_in(&place.dir).map_err(|error| place.failed(error))?;
        let key = DataKey::random().map_err(|Refused| Error::Cipher)?;
        Ok(Self { file, cipher: key.cipher().map_err(|Refused| Error::Cipher)? })
    }
}

/// Bytes that wait. Dropped, they are gone.
pub struct Spooled(Kept);

enum Kept {
    Memory(Bytes),
    File(Waiting),
}

struct Waiting {
    place: Arc<SpoolDir>,
    open: Arc<Open>,
    len: u64,
}

impl Spooled {
    /// Number of bytes that were taken.
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.0 {
            Kept::Memory(bytes) => bytes.len() as u64,
            Kept::File(waiting) => waiting.len,
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether they are in memory, being too few for a file.
    #[must_use]
    pub fn in_memory(&self) -> bool {
        matches!(self.0, Kept::Memory(_))
    }

    /// All of them, in one allocation.
    ///
    /// # Errors
    /// [`Error::Altered`], [`Error::Io`].
    pub async fn read(self) -> Result<Bytes> {
        match self.0 {
            Kept::Memory(bytes) => Ok(bytes),
            Kept::File(waiting) => blocking(move || waiting.read()).await,
        }
    }
}

impl Waiting {
    fn read(&self) -> Result<Bytes> {
        let altered = || Error::Altered(self.place.dir.clone());
        let len = usize::try_from(self.len).map_err(|_| altered())?;
        let mut whole = Vec::with_capacity(len);
        let mut piece = vec![0; SEALED];
        for number in 0.. {
            let left = len - whole.len();
            if left == 0 {
                break;
            }
            piece.resize(NONCE + left.min(PIECE) + TAG, 0);
            let read = self.open.file.read_exact_at(&mut piece, number * SEALED as u64);
            read.map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => altered(),
                _ => self.place.failed(error),
            })?;
            let opened = self.open.cipher.open(&number.to_be_bytes(), &mut piece);
            whole.extend_from_slice(&piece[opened.map_err(|Refused| altered())?]);
        }
        Ok(whole.into())
    }
}

fn empty() -> Vec<u8> {
    vec![0; NONCE]
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(Error::CutShort))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"nobody may read this on a disk";

    fn text(len: usize) -> Vec<u8> {
        SECRET.iter().copied().cycle().take(len).collect()
    }

    async fn spooled(spool: &Spool, text: &[u8], step: usize) -> Spooled {
        let mut writer = spool.writer();
        for part in text.chunks(step) {
            writer.push(part).await.unwrap();
        }
        assert_eq!(writer.len(), text.len() as u64);
        writer.finish().await.unwrap()
    }

    /// What is in the file.
    fn file(spooled: &Spooled) -> &File {
        let Kept::File(waiting) = &spooled.0 else { panic!("no file") };
        &waiting.open.file
    }

    fn bytes(file: &File) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    #[tokio::test]
    async fn gives_back_what_it_took() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::new(dir.path(), 0);
        for len in [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 3 * PIECE + 17] {
            for step in [1000, PIECE, 2 * PIECE + 3] {
                let kept = spooled(&spool, &text(len), step).await;
                assert_eq!(kept.len(), len as u64);
                assert_eq!(kept.in_memory(), len <= PIECE, "{len} bytes");
                assert_eq!(kept.read().await.unwrap(), text(len), "{len} bytes by {step}");
            }
        }
        spool.probe().await.unwrap();
    }

    #[tokio::test]
    async fn neither_a_name_nor_a_readable_byte_is_on_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let kept = spooled(&Spool::new(dir.path(), 0), &text(2 * PIECE + 5), 7000).await;
        let on_disk = bytes(file(&kept));
        assert!(on_disk.len() > 2 * PIECE + 5);
        for part in SECRET.windows(6) {
            assert!(!on_disk.windows(6).any(|here| here == part), "{}", String::from_utf8_lossy(part));
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the file has a name");
    }

    #[tokio::test]
    async fn notices_what_was_altered_moved_or_cut() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::new(dir.path(), 0);
        let alter = |file: &File, kind: &str| match kind {
            // Flipped, not replaced: a fixed byte would be the sealed one, once in 256 runs.
            "altered" => {
                let at = SEALED + 100;
                file.write_all_at(&[bytes(file)[at] ^ 1], at as u64).unwrap();
            }
            "cut" => file.set_len(2 * SEALED as u64 + 10).unwrap(),
            _ => {
                let all = bytes(file);
                file.write_all_at(&all[SEALED..2 * SEALED], 0).unwrap();
                file.write_all_at(&all[..SEALED], SEALED as u64).unwrap();
            }
        };
        for kind in ["altered", "cut", "moved"] {
            let kept = spooled(&spool, &text(2 * PIECE + 500), PIECE).await;
            alter(file(&kept), kind);
            assert!(matches!(kept.read().await, Err(Error::Altered(_))), "{kind}");
        }
    }

    #[tokio::test]
    async fn says_what_is_full_and_what_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let full = Spool::new(dir.path(), u64::MAX).probe().await.unwrap_err();
        assert!(matches!(full, Error::Full(_)) && full.to_string().contains(dir.path().to_str().unwrap()));
        let missing = Spool::new(dir.path().join("missing"), 0).probe().await.unwrap_err();
        assert!(matches!(missing, Error::Io { .. }) && missing.to_string().contains("missing"), "{missing}");
    }
}
