//! Collection: removes chunks that no object names and none can come to name.
//!
//! Why it never removes a chunk that somebody needs. All of the following is read as of one revision `R`.
//!
//! 1. A chunk comes to be named in two ways only: by the commit that wrote it, or by an update of a record that names it
//!    already (an update takes over only chunks of the very state that its commit compares).
//! 2. A commit that wrote chunks beforehand compares, in its transaction, that the intent whose number they carry is still
//!    as it was made. Intents are made before their first chunk, and a number is never used again. So when a chunk is there
//!    at `R` and its intent is not, the intent is gone for good, and the commit happened at or before `R` or never will. A
//!    chunk that was written by the same transaction as its record needs no intent: there, the commit is at or before `R`.
//! 3. So if at `R` the intent is gone and no record names the chunk, no record names it at any later time. It may be removed
//!    at any later time, whatever others do meanwhile.
//! 4. Which records could name chunks of a uid is told by its owners: an owner is put by the transaction that makes a
//!    record name chunks and removed by the one that makes it name none.
//!
//! Whoever reads the chunk at an older revision still can, until compaction: that is the history window. Where a record of
//! an owner cannot be opened, nothing of its uid is removed.
//!
//! A writer that pauses longer than the patience for intents loses its intent here, and starts again: its commit fails.

use std::{collections::HashSet, time::Instant};

use bytes::Bytes;
use uuid::Uuid;

use super::{core::Core, pages::Pages, path};
use crate::{
    Result,
    backend::{Compare, Op, Revision, Txn},
    canary::Canary,
    chunk,
    store::path::Beneath,
};

/// What a pass of [`Store::collect`](crate::Store::collect) did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectReport {
    /// Chunks that were looked at.
    pub chunks: u64,
    /// Chunks that were removed because no object can name them any more.
    pub removed: u64,
    /// Chunks that no object names, but one may come to: they are being written.
    pub in_flight: u64,
    /// Objects that could not be opened, so that their chunks were left alone.
    pub unreadable: u64,
}

/// One pass. Holds the chunk map of one uid and a page of keys at a time.
struct Pass<'a> {
    core: &'a Core,
    at: Revision,
    remove: bool,
    intents: HashSet<u64>,
    report: CollectReport,
    garbage: Vec<Bytes>,
    uid: Option<Uuid>,
    owners: Vec<Bytes>,
    named: Option<Named>,
}

/// The chunks of one uid that records name.
enum Named {
    These(HashSet<chunk::Id>),
    /// A record cannot be opened: it may name any.
    Unknown,
}

impl Core {
    /// See [`Store::collect`](super::Store::collect).
    pub(crate) async fn collect(&self) -> Result<CollectReport> {
        self.revision().await?; // Nothing is removed from a store that was put back.
        self.forget_old_intents().await?;
        self.judge_chunks(true).await
    }

    /// Judges all chunks. Without `remove`, those that would be removed are only counted.
    pub(super) async fn judge_chunks(&self, remove: bool) -> Result<CollectReport> {
        let at = self.revision().await?;
        let mut pass = Pass {
            core: self,
            at,
            remove,
            intents: HashSet::new(),
            report: CollectReport::default(),
            garbage: Vec::new(),
            uid: None,
            owners: Vec::new(),
            named: None,
        };
        let mut intents = Pages::new(self, path::INTENTS, Some(at), true);
        while let Some(page) = intents.next().await? {
            pass.intents.extend(page.iter().filter_map(|kv| path::parse_intent(&kv.key)));
        }
        let mut chunks = Pages::new(self, path::CHUNKS, Some(at), true);
        while let Some(page) = chunks.next().await? {
            for kv in page {
                pass.meet(&kv.key).await?;
            }
            pass.dispose().await?;
        }
        Ok(pass.report)
    }

    /// Removes intents that their writers forgot, or never came back to.
    async fn forget_old_intents(&self) -> Result<()> {
        let mut there = Vec::new();
        let mut intents = Pages::new(self, path::INTENTS, None, true);
        while let Some(page) = intents.next().await? {
            there.extend(page.into_iter().map(|kv| (kv.key, kv.modified)));
        }
        for (key, made) in self.known_for_long(&there) {
            let compares = vec![Compare::ModifiedAt(key.clone(), made)];
            let txn = Txn { compares, ops: vec![Op::Delete(key)] };
            self.backend.txn(txn).await.map_err(|error| self.error(error))?;
        }
        Ok(())
    }

    /// Which of the intents that are there this process has known for longer than its patience. It goes by its own clock, which
    /// does not jump. A process that begins anew begins anew with this, too.
    fn known_for_long(&self, there: &[(Bytes, Revision)]) -> Vec<(Bytes, Revision)> {
        let (now, mut known) = (Instant::now(), self.known_intents.lock());
        let before = std::mem::take(&mut *known);
        known.extend(there.iter().map(|intent| {
            let since = before.get(intent).copied().unwrap_or(now);
            (intent.clone(), since)
        }));
        let old =
            known.iter().filter(|(_, since)| now.duration_since(**since) > self.options.intent_patience);
        old.map(|(intent, _)| intent.clone()).collect()
    }
}

impl Pass<'_> {
    /// Judges one key under the prefix of chunks. They come sorted: by uid, and owners first.
    async fn meet(&mut self, key: &Bytes) -> Result<()> {
        match path::parse_chunk(key) {
            Some(Beneath::Owner(uid, record)) => {
                self.turn_to(uid);
                self.owners.push(record);
            }
            Some(Beneath::Chunk(uid, id)) => {
                self.turn_to(uid);
                self.report.chunks += 1;
                if self.is_named(uid, &id).await? {
                    return Ok(());
                }
                let writing = self.intents.contains(&chunk::intent_of(&id));
                if writing && !Canary::CollectorIgnoresIntents.sings() {
                    self.report.in_flight += 1;
                } else {
                    self.garbage.push(key.clone());
                }
            }
            None => tracing::warn!("a key among the chunks is none of ours; left alone"),
        }
        Ok(())
    }

    fn turn_to(&mut self, uid: Uuid) {
        if self.uid != Some(uid) {
            self.uid = Some(uid);
            self.owners.clear();
            self.named = None;
        }
    }

    async fn is_named(&mut self, uid: Uuid, id: &chunk::Id) -> Result<bool> {
        if self.named.is_none() {
            self.named = Some(self.read_owners(uid).await?);
        }
        Ok(match &self.named {
            Some(Named::These(ids)) => ids.contains(id),
            Some(Named::Unknown) | None => true,
        })
    }

    async fn read_owners(&mut self, uid: Uuid) -> Result<Named> {
        let mut ids = HashSet::new();
        for record in std::mem::take(&mut self.owners) {
            let found = self.core.backend.get(record, Some(self.at)).await;
            let Some(kv) = found.map_err(|error| self.core.error(error))? else { continue };
            match self.core.open(kv, self.at).await {
                Ok(object) if object.uid == uid => {
                    ids.extend(object.record.payload.chunks().iter().map(|chunk| chunk.id));
                }
                Ok(_) => {}
                Err(_) if Canary::CollectorForgetsUnreadable.sings() => {}
                Err(error) => {
                    tracing::warn!(%error, "chunks of an object that does not open are left alone");
                    self.report.unreadable += 1;
                    return Ok(Named::Unknown);
                }
            }
        }
        Ok(Named::These(ids))
    }

    async fn dispose(&mut self) -> Result<()> {
        if !self.remove {
            self.report.removed += self.garbage.drain(..).count() as u64;
        }
        let most = self.core.backend.limits().txn_ops;
        while !self.garbage.is_empty() {
            let now: Vec<_> = self.garbage.drain(..self.garbage.len().min(most)).map(Op::Delete).collect();
            let count = now.len() as u64;
            let txn = Txn { compares: Vec::new(), ops: now };
            self.core.backend.txn(txn).await.map_err(|error| self.core.error(error))?;
            self.report.removed += count;
        }
        Ok(())
    }
}
