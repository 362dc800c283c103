//! Objects to which nothing points any more are kept for their retention, and then removed.
//!
//! Why none is removed that somebody needs. A name is used once, so a pointer to it is put by one transaction only, and all that
//! was ever written of it is: put, then perhaps removed or replaced.
//!
//! 1. A pass lists the objects, then puts [`PASS`], and then reads the pointers, at the revision of that put. A transaction that
//!    points to an object compares that [`PASS`] is still what it was before the object was put ([`super::write`]). So for an
//!    object in the list, that transaction happened before the put, and the pass reads the pointer, or it never happens:
//!    however long its writer was suspended.
//! 2. If at this revision `R` nothing points to such an object, nothing does at any later revision.
//! 3. When `R` is compacted, nothing points to it at any revision that can be read.
//! 4. A snapshot of the backend below may still point to it, if it was taken before `R`. So the object stays for
//!    [`Options::retention`](super::Options::retention) after it was seen, at `R` or later, that nothing points to it. Whoever
//!    restores a snapshot that is not older than that finds every object.
//!
//! With [`Options::retention_max_bytes`](super::Options::retention_max_bytes), 4 ends earlier for the objects to which nothing has
//! pointed for longest; 1 to 3 hold for these, too.
//!
//! When that was seen is kept in the [ledger](super::ledger). After a restore the ledger is not believed, because what nothing
//! pointed to before may be pointed to again: all of the retention begins anew. All times are those of the object store, read
//! from an object that each pass puts; the clock of the server does not matter.
//!
//! An object that is younger than [`Options::orphan_age`](super::Options::orphan_age) is left alone. That saves the ledger the
//! objects of writes that are under way, and keeps those of servers of earlier versions, which do not compare [`PASS`].
//!
//! Several replicas may do this at once: a pass that another one overtook, at its beginning or its end, removes nothing.

use std::{
    collections::HashSet,
    sync::atomic::Ordering,
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use futures::StreamExt;
use object_store::{ObjectMeta, ObjectStoreExt};
use uuid::Uuid;

use super::{
    ChunkStore, PASS, Pointer, Tiered,
    ledger::{Ledger, Since},
};
use crate::backend::{
    Compare, Error, KeyValue, Op, Outcome, RangeRequest, Result, Revision, Txn, prefix_range,
};

/// Keys, or objects, in one page.
const PAGE: usize = 2000;
/// The object that holds the ledger.
const LEDGER: &str = "repot-unreferenced";
/// The object that is put to read the clock of the object store.
const CLOCK: &str = "repot-clock";
/// Between two passes that a server does by itself: this part of the retention, and no longer than that.
const PASSES: u32 = 24;
const MOST_BETWEEN: Duration = Duration::from_secs(6 * 3600);

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Objects that something points to.
    pub used: u64,
    /// Objects that nothing points to, which are kept for now.
    pub suspected: u64,
    /// Objects that were removed.
    pub removed: u64,
    /// Of these, objects that were removed before their retention was over, because of
    /// [`Options::retention_max_bytes`](super::Options::retention_max_bytes).
    pub evicted: u64,
}

/// What a pass may remove.
#[derive(Default)]
struct Removable {
    /// Objects whose retention is over.
    expired: Vec<Pointer>,
    /// Objects that are kept for their retention only, and since when.
    kept: Vec<(u64, Pointer)>,
    /// Bytes of all objects to which nothing points.
    unused: u64,
}

impl Removable {
    /// The objects to be removed because all that nothing points to would be over `most` bytes: those to which nothing has pointed for
    /// longest. Fewer than needed where the others can still be read.
    fn evict(&mut self, most: u64) -> Vec<Pointer> {
        let expired: u64 = self.expired.iter().map(|object| object.len).sum();
        let mut over = match most {
            0 => 0,
            most => (self.unused - expired).saturating_sub(most),
        };
        self.kept.sort_unstable_by_key(|(since, object)| (*since, object.name));
        let needed = self.kept.drain(..).map_while(|(_, object)| {
            let needed = over > 0;
            over = over.saturating_sub(object.len);
            needed.then_some(object)
        });
        needed.collect()
    }
}

impl Tiered {
    /// One pass. Holds the names of all objects.
    ///
    /// # Errors
    /// As of the backend below and of the object store. What was done is done; another pass goes on.
    pub async fn collect(&self) -> Result<Collected> {
        let (now, begin) = (self.chunk_store.now().await?, Instant::now());
        // Listed before the pass begins: what is put in between is not seen here.
        let objects = self.objects().await?;
        let Some((last, at)) = self.begin_pass().await? else { return Ok(Collected::default()) };
        let oldest = self.inner.oldest().await?;
        let mut used = HashSet::new();
        self.pointers(at, |_, pointer| used.extend([pointer.name])).await?;
        let before =
            self.chunk_store.ledger().await?.filter(|ledger| last == ledger.pass).unwrap_or_default();
        let seen = Since { millis: now + u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX), at };
        let (mut report, mut next) =
            (Collected::default(), Ledger { pass: Uuid::new_v4(), ..Ledger::default() });
        let (mut removable, mut bytes) = (Removable::default(), 0);
        for (name, meta) in objects {
            bytes += meta.size;
            if used.contains(&name) {
                report.used += 1;
            } else if self.is_old(&meta, now) {
                let since = before.objects.get(&name).copied().unwrap_or(seen);
                next.objects.insert(name, since);
                removable.unused += meta.size;
                let object = Pointer { name, len: meta.size };
                if is_unread(since, oldest) {
                    match self.is_over(since, now) {
                        true => removable.expired.push(object),
                        false => removable.kept.push((since.millis, object)),
                    }
                }
            }
        }
        if self.put_pass(next.pass, at).await?.is_none() {
            return Ok(report); // Another pass began after this one.
        }
        self.chunk_store.put_ledger(&next).await?;
        self.chunk_store.bytes.store(bytes, Ordering::Relaxed);
        let unused = removable.unused;
        let freed = self.remove(removable, &mut report).await;
        report.suspected = next.objects.len() as u64 - report.removed;
        self.chunk_store.metrics.passed(report.suspected, unused - freed, SystemTime::now());
        Ok(report)
    }

    /// Removes what is to go. The bytes that were freed.
    async fn remove(&self, mut removable: Removable, report: &mut Collected) -> u64 {
        let evicted = removable.evict(self.chunk_store.options.retention_max_bytes);
        let (removed, freed) = self.chunk_store.forget(&removable.expired).await;
        let (early, freed_early) = self.chunk_store.forget(&evicted).await;
        (report.removed, report.evicted) = (removed + early, early);
        if early > 0 {
            self.chunk_store.metrics.evicted(early, freed_early);
            tracing::warn!(
                objects = early,
                bytes = freed_early,
                "objects of the chunk store were removed before --chunk-retention was over, because together they are over \
                 --chunk-retention-max-bytes: snapshots of etcd that need them cannot be restored whole"
            );
        }
        freed + freed_early
    }

    /// A pass, if the last one of this handle is long enough ago.
    pub(super) async fn collect_in_turn(&self) -> Result<()> {
        let every = (self.chunk_store.options.retention / PASSES).min(MOST_BETWEEN);
        let due = self.chunk_store.passed.lock().is_none_or(|last| last.elapsed() >= every);
        if due {
            let report = self.collect().await?;
            *self.chunk_store.passed.lock() = Some(Instant::now());
            tracing::info!(?report, "objects of the chunk store were collected");
        }
        Ok(())
    }

    /// The keys of values whose objects are not there.
    pub(super) async fn without_object(&self) -> Result<Vec<Bytes>> {
        let at = self.inner.revision().await?;
        let mut pointers = Vec::new();
        self.pointers(at, |kv, pointer| pointers.push((kv.key.clone(), pointer.name))).await?;
        // Listed afterwards: an object is there before anything points to it.
        let there: HashSet<Uuid> = self.objects().await?.into_iter().map(|(name, _)| name).collect();
        pointers.retain(|(_, name)| !there.contains(name));
        Ok(pointers.into_iter().map(|(key, _)| key).collect())
    }

    /// Every object with a value. Each page of the list may take as long as one request: a large store takes its time, and one
    /// that hangs is an error.
    async fn objects(&self) -> Result<Vec<(Uuid, ObjectMeta)>> {
        let chunk_store = &self.chunk_store;
        let mut pages = chunk_store.objects.list(Some(&chunk_store.root)).ready_chunks(PAGE);
        let mut found = Vec::new();
        // A bucket that is not there lists nothing, which is not that nothing is left in it.
        chunk_store.check_marker().await?;
        while let Some(page) = chunk_store.in_time(pages.next()).await? {
            for meta in page {
                let meta = meta.map_err(|error| {
                    Error::Unavailable(format!("{} cannot be listed: {error}", chunk_store.url))
                })?;
                let name = meta.location.filename().and_then(|name| Uuid::try_parse(name).ok());
                found.extend(name.map(|name| (name, meta)));
            }
        }
        chunk_store.check_marker().await?;
        Ok(found)
    }

    /// Tells of every pointer that there is at a revision.
    async fn pointers(&self, at: Revision, mut each: impl FnMut(&KeyValue, Pointer)) -> Result<()> {
        let keys = prefix_range(&self.chunk_store.options.prefix);
        let mut request =
            RangeRequest { keys, at: Some(at), limit: PAGE, max_bytes: 4 << 20, keys_only: false };
        loop {
            let page = self.inner.range(request.clone()).await?;
            for kv in &page.kvs {
                if let Some(pointer) = Pointer::read(&kv.value) {
                    each(kv, pointer);
                }
            }
            let Some(last) = page.kvs.last().filter(|_| page.more) else { return Ok(()) };
            request.keys.start = [&last.key[..], b"\0"].concat().into();
        }
    }

    /// The name of the last pass that ended, as the backend below knows it, and when [`PASS`] was last put.
    pub(super) async fn last_pass(&self) -> Result<(Option<Uuid>, Revision)> {
        let found = self.inner.get(PASS.into(), None).await?;
        let (name, put) =
            found.map_or((None, Revision(0)), |kv| (Uuid::from_slice(&kv.value).ok(), kv.modified));
        *self.chunk_store.pass.lock() = Some(put);
        Ok((name, put))
    }

    /// Puts [`PASS`] again, as it is: no transaction commits any more that began before. The name of the last pass, and the
    /// revision of the put; `None`: another pass began at the same time.
    async fn begin_pass(&self) -> Result<Option<(Uuid, Revision)>> {
        let (last, before) = self.last_pass().await?;
        let last = last.unwrap_or_else(Uuid::new_v4); // No ledger has this name.
        Ok(self.put_pass(last, before).await?.map(|at| (last, at)))
    }

    /// Puts [`PASS`] unless another pass did since. The revision.
    async fn put_pass(&self, name: Uuid, before: Revision) -> Result<Option<Revision>> {
        let compares = vec![Compare::ModifiedAt(PASS.into(), before)];
        let ops = vec![Op::Put(PASS.into(), Bytes::copy_from_slice(name.as_bytes()))];
        let Outcome::Committed(put) = self.inner.txn(Txn { compares, ops }).await? else { return Ok(None) };
        *self.chunk_store.pass.lock() = Some(put);
        Ok(Some(put))
    }

    fn is_old(&self, meta: &ObjectMeta, now: u64) -> bool {
        is_past(millis(meta), now, self.chunk_store.options.orphan_age)
    }

    /// Whether its retention is over.
    fn is_over(&self, since: Since, now: u64) -> bool {
        is_past(since.millis, now, self.chunk_store.options.retention)
    }
}

impl ChunkStore {
    /// The time of the object store, in milliseconds since 1970.
    async fn now(&self) -> Result<u64> {
        let path = self.root.clone().join(CLOCK);
        self.within(self.objects.put(&path, Bytes::new().into())).await?;
        let meta = self.within(self.objects.head(&path)).await?;
        Ok(millis(&meta))
    }

    async fn ledger(&self) -> Result<Option<Ledger>> {
        let path = self.root.clone().join(LEDGER);
        let read = async { self.objects.get(&path).await?.bytes().await };
        match self.within(read).await {
            Ok(bytes) => Ok(Ledger::read(&bytes)),
            Err(Error::Corrupt(_)) => Ok(None), // Not there yet.
            Err(error) => Err(error),
        }
    }

    async fn put_ledger(&self, ledger: &Ledger) -> Result<()> {
        let path = self.root.clone().join(LEDGER);
        self.within(self.objects.put(&path, ledger.bytes().into())).await.map(drop)
    }
}

/// Whether no revision that can be read points to an object.
fn is_unread(since: Since, oldest: Revision) -> bool {
    since.at < oldest
}

fn millis(meta: &ObjectMeta) -> u64 {
    u64::try_from(meta.last_modified.timestamp_millis()).unwrap_or(0)
}

/// Whether a period has passed. With none, also where times are those of one moment.
fn is_past(since: u64, now: u64, period: Duration) -> bool {
    period.is_zero() || u128::from(now.saturating_sub(since)) >= period.as_millis()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_passes_by_one_clock_that_may_stand_still() {
        let hour = Duration::from_secs(3600);
        assert!(!is_past(1_000, 3_600_999, hour) && is_past(1_000, 3_601_000, hour));
        assert!(!is_past(5_000, 1_000, hour), "what comes from the future is young");
        assert!(is_past(5_000, 1_000, Duration::ZERO));
    }
}
