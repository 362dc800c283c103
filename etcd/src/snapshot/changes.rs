//! Which keys the snapshots of a store change after a revision: their names, and no values.

use std::{
    collections::{BTreeMap, btree_map},
    path::Path,
};

use repot_etcd_core::snapshot::{Kind, Revision, SnapshotName, chain};
use serde::Serialize;

use super::{
    codec::{
        Error as CodecError, EventKind,
        changes::{KeyChange, read_changes},
        decoder, delta, read_full,
    },
    inspect::{self, open, pass},
    store::{Store, Stored},
};

/// So many bytes of names are kept, each with what an entry takes beside it. Changes of further keys are only counted.
const NAMES: usize = 64 << 20;
const ENTRY: usize = 64;

/// What became of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Change {
    /// It did not exist at the revision.
    Created,
    /// It existed, and has been written since.
    Updated,
    /// It existed, and does not any more.
    Deleted,
}

/// Why the changes are not known.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A snapshot cannot be read.
    #[error(transparent)]
    Snapshot(#[from] inspect::Error),
    /// The snapshots do not follow on the revision.
    #[error("the snapshots of {store} do not hold all that came after revision {after}")]
    Gap {
        /// URL of the store.
        store: String,
        /// The revision.
        after: Revision,
        /// What is missing.
        #[source]
        source: chain::PlanError,
    },
}

/// What changed after a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// The last revision in the snapshots.
    pub reaches: Revision,
    /// The revision up to which etcd had forgotten what keys were before, where that is later than the revision that was asked for: of
    /// keys that were deleted in between, some are not known.
    pub forgotten: Option<Revision>,
    /// What became of each key, in the order of keys.
    pub keys: BTreeMap<Vec<u8>, Change>,
    /// Changes of keys beyond those that are named, since their names take too much room.
    pub further: u64,
}

impl Changes {
    /// How many keys have become this.
    #[must_use]
    pub fn count(&self, change: Change) -> usize {
        self.keys.values().filter(|other| **other == change).count()
    }
}

/// Works out what the newest snapshots of a store change after a revision. A full snapshot is unpacked into a nameless file in `scratch`.
///
/// # Errors
/// [`Error`].
pub async fn changes(store: &Store, after: Revision, scratch: &Path) -> Result<Changes, Error> {
    let all = store.list().await.map_err(inspect::Error::from)?;
    let fulls = all.iter().filter(|one| one.name.kind == Kind::Full && one.name.last > after);
    let mut found = Collector::new(after);
    if let Some(full) = fulls.max_by_key(|one| (one.name.last, one.name.created)) {
        found = read_database(store, full, found, scratch).await?;
    }
    let names: Vec<SnapshotName> = all.iter().map(|one| one.name.clone()).collect();
    let gap = |source| Error::Gap { store: store.url().to_owned(), after, source };
    for name in chain::deltas_after(&names, found.reaches).map_err(gap)? {
        if let Some(one) = all.iter().find(|one| one.name == name) {
            found = read_delta(store, one, found).await?;
        }
    }
    Ok(found.end())
}

async fn read_database(
    store: &Store,
    full: &Stored,
    mut found: Collector,
    scratch: &Path,
) -> Result<Collector, inspect::Error> {
    let failed = |source| inspect::Error::Scratch { path: scratch.to_owned(), source };
    let mut file = tempfile::tempfile_in(scratch).map_err(failed)?;
    let compression = full.name.compression;
    let work = move |input| {
        let database = read_full(decoder(compression, input), Some(&mut file))?;
        let after = found.after;
        let compacted = read_changes(&file, database.bytes, after, |change| found.note(change))?;
        found.forgotten = Some(compacted).filter(|compacted| *compacted > after);
        found.reaches = found.reaches.max(database.revisions.unwrap_or_default().current);
        Ok(found)
    };
    pass(open(store, full).await?, None, work).await.map(|(_, found)| found)
}

async fn read_delta(store: &Store, one: &Stored, mut found: Collector) -> Result<Collector, inspect::Error> {
    let name = one.name.clone();
    let work = move |input| {
        // What a full snapshot holds already is not looked at twice.
        let from = found.reaches;
        delta::read(decoder(name.compression, input), (name.start, name.last), &[], |event| {
            if event.mod_revision > from {
                let created = (event.kind == EventKind::Put).then_some(event.create_revision);
                found.note(KeyChange { key: event.key, revision: event.mod_revision, created });
            }
            Ok::<_, CodecError>(())
        })?;
        found.reaches = found.reaches.max(name.last);
        Ok(found)
    };
    pass(open(store, one).await?, None, work).await.map(|(_, found)| found)
}

/// Changes as they are read, in their order.
struct Collector {
    after: Revision,
    reaches: Revision,
    forgotten: Option<Revision>,
    /// For each key: whether it existed at the revision, and whether it exists now.
    keys: BTreeMap<Vec<u8>, (bool, bool)>,
    bytes: usize,
    further: u64,
}

impl Collector {
    fn new(after: Revision) -> Self {
        Self { after, reaches: after, forgotten: None, keys: BTreeMap::new(), bytes: 0, further: 0 }
    }

    fn note(&mut self, change: KeyChange) {
        let KeyChange { key, created, .. } = change;
        let exists = created.is_some();
        let length = key.len() + ENTRY;
        let is_full = self.bytes + length > NAMES;
        match self.keys.entry(key) {
            btree_map::Entry::Occupied(mut known) => known.get_mut().1 = exists,
            btree_map::Entry::Vacant(_) if is_full => self.further += 1,
            btree_map::Entry::Vacant(new) => {
                let existed = created.is_none_or(|created| created <= self.after);
                new.insert((existed, exists));
                self.bytes += length;
            }
        }
    }

    fn end(self) -> Changes {
        let change = |(existed, exists)| match (existed, exists) {
            (true, true) => Some(Change::Updated),
            (true, false) => Some(Change::Deleted),
            (false, true) => Some(Change::Created),
            (false, false) => None,
        };
        let keys = self.keys.into_iter().filter_map(|(key, state)| Some((key, change(state)?)));
        Changes {
            keys: keys.collect(),
            reaches: self.reaches,
            forgotten: self.forgotten,
            further: self.further,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(key: &str, revision: i64, created: Option<i64>) -> KeyChange {
        KeyChange { key: key.into(), revision: Revision(revision), created: created.map(Revision) }
    }

    #[test]
    fn key_is_named_once_by_what_became_of_it() {
        let mut found = Collector::new(Revision(10));
        for one in [
            change("new", 11, Some(11)),
            change("new", 12, Some(11)),
            change("old", 13, Some(4)),
            change("gone", 14, None),
            change("brief", 15, Some(15)),
            change("brief", 16, None),
            // Made anew: the destination has an older one of the same name.
            change("again", 17, None),
            change("again", 18, Some(18)),
        ] {
            found.note(one);
        }
        let found = found.end();
        let named: Vec<_> =
            found.keys.iter().map(|(key, change)| (String::from_utf8_lossy(key), *change)).collect();
        let wanted = [
            ("again", Change::Updated),
            ("gone", Change::Deleted),
            ("new", Change::Created),
            ("old", Change::Updated),
        ];
        assert_eq!(named, wanted.map(|(key, change)| (key.into(), change)));
        assert_eq!(found.count(Change::Updated), 2);
    }

    #[test]
    fn names_take_no_more_than_their_room_and_the_rest_is_counted() {
        let mut found = Collector::new(Revision(1));
        let key = |at: usize| format!("{at}{}", "k".repeat(1_000_000));
        for at in 0..70 {
            found.note(change(&key(at), 2, Some(2)));
        }
        found.note(change(&key(0), 3, None));
        let found = found.end();
        assert_eq!((found.keys.len(), found.further), (66, 3));
    }
}
