//! Objects to which nothing points any more go.
//!
//! Why none goes that somebody needs. A name is used once, so a pointer to it is put by one transaction only, and all that was
//! ever written of it is: put, then perhaps removed or replaced.
//!
//! 1. An object that is older than [`Options::orphan_age`](super::Options::orphan_age) is not being written any more: the
//!    transaction that would point to it has happened, or failed, or its writer has lost its right to commit what it would be part of.
//! 2. If at a revision `R` nothing points to such an object, nothing does at any later revision.
//! 3. When `R` is compacted, nothing points to it at any revision that can be read. Then it goes.
//!
//! What is suspected is kept in memory: a process that begins anew begins anew with this, too.

use std::{
    collections::{HashMap, HashSet},
    sync::atomic::Ordering,
};

use futures::TryStreamExt;
use object_store::ObjectMeta;
use uuid::Uuid;

use super::{Pointer, Tiered};
use crate::{
    backend::{RangeRequest, Result, Revision, prefix_range},
    canary::Canary,
};

/// Keys in one page.
const PAGE: usize = 2000;

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Objects that something points to.
    pub used: u64,
    /// Objects that nothing points to, which may still be needed by somebody.
    pub suspected: u64,
    /// Objects that were removed.
    pub removed: u64,
}

impl Tiered {
    /// One pass. Holds the names of all objects.
    ///
    /// # Errors
    /// As of the backend below and of the object store. What was done is done; another pass goes on.
    pub async fn collect(&self) -> Result<Collected> {
        // Listed before the pointers are read: what is put in between is not seen here.
        let objects = self.objects().await?;
        let (at, oldest) = (self.inner.revision().await?, self.inner.oldest().await?);
        let used = self.pointed_to(at).await?;
        let mut report = Collected::default();
        let mut suspects = std::mem::take(&mut *self.shelf.suspects.lock());
        let mut still = HashMap::new();
        let mut garbage = Vec::new();
        let mut bytes = 0;
        for (name, meta) in objects {
            bytes += meta.size;
            if used.contains(&name) {
                report.used += 1;
            } else if self.is_old(&meta) {
                let since = suspects.remove(&name).unwrap_or(at);
                if since < oldest || Canary::ObjectsGoBeforeTheirWindow.sings() {
                    garbage.push(Pointer { name, len: meta.size });
                } else {
                    still.insert(name, since);
                }
            }
        }
        report.suspected = still.len() as u64;
        report.removed = garbage.len() as u64;
        *self.shelf.suspects.lock() = still;
        self.shelf.bytes.store(bytes, Ordering::Relaxed);
        self.shelf.forget(&garbage).await;
        Ok(report)
    }

    async fn objects(&self) -> Result<Vec<(Uuid, ObjectMeta)>> {
        let shelf = &self.shelf;
        let listed = shelf.objects.list(Some(&shelf.root)).try_collect::<Vec<ObjectMeta>>().await;
        let listed = listed.map_err(|error| shelf.error(&error))?;
        let named = |meta: ObjectMeta| Some((Uuid::try_parse(meta.location.filename()?).ok()?, meta));
        Ok(listed.into_iter().filter_map(named).collect())
    }

    /// Names of objects to which something points at a revision.
    async fn pointed_to(&self, at: Revision) -> Result<HashSet<Uuid>> {
        let mut names = HashSet::new();
        let keys = prefix_range(&self.shelf.options.prefix);
        let mut request =
            RangeRequest { keys, at: Some(at), limit: PAGE, max_bytes: 4 << 20, keys_only: false };
        loop {
            let page = self.inner.range(request.clone()).await?;
            names.extend(page.kvs.iter().filter_map(|kv| Some(Pointer::read(&kv.value)?.name)));
            let Some(last) = page.kvs.last().filter(|_| page.more) else { return Ok(names) };
            request.keys.start = [&last.key[..], b"\0"].concat().into();
        }
    }

    fn is_old(&self, meta: &ObjectMeta) -> bool {
        let written = std::time::SystemTime::from(meta.last_modified);
        // A clock that is behind that of the object store makes objects younger, not older.
        let old = written.elapsed().is_ok_and(|age| age >= self.shelf.options.orphan_age);
        old || Canary::OrphansTakenYoung.sings()
    }
}
