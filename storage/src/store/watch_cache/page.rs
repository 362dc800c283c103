//! Pages of lists from the watch cache, as of any revision that its ring of events reaches back to.
//!
//! Each event holds the state before it. So the heads as of a past revision are those of now, with the events after that
//! revision undone. Nothing is kept for a list that goes on page by page, and any replica can answer any page of it.
//! (kube-apiserver keeps copies of its tree for this: KEP-4988.)

use std::{
    collections::BTreeMap,
    ops::{Bound, RangeBounds},
};

use bytes::Bytes;

use super::{State, WatchCache};
use crate::{
    Result,
    backend::Revision,
    store::{
        core::Core,
        path,
        types::{List, Object},
    },
};

/// What is asked of the cache.
#[derive(Clone, Debug)]
pub(super) struct PageRequest {
    /// Prefix of the paths of all objects that are asked for.
    pub prefix: Bytes,
    /// As of which revision; `None`: as of whatever the cache shows now.
    pub at: Option<Revision>,
    /// Go on after this path.
    pub after: Option<Bytes>,
    /// At most this many objects; zero: no limit.
    pub limit: usize,
    /// Whether to count what comes after the page: that looks at each of them.
    pub count: bool,
}

/// States of objects that changed after a revision, as of that revision; `None`: there was no object then.
type Undone<'a> = BTreeMap<&'a Bytes, Option<Object>>;

impl WatchCache {
    /// A page from memory. `None` where the cache cannot tell: it has not come to the revision, its events do not go back to it,
    /// or an object changed since then whose state before did not open.
    pub(super) fn page(&self, request: &PageRequest) -> Option<List> {
        self.state.read().page(&self.core, request)
    }
}

impl State {
    fn page(&self, core: &Core, request: &PageRequest) -> Option<List> {
        let at = request.at.unwrap_or(self.mark.at);
        if !self.mark.ready || at > self.mark.at || at < self.floor {
            return None;
        }
        let start = request.after.as_ref().map_or(Bound::Included(&request.prefix), Bound::Excluded);
        let undone = self.undone(core, &request.prefix, start, at)?;
        let limit = if request.limit == 0 { usize::MAX } else { request.limit };
        let mut found: BTreeMap<&Bytes, Result<Object>> = self
            .unchanged(&request.prefix, start, &undone)
            .take(limit.saturating_add(1))
            // What is current now can be read now, however long ago it was written.
            .map(|(path, head)| (path, head.clone().map(|object| Object { at: self.mark.at, ..object })))
            .collect();
        found.extend(undone.iter().filter_map(|(path, object)| Some((*path, Ok(object.clone()?)))));
        let more = found.len() > limit;
        let page: Vec<_> = found.into_iter().take(limit).collect();
        let last = page.last().map(|(path, _)| *path).filter(|_| more);
        // A page that ends with what is no object is left to the backend, which says so.
        let list = List {
            objects: page.into_iter().map(|(_, object)| object).collect(),
            version: core.version(at),
            next: match last {
                Some(last) => Some(path::parse_record(last)?),
                None => None,
            },
            remaining: match last {
                Some(last) => request.count.then(|| self.count_after(&request.prefix, last, &undone)),
                None => Some(0),
            },
        };
        Some(list)
    }

    /// What changed after the revision.
    fn undone(&self, core: &Core, prefix: &Bytes, start: Bound<&Bytes>, at: Revision) -> Option<Undone<'_>> {
        let mut undone = Undone::new();
        for entry in self.ring.range(self.ring.partition_point(|entry| entry.revision <= at)..) {
            let concerned =
                entry.path.starts_with(prefix) && (start, Bound::Unbounded).contains(&&entry.path);
            // The first event after the revision has the state of then.
            if !concerned || undone.contains_key(&entry.path) {
                continue;
            }
            let event = entry.event.as_ref().ok().filter(|_| !entry.before_unknown)?;
            // The version of the last state of a removed object is that of its removal.
            let state = |object: &Object| Object { version: core.version(object.modified), ..object.clone() };
            undone.insert(&entry.path, event.before.as_ref().map(state));
        }
        Some(undone)
    }

    fn unchanged<'a>(
        &'a self,
        prefix: &'a Bytes,
        start: Bound<&'a Bytes>,
        undone: &'a Undone<'_>,
    ) -> impl Iterator<Item = (&'a Bytes, &'a Result<Object>)> {
        let heads = self.heads.range::<Bytes, _>((start, Bound::Unbounded));
        let within = heads.take_while(move |(path, _)| path.starts_with(prefix));
        within.filter(|(path, _)| !undone.contains_key(path))
    }

    /// How many objects come after the last one of a page.
    fn count_after(&self, prefix: &Bytes, last: &Bytes, undone: &Undone<'_>) -> u64 {
        let rest = self.unchanged(prefix, Bound::Excluded(last), undone).count();
        let changed = undone.iter().filter(|(path, object)| **path > last && object.is_some()).count();
        (rest + changed) as u64
    }
}
