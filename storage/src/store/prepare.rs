//! Preparing a write: what of a payload is there already, and what has to be written. No I/O; heavy on the processor, so long payloads are
//! worked on beside the threads that serve.

use std::collections::HashMap;

use bytes::Bytes;
use uuid::Uuid;

use super::{
    intent::Intent,
    manifest, path,
    types::{Draft, Object, Segmented},
};
use crate::{
    Error, Result,
    backend::Op,
    chunk::{self, ChunkRef, Hash, INLINE_LIMIT},
    compress::Worth,
    record::{Packed, Payload},
    seal::{DataKey, Refused},
};

/// Runs work here, or on a thread for heavy work.
pub(super) async fn run<T: Send + 'static>(
    heavy: bool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    if !heavy {
        return Ok(work());
    }
    let joined = tokio::task::spawn_blocking(work).await;
    joined.map_err(|error| Error::Unavailable(format!("work on a payload was cut short: {error}")))
}

/// A payload, cut and hashed.
pub(crate) enum Prepared {
    /// Small: goes into the record.
    Inline(Packed),
    /// Pieces in order, with the hash of each.
    Pieces(Vec<(Hash, Bytes)>),
}

/// Cuts and hashes a payload.
pub(crate) fn prepare(key: &DataKey, payload: &Segmented) -> Prepared {
    if payload.text().len() < INLINE_LIMIT {
        return Prepared::Inline(Packed::new(payload.text()));
    }
    let naming = key.naming();
    let pieces = chunk::split(payload, &key.cutting());
    Prepared::Pieces(pieces.into_iter().map(|piece| (chunk::hash(&naming, &piece), piece)).collect())
}

/// What of a payload is new.
#[derive(Default)]
pub(crate) struct Difference {
    /// Content to be written, once each.
    pub new: Vec<(Hash, Bytes)>,
    /// Names of content that the base has already.
    known: HashMap<(Hash, u32), chunk::Id>,
    /// In order, the content of the payload.
    order: Vec<(Hash, u32)>,
    /// Chunks of the base that are named no more.
    pub dropped: Vec<ChunkRef>,
}

/// Compares with the chunks of the very state that the commit will compare: only those are sure to be there then.
pub(crate) fn difference(base: Option<&Object>, pieces: Vec<(Hash, Bytes)>) -> Result<Difference> {
    let old = base.map_or(&[][..], |object| object.record.payload.chunks());
    let known: HashMap<_, _> = old.iter().map(|chunk| (chunk.content(), chunk.id)).collect();
    let mut result = Difference { known, ..Difference::default() };
    let mut wanted = std::collections::HashSet::new();
    for (hash, piece) in pieces {
        let len = u32::try_from(piece.len()).map_err(|_| Error::Invalid("a piece is too long"))?;
        result.order.push((hash, len));
        if wanted.insert((hash, len)) && !result.known.contains_key(&(hash, len)) {
            result.new.push((hash, piece));
        }
    }
    result.dropped = old.iter().filter(|chunk| !wanted.contains(&chunk.content())).copied().collect();
    Ok(result)
}

impl Difference {
    /// Bytes of plaintext that have to be written.
    pub(crate) fn new_bytes(&self) -> usize {
        self.new.iter().map(|(_, piece)| piece.len()).sum()
    }

    /// Chunks in the payload, new or not.
    pub(crate) fn pieces(&self) -> usize {
        self.order.len()
    }

    /// The keys of the new chunks.
    pub(crate) fn new_keys(&self, uid: Uuid, names: Names) -> Vec<Bytes> {
        self.new.iter().map(|(hash, _)| path::chunk(uid, &names.id(*hash))).collect()
    }

    /// The manifest of the new chunks.
    pub(crate) fn manifest(&self, uid: Uuid, names: Names) -> Op {
        let ids: Vec<_> = self.new.iter().map(|(hash, _)| names.id(*hash)).collect();
        Op::Put(names.manifest(uid), manifest::value(&ids))
    }

    /// The chunk map, once it is known under which names the new chunks are written.
    pub(crate) fn map(&self, names: Names) -> Payload {
        let id =
            |content: &(Hash, u32)| self.known.get(content).copied().unwrap_or_else(|| names.id(content.0));
        Payload::Chunks(
            self.order.iter().map(|content| ChunkRef { id: id(content), len: content.1 }).collect(),
        )
    }
}

/// What makes the names of one write fresh.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names {
    intent: u64,
    write: u32,
}

impl Names {
    /// Of a write under an intent; without one a number is drawn that no intent has: the chunks appear together with the
    /// record that names them, so the collector never meets them without it.
    pub(crate) fn of(intent: Option<&Intent>) -> Result<Self, Refused> {
        let (intent, write) = match intent {
            Some(intent) => intent.next_write(),
            None => (u64::from_be_bytes(crate::seal::random()?), 0),
        };
        Ok(Self { intent, write })
    }

    /// The key of the manifest of this write.
    pub(crate) fn manifest(self, uid: Uuid) -> Bytes {
        path::manifest(self.intent, self.write, uid)
    }

    fn id(self, hash: Hash) -> chunk::Id {
        chunk::name(hash, self.intent, self.write)
    }
}

/// Seals new chunks.
pub(crate) fn seal(
    key: &DataKey,
    uid: Uuid,
    names: Names,
    pieces: &[(Hash, Bytes)],
    worth: Worth,
) -> Result<Vec<Op>, Refused> {
    let cipher = key.cipher()?;
    let put = |(hash, piece): &(Hash, Bytes)| {
        let id = names.id(*hash);
        Ok(Op::Put(path::chunk(uid, &id), chunk::seal(&cipher, uid, &id, piece, worth)?))
    };
    pieces.iter().map(put).collect()
}

/// The size of a draft that stays in the record whatever its payload.
pub(crate) fn head_bytes(draft: &Draft) -> usize {
    draft.meta.len() + draft.summary.len()
}
