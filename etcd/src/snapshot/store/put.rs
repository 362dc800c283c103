//! Writing objects: whole or not at all, whatever the kind of store.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use object_store::{
    MultipartUpload, ObjectStore as _, ObjectStoreExt, PutMode, PutOptions, PutPayload, path::Path,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{Error, Failure, Integrity, Result, Store, file::PartialFile, seal::Sealing, sent::SentBytes};
use crate::snapshot::codec::Sha256;

/// Length of a part: with the 10000 parts that S3 takes, 78 GiB.
pub(in crate::snapshot) const PART_BYTES: usize = 8 << 20;
/// How many parts are on their way at once.
const PARTS: usize = 8;
/// Before a write that may not be repeated blindly is tried again.
const AGAIN: Duration = Duration::from_millis(300);

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
    sealing: Option<Sealing>,
    hash: Sha256,
    bytes: u64,
    sent: Option<Arc<SentBytes>>,
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
                buffer: Vec::new(),
                buffered: 0,
                parts: None,
            })),
        };
        Ok(Self { target, sealing: None, hash: Sha256::default(), bytes: 0, sent: store.sent.clone() })
    }

    /// Seals what is written from now on; there is nothing before that.
    pub(super) async fn sealed(mut self, sealing: Sealing) -> Result<Self> {
        let header = sealing.header.clone();
        self.sealing = Some(sealing);
        self.put(header).await?;
        Ok(self)
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Write`], [`Error::File`], [`Error::Sealing`].
    pub async fn write(&mut self, bytes: Bytes) -> Result<()> {
        match &mut self.sealing {
            None => self.put(bytes).await,
            Some(sealing) => {
                let frames = sealing.push(&bytes)?;
                if frames.is_empty() { Ok(()) } else { self.put(frames).await }
            }
        }
    }

    /// What is in the store is hashed, so a sealed snapshot is verified and copied without keys.
    async fn put(&mut self, bytes: Bytes) -> Result<()> {
        self.hash.update(&bytes);
        self.bytes += bytes.len() as u64;
        let length = bytes.len() as u64;
        match &mut self.target {
            Target::Remote(remote) => remote.write(bytes).await?,
            Target::File(file) => file.write(bytes).await?,
        }
        if let Some(sent) = &self.sent {
            sent.add(length);
        }
        Ok(())
    }

    /// What was written so far.
    #[must_use]
    pub fn integrity(&self) -> Integrity {
        Integrity::new(self.bytes, self.hash.clone().finish())
    }

    /// Lets it appear.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Write`], [`Error::File`], [`Error::Sealing`].
    pub async fn finish(mut self) -> Result<Integrity> {
        if let Some(sealing) = self.sealing.take() {
            let last = match sealing.finish() {
                Ok(last) => last,
                Err(error) => {
                    self.abort().await;
                    return Err(error);
                }
            };
            self.put(last).await?;
        }
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

/// Writes a small object.
pub(super) async fn small(store: &Store, path: Path, bytes: Bytes, mode: Mode) -> Result<()> {
    let mut upload = Upload::begin(store, path, mode).await?;
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
    /// What waits to be sent, as it came.
    buffer: Vec<Bytes>,
    buffered: usize,
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

    async fn write(&mut self, mut bytes: Bytes) -> Result<()> {
        while self.buffered + bytes.len() > PART_BYTES {
            self.buffer.push(bytes.split_to(PART_BYTES - self.buffered));
            let part = self.take_buffer();
            if let Err(source) = self.send(part).await {
                return Err(self.failed(source));
            }
        }
        self.buffered += bytes.len();
        self.buffer.push(bytes);
        Ok(())
    }

    fn take_buffer(&mut self) -> PutPayload {
        self.buffered = 0;
        self.buffer.drain(..).collect()
    }

    async fn send(&mut self, part: PutPayload) -> object_store::Result<()> {
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
        parts.running.spawn(parts.upload.put_part(part));
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
        let last = self.take_buffer();
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

    async fn put_whole(&mut self, payload: PutPayload) -> object_store::Result<()> {
        if self.mode == Mode::Replace {
            return self.store.objects.put(&self.path, payload).await.map(drop);
        }
        let end = Instant::now() + self.store.patience;
        loop {
            let options = PutOptions::from(PutMode::Create);
            match self.store.objects.put_opts(&self.path, payload.clone(), options).await {
                Ok(_) => return Ok(()),
                // The answer to an earlier try may have been lost on the way: then what is there is what was sent.
                Err(object_store::Error::AlreadyExists { .. }) if self.holds(&payload).await? => {
                    return Ok(());
                }
                // The library repeats only what may be done twice.
                Err(error @ object_store::Error::Generic { .. }) if Instant::now() < end => {
                    tracing::warn!(place = self.store.place(&self.path), error = %Failure::from(error), "trying again to write it");
                    sleep(AGAIN).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn holds(&mut self, payload: &PutPayload) -> object_store::Result<bool> {
        let mut there = self.store.objects.get(&self.path).await?.bytes().await?;
        let same = there.len() == payload.content_length();
        Ok(same && payload.iter().all(|piece| there.split_to(piece.len()) == *piece))
    }

    async fn finish_parts(&mut self, last: PutPayload) -> object_store::Result<()> {
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
