//! Writing: an object appears, changes or goes in one transaction, whatever its size.
//!
//! 1. The payload is cut and hashed; pieces that the replaced state has already are not written again ([`super::prepare`]).
//! 2. What is new is sealed. If it fits into one transaction together with the record, that is all: one commit.
//! 3. If not, new chunks are put first, in parallel, under a write intent ([`super::intent`]). They are invisible: nothing
//!    names them.
//! 4. One transaction puts the record. It compares the revision of the state that is replaced, so nothing is lost between,
//!    and the intent, so no chunk can have been collected.

use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use super::{
    commit::{Commit, Fence, Verdict, chunk_keys},
    core::Core,
    intent::{Intent, Intents},
    manifest::Left,
    path,
    payload::Reader,
    prepare::{self, Difference, Names, Prepared, run},
    types::{Draft, Key, Object, Segmented},
    upload::{Put, Upload, op_bytes},
};
use crate::{
    Error, Result,
    backend::{Compare, Op, Revision, Txn},
    keyring,
    record::{Opened, Payload, Record, Token},
    seal::{self, DataKey},
    trace,
};

/// Payloads up to this size are worked on where the caller runs; larger ones on a thread for heavy work.
const LIGHT: u64 = 128 << 10;
/// How often a write starts again because its intent was lost.
const TRIES: usize = 3;
/// Room for compares and owner in a transaction.
const MARGIN: usize = 4 << 10;

/// A write of one object.
struct Write<'a> {
    core: &'a Arc<Core>,
    key: &'a Key,
    path: Bytes,
    base: Option<&'a Object>,
    uid: Uuid,
    data_key: DataKey,
    wrapped: Bytes,
    draft: Draft,
    payload_len: u64,
}

/// A record that is ready, and where its payload is.
struct Ready {
    value: Bytes,
    token: Token,
    payload: Payload,
}

impl Intents {
    /// Puts an object in the place of `base`, or where there is none.
    pub(crate) async fn write(&self, key: &Key, base: Option<&Object>, draft: Draft) -> Result<Object> {
        let mut write = Write::begin(self.core(), key, base, draft).await?;
        let (data_key, payload) = (write.data_key.clone(), std::mem::take(&mut write.draft.payload));
        let heavy = write.payload_len > LIGHT;
        match run(heavy, move || prepare::prepare(&data_key, &payload)).await? {
            Prepared::Inline(packed) => write.commit_inline(Payload::Inline(packed)).await,
            Prepared::Pieces(pieces) => {
                let difference = prepare::difference(base, pieces)?;
                trace::written(difference.new.len(), difference.new_bytes());
                write.commit_chunked(self, difference).await
            }
        }
    }

    /// Puts another head on an object. Its payload stays where it is, unread.
    pub(crate) async fn write_head(&self, base: &Object, meta: Bytes, summary: Bytes) -> Result<Object> {
        let core = self.core();
        let mut draft = Draft { uid: base.uid, meta, summary, payload: Segmented::default() };
        let payload = match &base.record.payload {
            // It rests in the record that is to be written anew.
            Payload::InRecord => {
                let text = Reader::new(Arc::clone(core), base.clone()).whole().await?;
                draft.payload = Segmented::new(text, Vec::new());
                return self.write(&base.key, Some(base), draft).await;
            }
            kept @ (Payload::Inline(_) | Payload::Chunks(_)) => kept.clone(),
        };
        let mut write = Write::begin(core, &base.key, Some(base), draft).await?;
        write.payload_len = base.payload_len;
        let ready = write.seal(payload)?;
        match write.commit(&ready, Vec::new(), Vec::new(), None).await? {
            Verdict::Committed(revision) => Ok(write.object(ready, revision)),
            Verdict::Overtaken | Verdict::Refused => Err(Error::Conflict),
            Verdict::Failed(error) => Err(error),
        }
    }

    /// Removes an object.
    pub(crate) async fn remove(&self, object: &Object) -> Result<Object> {
        let core = self.core();
        let path = path::record(&object.key)?;
        let mut keys = chunk_keys(object.uid, object.record.payload.chunks());
        let mut ops = vec![Op::Delete(path.clone())];
        if !keys.is_empty() {
            ops.push(Op::Delete(path::owner(object.uid, &path)));
        }
        let limits = core.backend.limits();
        let most = limits.txn_ops - ops.len() - 1;
        let left = Left::split(object.uid, &mut keys, most).map_err(|_| Error::cipher_refused())?;
        ops.extend(left.as_ref().map(|left| left.op(limits.txn_bytes / 2)));
        ops.extend(keys.into_iter().map(Op::Delete));
        let txn = Txn { compares: vec![Compare::ModifiedAt(path.clone(), object.modified)], ops };
        let expected = object.modified;
        let still = Compare::ModifiedAt(path.clone(), Revision(0));
        let commit = Commit { path, expected, token: None, before: core.seen(), txn, fence: None };
        let revision = match core.commit(commit).await? {
            Verdict::Committed(revision) => revision,
            Verdict::Overtaken | Verdict::Refused => return Err(Error::Conflict),
            Verdict::Failed(error) => return Err(error),
        };
        core.sweep_later(left.map_or_else(Vec::new, |left| left.keys()), Some(still));
        // Its last state can be read as of just before.
        let at = Revision(revision.0 - 1);
        Ok(Object { version: core.version(revision), at, ..object.clone() })
    }
}

impl<'a> Write<'a> {
    async fn begin(
        core: &'a Arc<Core>,
        key: &'a Key,
        base: Option<&'a Object>,
        draft: Draft,
    ) -> Result<Self> {
        core.sound()?;
        let path = path::record(key)?;
        let data_key = match base {
            Some(base) => base.record.key.clone(),
            None => DataKey::random().map_err(|_| Error::cipher_refused())?,
        };
        let failed = |error| sealing(key, error);
        let kept = match base {
            // Asked anew: the wrapping key may have changed since the object was read.
            Some(base) if core.keys.keeps(key, &base.record.wrapped).map_err(failed)? => Some(base),
            Some(_) | None => None,
        };
        let wrapped = match kept {
            // Wrapped anew only where the wrapping key changed: each wrapping uses up a little of that key.
            Some(base) => base.record.wrapped.clone(),
            None => core.keys.wrap(key, &path, &data_key).await.map_err(failed)?,
        };
        let payload_len = draft.payload.text().len() as u64;
        Ok(Self { core, key, path, base, uid: draft.uid, data_key, wrapped, draft, payload_len })
    }

    async fn commit_inline(self, payload: Payload) -> Result<Object> {
        let ready = self.seal(payload)?;
        let dropped = self.base.map_or(Vec::new(), |base| chunk_keys(self.uid, base.record.payload.chunks()));
        match self.commit(&ready, Vec::new(), dropped, None).await? {
            Verdict::Committed(revision) => Ok(self.object(ready, revision)),
            Verdict::Overtaken | Verdict::Refused => Err(self.overtaken()),
            Verdict::Failed(error) => Err(error),
        }
    }

    async fn commit_chunked(self, intents: &Intents, difference: Difference) -> Result<Object> {
        for _ in 0..TRIES {
            let intent = if self.fits(&difference) { None } else { Some(intents.acquire().await?) };
            let names = Names::of(intent.as_deref()).map_err(|_| Error::cipher_refused())?;
            let ready = self.seal(difference.map(names))?;
            let upload = Upload { core: self.core, uid: self.uid, data_key: &self.data_key };
            let put = upload.put_chunks(&difference, names, intent.as_deref(), ready.value.len()).await;
            let alone = !matches!(put, Ok(Put::Held(_)));
            let mut unused = difference.new_keys(self.uid, names);
            // While a request may still put chunks, the manifest stays: the collector ends it after the intent.
            let manifest = names.manifest(self.uid);
            let over = matches!(put, Ok(Put::Done { settled: true } | Put::IntentLost)).then_some(manifest);
            unused.extend(over.clone());
            let verdict = match put {
                Ok(Put::Held(chunks)) => self.commit_with(&ready, chunks, &difference, None).await,
                Ok(Put::Done { .. }) => {
                    let manifest = over.into_iter().map(Op::Delete).collect();
                    self.commit_with(&ready, manifest, &difference, intent.as_deref()).await
                }
                Ok(Put::IntentLost) => Ok(Verdict::Refused),
                // The record was never sent.
                Err(error) => Ok(Verdict::Failed(error)),
            };
            if alone && verdict.as_ref().is_ok_and(Verdict::is_undone) {
                // Proved, and the names are of this write alone: nobody can come to need them.
                self.core.sweep_later(unused, None);
            }
            match (verdict?, intent) {
                (Verdict::Committed(revision), _) => return Ok(self.object(ready, revision)),
                (Verdict::Refused, Some(intent)) => intents.lost(&intent).await,
                (Verdict::Overtaken, _) | (Verdict::Refused, None) => return Err(self.overtaken()),
                (Verdict::Failed(error), _) => return Err(error),
            }
        }
        Err(Error::Unavailable("the write intent was lost again and again".into()))
    }

    /// Whether everything surely fits into one transaction, even if nothing can be compressed.
    fn fits(&self, difference: &Difference) -> bool {
        let limits = self.core.backend.limits();
        let (count, bytes) = (difference.new.len(), difference.new_bytes());
        let head = prepare::head_bytes(&self.draft) + self.wrapped.len() + 64 * difference.pieces();
        count + 2 <= limits.txn_ops && bytes + 256 * count + head + 2 * MARGIN <= limits.txn_bytes
    }

    fn seal(&self, payload: Payload) -> Result<Ready> {
        let token = seal::random().map_err(|_| Error::cipher_refused())?;
        let record = Record {
            meta: self.draft.meta.clone(),
            summary: self.draft.summary.clone(),
            payload_len: self.payload_len,
            token,
            payload,
        };
        let cipher = self.data_key.cipher().map_err(|_| Error::cipher_refused())?;
        let value =
            record.seal(&self.path, self.uid, &cipher, &self.wrapped).map_err(|_| Error::cipher_refused())?;
        let (size, limit) = (value.len() + MARGIN, self.core.backend.limits().txn_bytes);
        if size > limit {
            return Err(Error::TooLarge { size, limit });
        }
        Ok(Ready { value, token, payload: record.payload })
    }

    async fn commit_with(
        &self,
        ready: &Ready,
        chunks: Vec<Op>,
        difference: &Difference,
        intent: Option<&Intent>,
    ) -> Result<Verdict> {
        self.commit(ready, chunks, chunk_keys(self.uid, &difference.dropped), intent).await
    }

    /// The one transaction that makes the write happen.
    async fn commit(
        &self,
        ready: &Ready,
        mut ops: Vec<Op>,
        mut dropped: Vec<Bytes>,
        intent: Option<&Intent>,
    ) -> Result<Verdict> {
        let expected = self.base.map_or(Revision(0), |base| base.modified);
        let mut compares = vec![Compare::ModifiedAt(self.path.clone(), expected)];
        compares.extend(intent.map(Intent::compare));
        let fence = match self.base {
            Some(_) => None,
            None => Some(Fence::new().map_err(|_| Error::cipher_refused())?),
        };
        compares.extend(fence.map(Fence::compare));
        ops.push(Op::Put(self.path.clone(), ready.value.clone()));
        ops.extend(self.owner(&ready.payload));
        let limits = self.core.backend.limits();
        let room = limits.txn_bytes.saturating_sub(ops.iter().map(op_bytes).sum::<usize>() + MARGIN);
        let most = limits.txn_ops.saturating_sub(ops.len() + 1).min(room / 128);
        let left = Left::split(self.uid, &mut dropped, most).map_err(|_| Error::cipher_refused())?;
        ops.extend(left.as_ref().map(|left| left.op(room.saturating_sub(128 * dropped.len()))));
        ops.extend(dropped.into_iter().map(Op::Delete));
        let commit = Commit {
            path: self.path.clone(),
            expected,
            token: Some(ready.token),
            before: self.core.seen(),
            txn: Txn { compares, ops },
            fence,
        };
        let verdict = self.core.commit(commit).await?;
        if let Verdict::Committed(revision) = verdict {
            let same = Compare::ModifiedAt(self.path.clone(), revision);
            self.core.sweep_later(left.map_or_else(Vec::new, |left| left.keys()), Some(same));
        }
        Ok(verdict)
    }

    /// There is an owner exactly as long as the record names chunks: the collector believes it.
    fn owner(&self, payload: &Payload) -> Option<Op> {
        let had = self.base.is_some_and(|base| !base.record.payload.chunks().is_empty());
        let has = !payload.chunks().is_empty();
        let owner = path::owner(self.uid, &self.path);
        match (had, has) {
            (false, true) => Some(Op::Put(owner, Bytes::new())),
            (true, false) => Some(Op::Delete(owner)),
            (true, true) | (false, false) => None,
        }
    }

    fn overtaken(&self) -> Error {
        if self.base.is_some() { Error::Conflict } else { Error::Exists }
    }

    fn object(self, ready: Ready, revision: Revision) -> Object {
        let (key, wrapped, token, payload) = (self.data_key, self.wrapped, ready.token, ready.payload);
        Object {
            key: self.key.clone(),
            uid: self.uid,
            version: self.core.version(revision),
            meta: self.draft.meta,
            summary: self.draft.summary,
            payload_len: self.payload_len,
            stale: false,
            at: revision,
            modified: revision,
            record: Arc::new(Opened { key, wrapped, token, payload }),
        }
    }
}

fn sealing(key: &Key, error: keyring::Error) -> Error {
    match error {
        keyring::Error::Unavailable { .. } => Error::Unavailable(error.to_string()),
        source => Error::Sealing { key: key.clone(), source: source.into() },
    }
}
