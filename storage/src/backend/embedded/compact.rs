//! Forgetting: removes superseded versions by walking the log, then lets the tables win back the space.
//!
//! Every entry of the log names the version that it superseded, so the walk is as long as what happened since the last
//! compaction, whatever the size of the store. An entry goes in the same batch as what it made superfluous: after a
//! crash the walk goes on where it was.

use std::sync::atomic::Ordering;

use fjall::{Keyspace, OwnedWriteBatch, PersistMode, Readable};

use super::{
    super::{Error, Result, Revision},
    engine::{Engine, Garbage, storage},
    layout::{self, Entry, Head},
};

/// Entries of the log that are worked off with one batch, so that writers wait for a batch and not for the whole.
const BATCH_ENTRIES: usize = 512;
/// Garbage below this is not worth rewriting tables for.
const WORTHWHILE: u64 = 16 << 20;

impl Engine {
    /// Forgets what was superseded at or before a revision. One at a time; a later call finishes what an earlier one
    /// left undone.
    pub(super) fn compact(&self, revision: Revision) -> Result<()> {
        let mut garbage = self.compacting.lock();
        let newest = self.newest();
        if revision > newest {
            return Err(Error::Future { requested: revision, newest });
        }
        if revision > self.floor() {
            self.raise_floor(revision)?;
        }
        self.sweep(&mut garbage)?;
        self.reclaim(&mut garbage)
    }

    /// Durable before anything is removed: a reader must never meet a revision of which a part is gone.
    fn raise_floor(&self, revision: Revision) -> Result<()> {
        let mut batch = self.batch();
        batch.insert(&self.meta, "floor", revision.0.to_be_bytes());
        batch.durability(Some(PersistMode::SyncData)).commit().map_err(storage)?;
        self.set_floor(revision);
        Ok(())
    }

    fn sweep(&self, garbage: &mut Garbage) -> Result<()> {
        let mut from = layout::after(self.meta_number("swept")?);
        while !self.is_stopping() {
            let Some(next) = self.sweep_batch(from, garbage)? else { return Ok(()) };
            from = next;
        }
        Ok(())
    }

    /// Works off one batch; where the next one begins, or none where nothing is left.
    fn sweep_batch(&self, from: [u8; 12], garbage: &mut Garbage) -> Result<Option<[u8; 12]>> {
        let floor = self.floor().0;
        let entries = self.entries(from, floor)?;
        let Some(last) = entries.last() else { return Ok(None) };
        // Entries of the last revision may be left over for the next batch.
        let done = if entries.len() < BATCH_ENTRIES { floor } else { last.revision - 1 };
        self.remove(&entries, done, garbage)?;
        Ok(Some(layout::place(last.revision, last.seq.saturating_add(1))))
    }

    fn entries(&self, from: [u8; 12], floor: u64) -> Result<Vec<Entry>> {
        let view = self.snapshot();
        let guards = view.range(&self.log, from..layout::after(floor)).take(BATCH_ENTRIES);
        guards
            .map(|guard| {
                let (place, stored) = guard.into_inner().map_err(storage)?;
                Entry::decode(&place, &stored)
            })
            .collect()
    }

    /// A crash would undo it harmlessly; it is synced because a journal can only be mended where no more than its last
    /// batch can be torn.
    fn remove(&self, entries: &[Entry], done: u64, garbage: &mut Garbage) -> Result<()> {
        let mut batch = self.batch();
        for entry in entries {
            self.remove_entry(&mut batch, entry, garbage);
        }
        batch.insert(&self.meta, "swept", done.to_be_bytes());
        batch.durability(Some(PersistMode::SyncData)).commit().map_err(storage)?;
        self.wrote(entries.len() as u64 * 256)
    }

    fn remove_entry(&self, batch: &mut OwnedWriteBatch, entry: &Entry, garbage: &mut Garbage) {
        batch.remove(&self.log, entry.place());
        garbage.versions += 64 + entry.key.len() as u64;
        if entry.removed {
            batch.remove(&self.versions, Head::removal(entry.revision, entry.seq).key(&entry.key));
            garbage.versions += 32 + entry.key.len() as u64;
        }
        let Some(previous) = entry.previous else { return };
        batch.remove(&self.versions, layout::version_key(&entry.key, previous.modified));
        if previous.apart {
            batch.remove(&self.values, layout::place(previous.modified, previous.seq));
            garbage.values += u64::from(previous.len);
        } else {
            garbage.versions += 32 + (entry.key.len() + previous.len as usize) as u64;
        }
    }

    /// Rewrites tables where enough of them is garbage to be worth it.
    fn reclaim(&self, garbage: &mut Garbage) -> Result<()> {
        let before = garbage.values + garbage.versions;
        if worthwhile(garbage.values, &self.values) {
            self.flush(&self.values)?;
            // The first pass finds out what in each file is garbage and drops files that are nothing else; only then
            // does the second know which files to rewrite.
            self.values.major_compact().map_err(storage)?;
            self.values.major_compact().map_err(storage)?;
            garbage.values = 0;
        }
        if worthwhile(garbage.versions, &self.versions) {
            for keyspace in [&self.versions, &self.log] {
                self.flush(keyspace)?;
                keyspace.major_compact().map_err(storage)?;
            }
            garbage.versions = 0;
        }
        if garbage.values + garbage.versions < before {
            // A journal is dropped once nothing in it is in memory alone.
            for keyspace in self.all() {
                self.flush(keyspace)?;
            }
        }
        Ok(())
    }

    /// Asks a running compaction to end early.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }
}

fn worthwhile(garbage: u64, keyspace: &Keyspace) -> bool {
    garbage >= WORTHWHILE && garbage >= keyspace.disk_space() / 8
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::sync::watch;

    use super::{
        super::{
            super::{Op, Txn},
            Options,
            commit::Committer,
        },
        *,
    };

    fn len(keyspace: &Keyspace) -> usize {
        keyspace.iter().count()
    }

    /// Overwrites 90 keys with small and large values ten times, and removes a third of them: 930 entries of the log.
    fn mk_history(engine: &std::sync::Arc<Engine>) {
        let (newest, _) = watch::channel(Revision(0));
        let mut committer = Committer::new(std::sync::Arc::clone(engine), newest, 0);
        let key = |index: usize| format!("/k/{index}").into();
        for round in 0..10 {
            let value =
                |index: usize| vec![round; if index.is_multiple_of(9) { layout::SMALL } else { 1 }].into();
            let ops = (0..90).map(|index| Op::Put(key(index), value(index))).collect();
            assert!(committer.commit(vec![Txn { compares: vec![], ops }])[0].is_ok());
        }
        let ops = (0..90).step_by(3).map(|index| Op::Delete(key(index))).collect();
        assert!(committer.commit(vec![Txn { compares: vec![], ops }])[0].is_ok());
    }

    #[test]
    fn nothing_superseded_is_left_after_a_compaction_that_was_interrupted() {
        let dir = tempfile::tempdir().unwrap();
        let engine = std::sync::Arc::new(Engine::open(dir.path(), &Options::default()).unwrap());
        mk_history(&engine);
        let newest = engine.newest();
        engine.raise_floor(newest).unwrap();
        let begin = layout::after(0);
        let next = engine.sweep_batch(begin, &mut Garbage::default()).unwrap();
        assert!(next.is_some() && len(&engine.log) == 930 - BATCH_ENTRIES, "one batch, and not all");
        drop(engine);

        let engine = Engine::open(dir.path(), &Options::default()).unwrap();
        assert_eq!((engine.newest(), engine.floor()), (newest, newest));
        engine.compact(newest).unwrap();
        // Sixty keys are alive, none of them large: every ninth is among those that were removed.
        assert_eq!([&engine.log, &engine.versions, &engine.values].map(len), [0, 60, 0]);
        drop(engine);
        assert_eq!(Engine::open(dir.path(), &Options::default()).unwrap().newest(), newest);
    }
}
