//! Reading payloads: a few chunks ahead, all at one revision at which the object was current.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use futures::{
    Stream, StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use tracing::Span;

use super::{core::Core, metrics::Part, path, types::Object};
use crate::{
    Error, Result,
    backend::{self, Revision},
    chunk::{self, ChunkRef},
    record::Payload,
    seal::Defect,
    trace,
};

/// Bytes of plaintext that are asked for at once.
const BATCH_BYTES: usize = 1 << 20;
/// Chunks that are asked for at once: an answer of etcd should stay near a MiB.
const BATCH_CHUNKS: usize = 4;
/// Batches that are under way while the reader is busy with another.
const AHEAD: usize = 2;

/// Bytes of a payload that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Which, in the stored text.
    pub bytes: Range<u64>,
    /// Why these bytes cannot be read.
    pub what: &'static str,
}

/// Reads the payload of one state of one object.
pub(crate) struct Reader {
    core: Arc<Core>,
    object: Object,
    /// The revision to read at. Moves on when it is compacted while the object has not changed.
    at: AtomicU64,
    /// Ends with the reader.
    _span: Span,
}

impl Reader {
    pub(crate) fn new(core: Arc<Core>, object: Object) -> Arc<Self> {
        let at = AtomicU64::new(object.at.0);
        let span = trace::payload(object.record.payload.chunks().len(), object.payload_len);
        Arc::new(Self { core, object, at, _span: span })
    }

    /// The pieces in order.
    pub(crate) fn stream(self: Arc<Self>) -> BoxStream<'static, Result<Bytes>> {
        let Payload::Chunks(chunks) = self.object.record.payload.clone() else {
            return stream::once(async move { self.inline().await }).boxed();
        };
        let pieces = Arc::clone(&self).fetched(chunks).map_ok(move |batch| {
            let opened: Vec<_> = batch.into_iter().map(|(chunk, value)| self.open(&chunk, value)).collect();
            stream::iter(opened)
        });
        pieces.try_flatten().boxed()
    }

    /// All of it, in one allocation, or without any where it is one piece.
    pub(crate) async fn whole(self: Arc<Self>) -> Result<Bytes> {
        let Payload::Chunks(chunks) = self.object.record.payload.clone() else { return self.inline().await };
        let mut batches = std::pin::pin!(Arc::clone(&self).fetched(chunks.clone()));
        if let [only] = chunks[..] {
            let value = batches.try_next().await?.and_then(|mut batch| batch.pop());
            return self.open(&only, value.map(|(_, value)| value).unwrap_or_default());
        }
        // The lengths were sealed by whoever wrote the object, and the chunks in sum are no longer.
        let len: usize = chunks.iter().map(|chunk| chunk.len as usize).sum();
        let mut whole = vec![0; len];
        let mut room = whole.as_mut_slice();
        let cipher = self.object.record.key.cipher().map_err(|_| self.corrupt("cipher refused"))?;
        while let Some(batch) = batches.try_next().await? {
            for (chunk, value) in batch {
                let (here, rest) = std::mem::take(&mut room).split_at_mut(chunk.len as usize);
                chunk::open_into(&cipher, self.object.uid, &chunk, value, here)
                    .map_err(|what| self.corrupt(what))?;
                room = rest;
            }
        }
        Ok(whole.into())
    }

    /// Reads all of it, and tells which parts of it cannot be had; none where it is whole.
    ///
    /// # Errors
    /// Where the backend does not read, for whatever reason that is no damage of the chunk itself.
    pub(crate) async fn lost(self: Arc<Self>) -> Result<Vec<Lost>> {
        let whole = self.object.payload_len;
        let Payload::Chunks(chunks) = self.object.record.payload.clone() else {
            return Ok(match self.inline().await {
                Ok(bytes) if bytes.len() as u64 == whole => Vec::new(),
                Ok(_) => vec![Lost { bytes: 0..whole, what: "it has another length than its record says" }],
                Err(Error::Corrupt { what, .. }) => vec![Lost { bytes: 0..whole, what }],
                Err(error) => return Err(error),
            });
        };
        let (mut lost, mut start) = (Vec::new(), 0);
        for chunk in chunks.iter() {
            let bytes = start..start + u64::from(chunk.len);
            start = bytes.end;
            let keys = vec![path::chunk(self.object.uid, &chunk.id)];
            let what = match self.ask(|at| self.core.backend.get_many(keys.clone(), at)).await? {
                Ok(mut found) => match found.pop().flatten() {
                    Some(kv) => self.prove(chunk, kv.value),
                    None => Err("a chunk is missing"),
                },
                // Where it rests is broken, which says nothing of the next one. No other error proves that it is lost.
                Err(backend::Error::Corrupt(_)) => Err("a chunk cannot be read from where it rests"),
                Err(error) => return Err(self.core.error(error)),
            };
            lost.extend(what.err().map(|what| Lost { bytes, what }));
        }
        if start != whole {
            lost.push(Lost {
                bytes: 0..whole,
                what: "its chunks have another length in sum than its record says",
            });
        }
        Ok(lost)
    }

    /// Whether a chunk opens and is what its name says.
    fn prove(&self, chunk: &ChunkRef, value: Bytes) -> Result<(), Defect> {
        let key = &self.object.record.key;
        let cipher = key.cipher().map_err(|_| "cipher refused")?;
        let piece = chunk::open(&cipher, self.object.uid, chunk, value)?;
        let is = chunk::hash(&key.naming(), &piece) == chunk.content().0;
        if is { Ok(()) } else { Err("a chunk is not what its name says") }
    }

    async fn inline(&self) -> Result<Bytes> {
        if let Payload::Inline(packed) = &self.object.record.payload {
            return packed.unpack().map_err(|what| self.corrupt(what));
        }
        // The object is from the watch cache, which does not keep payload.
        let path = path::record(&self.object.key)?;
        let record = self.read(|at| self.core.backend.get(path.clone(), Some(at))).await?;
        let record = record.ok_or_else(|| self.corrupt("its record is missing"))?;
        let object = self.core.open(record, self.object.at).await?;
        match &object.record.payload {
            Payload::Inline(packed) if object.modified == self.object.modified => {
                packed.unpack().map_err(|what| self.corrupt(what))
            }
            _ => Err(self.corrupt("its record is not the one that was read before")),
        }
    }

    fn open(&self, chunk: &ChunkRef, value: Bytes) -> Result<Bytes> {
        let cipher = self.object.record.key.cipher().map_err(|_| self.corrupt("cipher refused"))?;
        chunk::open(&cipher, self.object.uid, chunk, value).map_err(|what| self.corrupt(what))
    }

    /// The sealed chunks in order, in batches.
    fn fetched(
        self: Arc<Self>,
        chunks: Arc<[ChunkRef]>,
    ) -> impl Stream<Item = Result<Vec<(ChunkRef, Bytes)>>> + Send + 'static {
        stream::iter(batches(&chunks))
            .map(move |batch| {
                let reader = Arc::clone(&self);
                async move { reader.fetch(batch).await }
            })
            .buffered(AHEAD)
    }

    async fn fetch(&self, batch: Vec<ChunkRef>) -> Result<Vec<(ChunkRef, Bytes)>> {
        let keys: Vec<_> = batch.iter().map(|chunk| path::chunk(self.object.uid, &chunk.id)).collect();
        let found = self.read(|at| self.core.backend.get_many(keys.clone(), at)).await?;
        if found.len() != batch.len() {
            return Err(self.corrupt("a chunk is missing"));
        }
        let value = |(chunk, kv): (ChunkRef, Option<backend::KeyValue>)| match kv {
            Some(kv) => Ok((chunk, kv.value)),
            None => Err(self.corrupt("a chunk is missing")),
        };
        batch.into_iter().zip(found).map(value).collect()
    }

    /// Reads at the object's revision; where that is compacted, at a newer one at which the object is still the same.
    async fn read<T, F>(&self, read: impl Fn(Revision) -> F) -> Result<T>
    where
        F: Future<Output = backend::Result<T>>,
    {
        self.ask(read).await?.map_err(|error| self.core.error(error))
    }

    /// As [`Reader::read`]; what is inside is what the backend says.
    async fn ask<T, F>(&self, read: impl Fn(Revision) -> F) -> Result<backend::Result<T>>
    where
        F: Future<Output = backend::Result<T>>,
    {
        match read(Revision(self.at.load(Ordering::Relaxed))).await {
            Err(backend::Error::Compacted { oldest, .. }) => {
                let at = self.later(oldest).await?;
                Ok(read(at).await)
            }
            other => Ok(other),
        }
    }

    async fn later(&self, oldest: Revision) -> Result<Revision> {
        let (now, at) = self.core.read(&path::record(&self.object.key)?).await?;
        if now.is_none_or(|kv| kv.modified != self.object.modified) {
            return Err(Error::Expired { oldest: self.core.version(oldest) });
        }
        self.at.fetch_max(at.0, Ordering::Relaxed);
        Ok(at)
    }

    /// The error of a payload that is damaged, which is counted.
    fn corrupt(&self, what: Defect) -> Error {
        self.core.metrics.found_damage(Part::Payload, &self.object.key, what);
        Error::Corrupt { key: self.object.key.clone(), what }
    }
}

fn batches(chunks: &[ChunkRef]) -> Vec<Vec<ChunkRef>> {
    let mut batches: Vec<Vec<ChunkRef>> = Vec::new();
    let mut bytes = 0;
    for chunk in chunks {
        bytes += chunk.len as usize;
        match batches.last_mut() {
            Some(batch) if batch.len() < BATCH_CHUNKS && bytes <= BATCH_BYTES => batch.push(*chunk),
            Some(_) | None => {
                bytes = chunk.len as usize;
                batches.push(vec![*chunk]);
            }
        }
    }
    batches
}
