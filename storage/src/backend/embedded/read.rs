//! Reads: one key, several keys, a page, a stretch of the log. Decides which version a reader sees; writes nothing.

use bytes::Bytes;
use fjall::{Readable, Slice, Snapshot};

use super::{
    super::{Error, KeyEvent, KeyValue, Page, RangeRequest, Result, Revision},
    engine::{Engine, storage},
    layout::{self, Entry, Head, VERSION_HEADER},
};

/// Entries of the log that one look may pass over, whatever their keys, so that a look is short.
const LOOK_ENTRIES: usize = 4096;

/// The store as of one revision. Nothing that happens later, compaction included, changes what it shows.
pub(super) struct View<'a> {
    engine: &'a Engine,
    snapshot: Snapshot,
    at: Revision,
}

impl Engine {
    /// The store as of a revision, or the newest.
    pub(super) fn view(&self, at: Option<Revision>) -> Result<View<'_>> {
        loop {
            let newest = self.newest();
            let asked = at.unwrap_or(newest);
            if asked > newest {
                return Err(Error::Future { requested: asked, newest });
            }
            // The snapshot comes before the look at the floor: compaction raises the floor first and removes
            // afterwards, so a snapshot that is older than the floor we see still holds everything above it.
            let snapshot = self.snapshot();
            let oldest = self.floor();
            match (asked < oldest, at) {
                (false, _) => return Ok(View { engine: self, snapshot, at: asked }),
                (true, Some(requested)) => return Err(Error::Compacted { requested, oldest }),
                // The newest revision moved on and was compacted between the two looks.
                (true, None) => {}
            }
        }
    }
}

impl View<'_> {
    /// The revision that it shows.
    pub(super) fn revision(&self) -> Revision {
        self.at
    }

    /// One key.
    pub(super) fn get(&self, key: &Bytes) -> Result<Option<KeyValue>> {
        match self.engine.head(&self.snapshot, key, self.at.0)? {
            Some((head, stored)) if !head.removed => self.key_value(key.clone(), head, &stored).map(Some),
            _ => Ok(None),
        }
    }

    /// A page of keys.
    pub(super) fn range(&self, request: &RangeRequest) -> Result<Page> {
        let mut page = Page { kvs: Vec::new(), revision: self.at, more: false };
        let mut bytes = 0;
        let mut candidate: Option<(Bytes, Head, Slice)> = None;
        for guard in self.snapshot.range(&self.engine.versions, bounds(request)) {
            let (stored_key, stored) = guard.into_inner().map_err(storage)?;
            let (key, revision) = layout::split_version_key(&stored_key)?;
            if revision > self.at.0 || key < &request.keys.start[..] {
                continue;
            }
            if candidate.as_ref().is_some_and(|(seen, ..)| seen != key)
                && !self.emit(candidate.take(), request, &mut page, &mut bytes)?
            {
                return Ok(page);
            }
            if !request.keys.end.is_empty() && key >= &request.keys.end[..] {
                return Ok(page);
            }
            let key = candidate.map_or_else(|| Bytes::copy_from_slice(key), |(seen, ..)| seen);
            candidate = Some((key, Head::decode(revision, &stored)?, stored));
        }
        self.emit(candidate, request, &mut page, &mut bytes)?;
        Ok(page)
    }

    /// Adds a live key to the page; false when the page is full and there is one key more.
    fn emit(
        &self,
        found: Option<(Bytes, Head, Slice)>,
        request: &RangeRequest,
        page: &mut Page,
        bytes: &mut usize,
    ) -> Result<bool> {
        let Some((key, head, stored)) = found else { return Ok(true) };
        if head.removed {
            return Ok(true);
        }
        let by_count = request.limit != 0 && page.kvs.len() >= request.limit;
        let by_size = request.max_bytes != 0 && *bytes >= request.max_bytes;
        if by_count || by_size {
            page.more = true;
            return Ok(false);
        }
        if request.keys_only {
            page.kvs.push(key_value(key, head, Bytes::new()));
        } else {
            *bytes += head.len as usize;
            page.kvs.push(self.key_value(key, head, &stored)?);
        }
        Ok(true)
    }

    fn key_value(&self, key: Bytes, head: Head, stored: &Slice) -> Result<KeyValue> {
        Ok(key_value(key, head, self.value(&head, stored)?))
    }

    fn value(&self, head: &Head, stored: &Slice) -> Result<Bytes> {
        if !head.apart {
            // A copy, because the slice would keep its whole block of the table in memory.
            return Ok(Bytes::copy_from_slice(&stored[VERSION_HEADER..]));
        }
        let value = self.snapshot.get(&self.engine.values, head.place()).map_err(storage)?;
        value.map(Bytes::from).ok_or_else(|| Error::Corrupt("a value is missing from its place".into()))
    }

    /// What happened to keys with a prefix after `from`, in whole transactions, until about `max_bytes` are gathered or
    /// enough of the log has been passed. The second part is the revision up to which the look was complete.
    pub(super) fn events(
        &self,
        prefix: &[u8],
        from: Revision,
        max_bytes: usize,
    ) -> Result<(Vec<KeyEvent>, Revision)> {
        let (mut events, mut bytes, mut passed, mut seen) = (Vec::new(), 0, 0, from.0);
        let range = layout::after(from.0)..layout::after(self.at.0);
        for guard in self.snapshot.range(&self.engine.log, range) {
            let (place, stored) = guard.into_inner().map_err(storage)?;
            let entry = Entry::decode(&place, &stored)?;
            if entry.revision > seen && (bytes >= max_bytes || passed >= LOOK_ENTRIES) {
                return Ok((events, Revision(seen)));
            }
            (seen, passed) = (entry.revision, passed + 1);
            if entry.key.starts_with(prefix) {
                let event = self.event(entry)?;
                bytes += event.key.len() + event.now.as_ref().map_or(0, |now| now.value.len());
                bytes += event.before.as_ref().map_or(0, |before| before.value.len());
                events.push(event);
            }
        }
        Ok((events, self.at))
    }

    fn event(&self, entry: Entry) -> Result<KeyEvent> {
        let now = match entry.removed {
            true => None,
            false => Some(
                self.version(&entry.key, entry.revision)?
                    .ok_or_else(|| Error::Corrupt("the log names a version that is not there".into()))?,
            ),
        };
        let before = match entry.previous {
            Some(previous) => self.version(&entry.key, previous.modified)?,
            None => None,
        };
        Ok(KeyEvent { key: entry.key, revision: Revision(entry.revision), now, before })
    }

    /// The version of a key that was written at exactly this revision.
    fn version(&self, key: &Bytes, modified: u64) -> Result<Option<KeyValue>> {
        let stored_key = layout::version_key(key, modified);
        match self.snapshot.get(&self.engine.versions, stored_key).map_err(storage)? {
            Some(stored) => self.key_value(key.clone(), Head::decode(modified, &stored)?, &stored).map(Some),
            None => Ok(None),
        }
    }
}

fn key_value(key: Bytes, head: Head, value: Bytes) -> KeyValue {
    KeyValue { key, value, created: Revision(head.created), modified: Revision(head.modified) }
}

/// Bounds in `versions` that hold all versions of all keys asked for, and of few others: a version key is its key and a
/// NUL, so a bound that itself ends in a NUL ("just after this key") has to be widened and the keys compared again.
fn bounds(request: &RangeRequest) -> (std::ops::Bound<Vec<u8>>, std::ops::Bound<Vec<u8>>) {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    let start = Included(request.keys.start.to_vec());
    let end = &request.keys.end[..];
    match end.strip_suffix(&[0]) {
        _ if end.is_empty() => (start, Unbounded),
        Some(key) => (start, Excluded([key, &[1]].concat())),
        None => (start, Excluded(end.to_vec())),
    }
}
