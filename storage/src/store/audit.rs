//! An audit finds chunks that no record names and no manifest tells of: those that programs from before manifests left behind.
//!
//! It counts. Records tell how many keys there have to be under the uid of each object, and [`Backend::count`] tells how many
//! there are; etcd counts without reading a value. Only where the two differ are chunks listed and judged, by the same rules as
//! in [`collect`](super::collect). So an audit of a sound store reads its records, asks one small question for each object, and
//! never lists a chunk.
//!
//! A surplus chunk of an object that lacks another one leaves the number as it should be. So each audit asks for every key of a part of
//! the objects by its name ([`NAMED_PART`]), another part each time. What is found to be missing is logged and counted; `fsck` tells
//! which bytes are lost.
//!
//! A server does one a day, unless another one has done so. What it has done is kept in the store, so that one that was broken
//! off goes on where it ended.
//!
//! [`Backend::count`]: crate::backend::Backend::count

use std::{
    collections::BTreeMap,
    ops::Range,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use uuid::Uuid;

use super::{
    collect::{CollectReport, Duty, Judge},
    core::Core,
    pages::Pages,
    path,
    quarantine::Strays,
};
use crate::{
    Error, Result,
    backend::{self, Op, Outcome, RangeRequest, Txn, prefix_range},
    record::Sealed,
};

/// Of so many objects, one is asked for key by key in an audit. With one audit a day, that is each object once a week.
const NAMED_PART: u64 = 7;
/// Keys of one object that are asked for at once.
const PARALLEL: usize = 16;
/// Counts between two pauses, and the pause: others use the backend too.
const BURST: usize = 64;
const PAUSE: Duration = Duration::from_millis(2);
/// Objects after which the place is noted to go on from.
const NOTE_EVERY: usize = 1024;
const FORMAT: u8 = 1;

/// What records say of one uid.
#[derive(Debug, Default)]
struct Expected {
    /// Keys of chunks and owners; `None`: a record does not open.
    keys: Option<Keys>,
    records: Vec<Bytes>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Keys {
    chunks: u64,
    owners: u64,
}

/// Of which objects an audit asks for every key by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// None: the numbers have to do.
    None,
    /// Those of one part of [`NAMED_PART`], by the number of the audit.
    Part(u64),
    /// All.
    All,
}

impl Named {
    fn has(self, uid: Uuid) -> bool {
        match self {
            Self::None => false,
            Self::Part(number) => uid.as_u128() % u128::from(NAMED_PART) == u128::from(number % NAMED_PART),
            Self::All => true,
        }
    }
}

/// What the store keeps of audits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Note {
    /// One is under way: it has judged everything before this uid.
    Before(Uuid),
    /// One has ended, at this second since 1970.
    Ended(u64),
}

impl Note {
    fn value(self) -> Bytes {
        match self {
            Self::Before(uid) => [&[FORMAT, 0], &uid.as_bytes()[..]].concat().into(),
            Self::Ended(second) => [&[FORMAT, 1], &second.to_be_bytes()[..]].concat().into(),
        }
    }

    fn read(value: &[u8]) -> Option<Self> {
        match value {
            [FORMAT, 0, uid @ ..] => Uuid::from_slice(uid).ok().map(Self::Before),
            [FORMAT, 1, second @ ..] => Some(Self::Ended(u64::from_be_bytes(second.try_into().ok()?))),
            _ => None,
        }
    }
}

impl Core {
    /// Judges all chunks.
    pub(super) async fn audit(&self, duty: &Duty, named: Named) -> Result<CollectReport> {
        self.audit_from(duty, Uuid::nil(), named, false).await
    }

    /// An audit, if it is time for one. Goes on with one that was broken off.
    pub(super) async fn audit_in_turn(&self, duty: &Duty) -> Result<Option<CollectReport>> {
        let found = self.backend.get(path::AUDIT.into(), None).await.map_err(|error| self.error(error))?;
        let from = match found.and_then(|kv| Note::read(&kv.value)) {
            Some(Note::Ended(second)) if !is_due(second, now(), self.options.audit_every) => return Ok(None),
            Some(Note::Before(uid)) => uid,
            Some(Note::Ended(_)) | None => Uuid::nil(),
        };
        let number = now() / self.options.audit_every.as_secs().max(1);
        let report = self.audit_from(duty, from, Named::Part(number), true).await?;
        self.note(duty, Note::Ended(now())).await?;
        Ok(Some(report))
    }

    async fn audit_from(&self, duty: &Duty, from: Uuid, named: Named, note: bool) -> Result<CollectReport> {
        let expected = self.expected().await?;
        let mut report = CollectReport::default();
        let first = path::chunks_of(from).start;
        let start = if from.is_nil() { Bytes::from(path::CHUNKS) } else { first };
        let mut uids = expected.range(from..).peekable();
        let end = |next: Option<&Uuid>| match next {
            Some(uid) => path::chunks_of(*uid).start,
            None => prefix_range(path::CHUNKS.as_bytes()).end,
        };
        self.audit_gap(duty, start..end(uids.peek().map(|(uid, _)| *uid)), &mut report).await?;
        let mut done = 0;
        while let Some((uid, expected)) = uids.next() {
            let window = path::chunks_of(*uid).start..end(uids.peek().map(|(uid, _)| *uid));
            self.audit_window(duty, *uid, expected, window, &mut report).await?;
            if named.has(*uid) && expected.keys.is_some() {
                self.audit_names(duty, *uid, &expected.records, &mut report).await?;
            }
            done += 1;
            if done % BURST == 0 {
                tokio::time::sleep(PAUSE).await;
            }
            if note
                && done % NOTE_EVERY == 0
                && let Some((next, _)) = uids.peek()
            {
                self.note(duty, Note::Before(**next)).await?;
            }
        }
        Ok(report)
    }

    /// The keys of one uid, and those up to the next one of which a record tells.
    async fn audit_window(
        &self,
        duty: &Duty,
        uid: Uuid,
        expected: &Expected,
        window: Range<Bytes>,
        report: &mut CollectReport,
    ) -> Result<()> {
        let there = self.count(window.clone()).await?;
        if let Some(keys) = expected.keys.filter(|keys| keys.chunks + keys.owners == there) {
            report.chunks += keys.chunks;
            return Ok(());
        }
        self.audit_one(duty, uid, &expected.records, report).await?;
        self.audit_gap(duty, path::chunks_of(uid).end..window.end, report).await
    }

    /// Asks for each chunk that records of a uid name. Where one is missing, as many others may be there that nothing names: then
    /// all of its chunks are judged.
    async fn audit_names(
        &self,
        duty: &Duty,
        uid: Uuid,
        records: &[Bytes],
        report: &mut CollectReport,
    ) -> Result<()> {
        let mut missing = 0;
        for record in records {
            missing += self.missing_of(record).await?;
        }
        if missing == 0 {
            return Ok(());
        }
        tracing::error!(%uid, missing, "chunks of an object are not there; `repot storage fsck` tells which of its bytes are lost");
        report.missing += missing;
        self.metrics.found_missing_chunks(missing);
        let mut judge = Judge::begin(self, duty).await?;
        judge.list(uid, records).await?;
        let listed = judge.end().await?;
        // These were counted before.
        report.add(CollectReport { chunks: 0, ..listed });
        Ok(())
    }

    /// How many chunks are not there that the record at a path names, as of the revision at which it was read.
    async fn missing_of(&self, record: &Bytes) -> Result<u64> {
        let (Some(kv), at) = self.read(record).await? else { return Ok(0) };
        let Ok(object) = self.open(kv, at).await else { return Ok(0) };
        let keys = super::commit::chunk_keys(object.uid, object.record.payload.chunks());
        let counts = stream::iter(keys).map(|key| self.backend.count(path::only(&key), Some(at)));
        let mut counts = counts.buffer_unordered(PARALLEL);
        let mut missing = 0;
        while let Some(there) = counts.next().await {
            match there {
                Ok(there) => missing += u64::from(there == 0),
                // The history goes on meanwhile; another audit asks again.
                Err(backend::Error::Compacted { .. }) => return Ok(0),
                Err(error) => return Err(self.error(error)),
            }
        }
        Ok(missing)
    }

    /// Keys of which no record told when the audit began: garbage, or of objects that are new.
    async fn audit_gap(&self, duty: &Duty, mut gap: Range<Bytes>, report: &mut CollectReport) -> Result<()> {
        while self.count(gap.clone()).await? > 0 {
            let Some(first) = self.first(gap.clone()).await? else { return Ok(()) };
            gap.start = match path::uid_of(&first) {
                Some(uid) => {
                    self.audit_one(duty, uid, &[], report).await?;
                    path::chunks_of(uid).end
                }
                None => {
                    tracing::warn!("a key among the chunks is none of ours; left alone");
                    path::after(&first)
                }
            };
        }
        Ok(())
    }

    async fn audit_one(
        &self,
        duty: &Duty,
        uid: Uuid,
        records: &[Bytes],
        report: &mut CollectReport,
    ) -> Result<()> {
        let mut judge = Judge::begin(self, duty).await?;
        judge.compare(uid, records).await?;
        report.add(judge.end().await?);
        Ok(())
    }

    async fn count(&self, keys: Range<Bytes>) -> Result<u64> {
        if keys.start >= keys.end {
            return Ok(0);
        }
        self.backend.count(keys, None).await.map_err(|error| self.error(error))
    }

    async fn first(&self, keys: Range<Bytes>) -> Result<Option<Bytes>> {
        let request = RangeRequest { keys, at: None, limit: 1, max_bytes: 0, keys_only: true };
        let page = self.backend.range(request).await.map_err(|error| self.error(error))?;
        Ok(page.kvs.into_iter().next().map(|kv| kv.key))
    }

    /// What records say, those in quarantine among them.
    async fn expected(&self) -> Result<BTreeMap<Uuid, Expected>> {
        let mut all: BTreeMap<Uuid, Expected> = BTreeMap::new();
        for prefix in [path::REGISTRY, path::QUARANTINE] {
            let mut pages = Pages::new(self, prefix, None, true);
            while let Some(page) = pages.next().await? {
                for kv in page {
                    let Some((uid, chunks)) = self.expected_of(&kv.key).await? else { continue };
                    let known =
                        all.entry(uid).or_insert(Expected { keys: Some(Keys::default()), records: vec![] });
                    known.keys = known
                        .keys
                        .zip(chunks)
                        .map(|(keys, chunks)| Keys { chunks: keys.chunks + chunks, owners: keys.owners + 1 });
                    known.records.push(kv.key);
                }
            }
        }
        Ok(all)
    }

    /// The uid that a record claims, and how many chunks it names, if it opens; `None` where it names none, or does not tell.
    async fn expected_of(&self, path: &Bytes) -> Result<Option<(Uuid, Option<u64>)>> {
        let (kv, at) = match self.read(path).await {
            Ok((Some(kv), at)) => (kv, at),
            Ok((None, _)) | Err(Error::Damaged(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Ok(Sealed { uid, .. }) = Sealed::parse(kv.value.clone()) else { return Ok(None) };
        match self.open(kv, at).await {
            Ok(object) => {
                let chunks = super::commit::chunk_keys(uid, object.record.payload.chunks()).len() as u64;
                Ok((chunks > 0).then_some((uid, Some(chunks))))
            }
            Err(_) => Ok(Some((uid, None))),
        }
    }

    async fn note(&self, duty: &Duty, note: Note) -> Result<()> {
        let compares = duty.fence.iter().cloned().collect();
        let txn = Txn { compares, ops: vec![Op::Put(path::AUDIT.into(), note.value())] };
        match self.backend.txn(txn).await.map_err(|error| self.error(error))? {
            Outcome::Committed(_) => Ok(()),
            Outcome::Failed => Err(Error::Unavailable("another server has begun to collect".into())),
        }
    }

    /// Owners that stand under uids of which no record tells, by the path of the record: for a record that does not tell its
    /// uid any more.
    pub(super) async fn stray_owners(&self) -> Result<Strays> {
        let known = self.expected().await?;
        let (mut strays, mut start) = (Strays::new(), Bytes::from(path::CHUNKS));
        let ends = known.keys().map(|uid| (path::chunks_of(*uid).start, path::chunks_of(*uid).end));
        let last = prefix_range(path::CHUNKS.as_bytes()).end;
        for (end, next) in ends.chain([(last.clone(), last.clone())]) {
            while self.count(start.clone()..end.clone()).await? > 0 {
                let Some(first) = self.first(start.clone()..end.clone()).await? else { break };
                start = path::after(&first);
                let Some(uid) = path::uid_of(&first) else { continue };
                for record in self.owners(uid, None).await? {
                    strays.entry(record).or_default().push(uid);
                }
                start = path::chunks_of(uid).end;
            }
            start = next;
        }
        Ok(strays)
    }
}

/// Whether one that ended at a second is long enough ago. One that ended in the future was noted by a clock that is wrong.
fn is_due(ended: u64, now: u64, every: Duration) -> bool {
    now.abs_diff(ended) >= every.as_secs()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_come_back() {
        for note in [Note::Before(Uuid::from_u128(7)), Note::Ended(1 << 40)] {
            assert_eq!(Note::read(&note.value()), Some(note));
            assert_eq!(Note::read(&note.value()[1..]), None);
        }
    }

    #[test]
    fn each_object_is_asked_for_by_name_once_in_so_many_audits() {
        for uid in (0..50).map(|n| Uuid::from_u128(n * 0x1234_5678_9abc_def1)) {
            let asked = (1000..1000 + NAMED_PART).filter(|number| Named::Part(*number).has(uid)).count();
            assert_eq!(asked, 1, "{uid}");
        }
    }

    #[test]
    fn an_audit_is_due_after_its_period_or_where_a_clock_was_wrong() {
        let day = Duration::from_secs(86_400);
        assert!(!is_due(1_000_000, 1_000_000, day) && !is_due(1_000_000, 1_086_399, day));
        assert!(is_due(1_000_000, 1_086_400, day) && is_due(2_000_000, 1_000_000, day));
    }
}
