//! Collection: removes chunks that no object names and none can come to name.
//!
//! Which chunks it looks at is told by [manifests](super::manifest): small keys, and few. It never lists the chunks of a store,
//! because etcd reads the value of each key that it lists.
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
//! Between the reads and the removal, the backend may be put back to an older copy, where a record names the chunk again. So a
//! pass first puts a key, after `R`, and every removal compares that key: in a copy from before it the removal fails, and a
//! copy from after it holds all that was read.
//!
//! Whoever reads the chunk at an older revision still can, until compaction: that is the history window. Where a record of
//! an owner cannot be opened, nothing of its uid is removed.
//!
//! A writer that pauses longer than the patience for intents loses its intent here, and starts again: its commit fails.

use std::{collections::HashSet, ops::Range, time::Instant};

use bytes::Bytes;
use uuid::Uuid;

use super::{core::Core, manifest, pages::Pages, path};
use crate::{
    Error, Result,
    backend::{Compare, KeyValue, Op, Outcome, RangeRequest, Revision, Txn},
    chunk,
    store::path::Beneath,
};

/// Keys of chunks in one page. etcd reads their values: 8 MiB.
const CHUNK_PAGE: usize = 32;

/// What a pass of [`Store::collect`](crate::Store::collect) or [`Store::audit`](crate::Store::audit) did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectReport {
    /// Chunks that were looked at: those that manifests name, or in an audit all of them.
    pub chunks: u64,
    /// Chunks that were removed because no object can name them any more.
    pub removed: u64,
    /// Chunks that no object names, but one may come to: they are being written.
    pub in_flight: u64,
    /// Objects that could not be opened, so that their chunks were left alone.
    pub unreadable: u64,
    /// Chunks that an object names and that are not there, as far as an audit has asked for each by its name.
    pub missing: u64,
}

impl CollectReport {
    pub(super) fn add(&mut self, other: Self) {
        self.chunks += other.chunks;
        self.removed += other.removed;
        self.in_flight += other.in_flight;
        self.unreadable += other.unreadable;
        self.missing += other.missing;
    }
}

/// What a pass may do.
#[derive(Clone, Debug)]
pub(super) struct Duty {
    /// Whether garbage is removed, or only counted.
    pub remove: bool,
    /// That this server still is the one that collects. Saves work, and guards nothing.
    pub fence: Option<Compare>,
}

/// Judges chunks as of one revision. Holds the chunk map of one uid and a page of keys at a time.
pub(super) struct Judge<'a> {
    core: &'a Core,
    at: Revision,
    duty: &'a Duty,
    intents: HashSet<u64>,
    report: CollectReport,
    garbage: Vec<Bytes>,
    owners: Option<(Uuid, Named)>,
    /// What every removal compares, once there is one.
    claim: Option<Vec<Compare>>,
}

/// The chunks of one uid that records name.
enum Named {
    These(HashSet<chunk::Id>),
    /// A record cannot be opened: it may name any.
    Unknown,
}

impl Core {
    /// See [`Store::collect`](super::Store::collect).
    pub(super) async fn collect(&self, duty: &Duty) -> Result<CollectReport> {
        self.revision().await?; // Nothing is removed from a store that was put back.
        self.forget_old_intents().await?;
        let mut judge = Judge::begin(self, duty).await?;
        let mut manifests = Pages::new(self, path::MANIFESTS, Some(judge.at), false);
        while let Some(page) = manifests.next().await? {
            for kv in page {
                judge.meet(&kv).await?;
            }
        }
        judge.end().await
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

impl<'a> Judge<'a> {
    pub(super) async fn begin(core: &'a Core, duty: &'a Duty) -> Result<Self> {
        let at = core.revision().await?;
        let mut intents = HashSet::new();
        let mut pages = Pages::new(core, path::INTENTS, Some(at), true);
        while let Some(page) = pages.next().await? {
            intents.extend(page.iter().filter_map(|kv| path::parse_intent(&kv.key)));
        }
        let (report, garbage) = (CollectReport::default(), Vec::new());
        Ok(Self { core, at, duty, intents, report, garbage, owners: None, claim: None })
    }

    pub(super) async fn end(mut self) -> Result<CollectReport> {
        self.dispose(1).await?;
        Ok(self.report)
    }

    /// Judges what a manifest names. The manifest goes after its last chunk, and not while one of them may still be put.
    async fn meet(&mut self, kv: &KeyValue) -> Result<()> {
        let (uid, named) = match (path::parse_manifest(&kv.key), manifest::read(&kv.value)) {
            (Some(uid), Some(named)) => (uid, named),
            _ => {
                tracing::warn!("a manifest of a newer program, or of none; left alone");
                return Ok(());
            }
        };
        let (before, mut over) = (self.report, true);
        match named {
            manifest::Named::These(ids) => {
                over = !ids.iter().any(|id| self.intents.contains(&chunk::intent_of(id)));
                for id in ids {
                    self.judge(uid, &id, &[]).await?;
                }
            }
            manifest::Named::All => self.list(uid, &[]).await?,
        }
        over &= self.report.in_flight == before.in_flight;
        if over && !matches!(self.owners, Some((of, Named::Unknown)) if of == uid) {
            self.garbage.push(kv.key.clone());
        }
        self.dispose(self.core.backend.limits().txn_ops).await
    }

    /// Compares how many chunks of a uid there are with how many are named, and lists them only where that differs.
    /// `records`: of which the uid is known, whether they are owners or not.
    pub(super) async fn compare(&mut self, uid: Uuid, records: &[Bytes]) -> Result<()> {
        let all = self.count(path::chunks_of(uid)).await?;
        let chunks = all.saturating_sub(self.count(path::owners_of(uid)).await?);
        let differs = match self.named(uid, records).await? {
            Named::These(ids) => ids.len() as u64 != chunks,
            Named::Unknown => false,
        };
        if differs {
            return self.list(uid, records).await;
        }
        self.report.chunks += chunks;
        Ok(())
    }

    async fn count(&self, keys: Range<Bytes>) -> Result<u64> {
        let counted = self.core.backend.count(keys, Some(self.at)).await;
        counted.map_err(|error| self.core.error(error))
    }

    /// Judges every chunk of a uid.
    pub(super) async fn list(&mut self, uid: Uuid, records: &[Bytes]) -> Result<()> {
        let mut request = RangeRequest {
            keys: path::owners_of(uid).end..path::chunks_of(uid).end,
            at: Some(self.at),
            limit: CHUNK_PAGE,
            max_bytes: 0,
            keys_only: true,
        };
        loop {
            let page = self.core.backend.range(request.clone()).await;
            let page = page.map_err(|error| self.core.error(error))?;
            for kv in &page.kvs {
                match path::parse_chunk(&kv.key) {
                    Some(Beneath::Chunk(_, id)) => self.judge(uid, &id, records).await?,
                    _ => tracing::warn!("a key among the chunks is none of ours; left alone"),
                }
            }
            self.dispose(self.core.backend.limits().txn_ops).await?;
            let Some(last) = page.kvs.last().filter(|_| page.more) else { return Ok(()) };
            request.keys.start = path::after(&last.key);
        }
    }

    async fn judge(&mut self, uid: Uuid, id: &chunk::Id, records: &[Bytes]) -> Result<()> {
        self.report.chunks += 1;
        match self.named(uid, records).await? {
            Named::These(ids) if !ids.contains(id) => {}
            Named::These(_) | Named::Unknown => return Ok(()),
        }
        if self.intents.contains(&chunk::intent_of(id)) {
            self.report.in_flight += 1;
        } else {
            self.garbage.push(path::chunk(uid, id));
        }
        Ok(())
    }

    async fn named(&mut self, uid: Uuid, records: &[Bytes]) -> Result<&Named> {
        let known = self.owners.take().filter(|(of, _)| *of == uid);
        let named = match known {
            Some((_, named)) => named,
            None => self.read_owners(uid, records).await?,
        };
        Ok(&self.owners.insert((uid, named)).1)
    }

    async fn read_owners(&mut self, uid: Uuid, records: &[Bytes]) -> Result<Named> {
        let mut ids = HashSet::new();
        let mut owners: HashSet<Bytes> = records.iter().cloned().collect();
        owners.extend(self.core.owners(uid, Some(self.at)).await?);
        for record in owners {
            let found = self.core.backend.get(record, Some(self.at)).await;
            let opened = match found.map_err(|error| self.core.error(error)) {
                Ok(None) => continue,
                Ok(Some(kv)) => self.core.open(kv, self.at).await,
                Err(error @ Error::Damaged(_)) => Err(error),
                Err(error) => return Err(error),
            };
            match opened {
                Ok(object) if object.uid == uid => {
                    ids.extend(object.record.payload.chunks().iter().map(|chunk| chunk.id));
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "chunks of an object that does not open are left alone");
                    self.report.unreadable += 1;
                    return Ok(Named::Unknown);
                }
            }
        }
        Ok(Named::These(ids))
    }

    /// Removes garbage once there is enough of it for a transaction of `least` changes.
    async fn dispose(&mut self, least: usize) -> Result<()> {
        if !self.duty.remove {
            self.report.removed += self.garbage.drain(..).count() as u64;
        }
        let most = self.core.backend.limits().txn_ops;
        while self.garbage.len() >= least.max(1) {
            let now: Vec<_> = self.garbage.drain(..self.garbage.len().min(most)).collect();
            let chunks = now.iter().filter(|key| key.starts_with(path::CHUNKS.as_bytes())).count();
            let compares = self.claim().await?;
            let txn = Txn { compares, ops: now.into_iter().map(Op::Delete).collect() };
            match self.core.backend.txn(txn).await.map_err(|error| self.core.error(error))? {
                Outcome::Committed(_) => self.report.removed += chunks as u64,
                Outcome::Failed => return Err(overtaken()),
            }
        }
        Ok(())
    }

    /// Puts the key of this pass, if that was not done yet. Holds as long as no other pass has put its own. A full backend takes
    /// no key, and needs the removal most: there the removal compares what the duty does.
    async fn claim(&mut self) -> Result<Vec<Compare>> {
        if let Some(claim) = &self.claim {
            return Ok(claim.clone());
        }
        let (before, key) = (self.core.seen(), Bytes::from(path::COLLECTION));
        let fence: Vec<_> = self.duty.fence.iter().cloned().collect();
        let ops = vec![Op::Put(key.clone(), self.at.0.to_be_bytes().to_vec().into())];
        let put = self.core.backend.txn(Txn { compares: fence.clone(), ops }).await;
        let claim = match put.map_err(|error| self.core.error(error)) {
            Ok(Outcome::Committed(made)) => vec![Compare::ModifiedAt(key, self.core.later(before, made)?)],
            Ok(Outcome::Failed) => return Err(overtaken()),
            Err(Error::NoSpace(_)) => fence,
            Err(error) => return Err(error),
        };
        Ok(self.claim.insert(claim).clone())
    }
}

fn overtaken() -> Error {
    Error::Unavailable("another server has begun to collect".into())
}

impl Core {
    /// The paths of the records that may name chunks of a uid.
    pub(super) async fn owners(&self, uid: Uuid, at: Option<Revision>) -> Result<Vec<Bytes>> {
        let keys = path::owners_of(uid);
        let request = RangeRequest { keys, at, limit: 0, max_bytes: 0, keys_only: true };
        let page = self.backend.range(request).await.map_err(|error| self.error(error))?;
        let owner = |kv: &KeyValue| match path::parse_chunk(&kv.key) {
            Some(Beneath::Owner(_, record)) => Some(record),
            _ => None,
        };
        Ok(page.kvs.iter().filter_map(owner).collect())
    }
}
