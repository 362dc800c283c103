//! Writing objects: whole or not at all, whatever the kind of store.

use std::{
    path::{Path as FilePath, PathBuf},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use object_store::{
    MultipartUpload, ObjectStore as _, ObjectStoreExt, PutMode, PutOptions, PutPayload, path::Path,
};
use rustix::fs::{FlockOperation, flock};
use tokio::{
    fs,
    io::AsyncWriteExt,
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{Error, Failure, Integrity, Result, Store};
use crate::snapshot::codec::Sha256;

/// Length of a part: with the 10000 parts that S3 takes, 78 GiB.
const PART_BYTES: usize = 8 << 20;
/// How many parts are on their way at once.
const PARTS: usize = 4;
/// Before a write that may not be repeated blindly is tried again.
const AGAIN: Duration = Duration::from_millis(300);
const PARTIAL: &str = "partial";

/// What is to become of an object of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It is left as it is, and writing fails.
    Create,
    /// It is replaced.
    Replace,
}

/// An object that is being written. It appears with [`Upload::finish`]; before that, and when it is dropped, it is not there.
///
/// With [`Mode::Create`], an object of several parts is looked for before the first part is sent, not once more at the end: no store
/// offers that for all of them. Names hold a time and revisions, so two writers meet there only by writing the same.
#[derive(Debug)]
pub struct Upload {
    target: Target,
    hash: Sha256,
    bytes: u64,
}

#[derive(Debug)]
enum Target {
    Remote(Box<Remote>),
    File(Box<PartialFile>),
}

impl Upload {
    pub(super) async fn begin(store: &Store, path: Path, mode: Mode) -> Result<Self> {
        let target = match &store.directory {
            Some(directory) => {
                Target::File(Box::new(PartialFile::open(directory, &store.prefix, &path, mode).await?))
            }
            None => Target::Remote(Box::new(Remote {
                store: store.clone(),
                path,
                mode,
                buffer: BytesMut::new(),
                parts: None,
            })),
        };
        Ok(Self { target, hash: Sha256::default(), bytes: 0 })
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Write`], [`Error::File`].
    pub async fn write(&mut self, bytes: Bytes) -> Result<()> {
        self.hash.update(&bytes);
        self.bytes += bytes.len() as u64;
        match &mut self.target {
            Target::Remote(remote) => remote.write(&bytes).await,
            Target::File(file) => file.write(&bytes).await,
        }
    }

    /// What was written so far.
    #[must_use]
    pub fn integrity(&self) -> Integrity {
        Integrity::new(self.bytes, self.hash.clone().finish())
    }

    /// Lets it appear.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Write`], [`Error::File`].
    pub async fn finish(self) -> Result<Integrity> {
        let integrity = self.integrity();
        match self.target {
            Target::Remote(remote) => remote.finish().await?,
            Target::File(file) => file.finish().await?,
        }
        Ok(integrity)
    }

    /// Takes back what was sent. Without it, a store keeps parts until its own rules remove them.
    pub async fn abort(self) {
        match self.target {
            Target::Remote(remote) => remote.abort().await,
            Target::File(file) => file.abort().await,
        }
    }
}

/// Writes a small object in place of whatever is there.
pub(super) async fn small(store: &Store, path: Path, bytes: Bytes) -> Result<()> {
    let mut upload = Upload::begin(store, path, Mode::Replace).await?;
    upload.write(bytes).await?;
    upload.finish().await.map(drop)
}

struct Parts {
    upload: Box<dyn MultipartUpload>,
    running: JoinSet<object_store::Result<()>>,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Remote {
    store: Store,
    path: Path,
    mode: Mode,
    buffer: BytesMut,
    /// Once there is more than one part.
    parts: Option<Parts>,
}

impl Remote {
    fn failed(&self, source: object_store::Error) -> Error {
        let place = self.store.place(&self.path);
        match source {
            object_store::Error::AlreadyExists { .. } => Error::Exists { place },
            source => Error::Write { place, source: source.into() },
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(bytes);
        while self.buffer.len() > PART_BYTES {
            let part = self.buffer.split_to(PART_BYTES).freeze();
            if let Err(source) = self.send(part).await {
                return Err(self.failed(source));
            }
        }
        Ok(())
    }

    async fn send(&mut self, part: Bytes) -> object_store::Result<()> {
        if self.parts.is_none() {
            if self.mode == Mode::Create && self.exists().await? {
                let path = self.path.to_string();
                return Err(object_store::Error::AlreadyExists { path, source: "it is there".into() });
            }
            let upload = self.store.objects.put_multipart(&self.path).await?;
            self.parts = Some(Parts { upload, running: JoinSet::new() });
        }
        let Some(parts) = &mut self.parts else { return Ok(()) };
        if parts.running.len() >= PARTS {
            parts.next().await?;
        }
        parts.running.spawn(parts.upload.put_part(PutPayload::from_bytes(part)));
        Ok(())
    }

    // By `&mut`, as is all that waits: parts may be sent to another thread, but not shared with one.
    async fn exists(&mut self) -> object_store::Result<bool> {
        match self.store.objects.head(&self.path).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn finish(mut self) -> Result<()> {
        let last = self.buffer.split().freeze();
        let outcome = match self.parts.is_some() {
            true => self.finish_parts(last).await,
            false => self.put_whole(last).await,
        };
        if let Err(source) = outcome {
            let error = self.failed(source);
            self.abort().await;
            return Err(error);
        }
        Ok(())
    }

    async fn put_whole(&mut self, bytes: Bytes) -> object_store::Result<()> {
        let payload = PutPayload::from_bytes(bytes.clone());
        if self.mode == Mode::Replace {
            return self.store.objects.put(&self.path, payload).await.map(drop);
        }
        let end = Instant::now() + self.store.patience;
        loop {
            let options = PutOptions::from(PutMode::Create);
            match self.store.objects.put_opts(&self.path, payload.clone(), options).await {
                Ok(_) => return Ok(()),
                // The answer to an earlier try may have been lost on the way: then what is there is what was sent.
                Err(object_store::Error::AlreadyExists { .. }) if self.holds(&bytes).await? => return Ok(()),
                // The library repeats only what may be done twice.
                Err(error @ object_store::Error::Generic { .. }) if Instant::now() < end => {
                    tracing::warn!(place = self.store.place(&self.path), error = %Failure::from(error), "trying again to write it");
                    sleep(AGAIN).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn holds(&mut self, bytes: &Bytes) -> object_store::Result<bool> {
        Ok(self.store.objects.get(&self.path).await?.bytes().await? == *bytes)
    }

    async fn finish_parts(&mut self, last: Bytes) -> object_store::Result<()> {
        self.send(last).await?;
        let Some(parts) = &mut self.parts else { return Ok(()) };
        while !parts.running.is_empty() {
            parts.next().await?;
        }
        parts.upload.complete().await.map(drop)
    }

    async fn abort(mut self) {
        let Some(mut parts) = self.parts.take() else { return };
        parts.running.shutdown().await;
        if let Err(error) = parts.upload.abort().await {
            tracing::warn!(error = %Failure::from(error), place = self.store.place(&self.path), "parts of an upload are left behind");
        }
    }
}

impl Parts {
    async fn next(&mut self) -> object_store::Result<()> {
        match self.running.join_next().await {
            Some(Ok(outcome)) => outcome,
            Some(Err(source)) => Err(object_store::Error::JoinError { source }),
            None => Ok(()),
        }
    }
}

/// A file beside the snapshots, which is linked or moved to its place once it is whole and on disk.
#[derive(Debug)]
struct PartialFile {
    file: fs::File,
    partial: PathBuf,
    target: PathBuf,
    mode: Mode,
}

impl PartialFile {
    async fn open(directory: &FilePath, prefix: &Path, path: &Path, mode: Mode) -> Result<Self> {
        let relative: Vec<_> = path.parts().skip(prefix.parts().count()).collect();
        let target = relative.iter().fold(directory.to_owned(), |path, part| path.join(part.as_ref()));
        let partial = directory.join(PARTIAL).join(target.file_name().unwrap_or_default());
        if mode == Mode::Create && fs::try_exists(&target).await.map_err(at(&target))? {
            return Err(Error::Exists { place: target.display().to_string() });
        }
        for path in [&target, &partial] {
            let parent = path.parent().unwrap_or(directory);
            // What an etcd holds is not for everybody.
            fs::DirBuilder::new().recursive(true).mode(0o700).create(parent).await.map_err(at(parent))?;
        }
        let file = lock_new(&partial).await?;
        Ok(Self { file, partial, target, mode })
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).await.map_err(at(&self.partial))
    }

    async fn finish(mut self) -> Result<()> {
        self.file.flush().await.map_err(at(&self.partial))?;
        self.file.sync_all().await.map_err(at(&self.partial))?;
        match self.mode {
            Mode::Replace => fs::rename(&self.partial, &self.target).await.map_err(at(&self.target))?,
            Mode::Create => {
                let linked = fs::hard_link(&self.partial, &self.target).await;
                fs::remove_file(&self.partial).await.map_err(at(&self.partial))?;
                linked.map_err(|error| match error.kind() {
                    std::io::ErrorKind::AlreadyExists => {
                        Error::Exists { place: self.target.display().to_string() }
                    }
                    _ => at(&self.target)(error),
                })?;
            }
        }
        let parent = self.target.parent().unwrap_or(&self.target);
        let opened = fs::File::open(parent).await.map_err(at(parent))?;
        opened.sync_all().await.map_err(at(parent))
    }

    async fn abort(self) {
        if let Err(error) = fs::remove_file(&self.partial).await {
            tracing::warn!(%error, path = %self.partial.display(), "a partial file is left behind");
        }
    }
}

/// A new file that is locked by us. What an interrupted writer left behind goes first; it may be linked to something, so it is not
/// written to again. What a living one writes is left alone.
async fn lock_new(path: &FilePath) -> Result<fs::File> {
    let busy = |_| Error::Busy { path: path.to_owned() };
    loop {
        match fs::File::options().create_new(true).write(true).mode(0o600).open(path).await {
            Ok(file) => {
                flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(busy)?;
                return Ok(file);
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(at(path)(error)),
        }
        let left = fs::File::open(path).await.map_err(at(path))?;
        flock(&left, FlockOperation::NonBlockingLockExclusive).map_err(busy)?;
        fs::remove_file(path).await.map_err(at(path))?;
    }
}

fn at(path: &FilePath) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { path, source }
}
