//! The tables of the embedded store and what is known of them in memory. Knows fjall; decides nothing about revisions.

use std::{
    fs,
    ops::Deref,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use fjall::{
    Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, OwnedWriteBatch, PersistMode, Readable,
    Slice, Snapshot,
};
use parking_lot::Mutex;

use super::{
    super::{Error, Result, Revision},
    Options,
    home::Home,
    journal,
    layout::{self, Head},
    recent::Recent,
};

/// What this code writes; a store of another format is refused.
const FORMAT: &[u8] = b"1";
/// A change of this many bytes makes all tables write out what they hold in memory, so that the journal stays
/// short: the time to open a store after a crash is the time to read its journal.
const ROTATE_AFTER: u64 = 16 << 20;
/// How long to wait for a memtable to be written before reclaiming goes on without it.
const FLUSH_PATIENCE: Duration = Duration::from_secs(30);

/// The tables.
pub(super) struct Tables {
    pub(super) db: Database,
    pub(super) versions: Keyspace,
    pub(super) values: Keyspace,
    pub(super) log: Keyspace,
    pub(super) meta: Keyspace,
}

/// The open store.
pub(super) struct Engine {
    tables: Tables,
    /// The newest revision that was acknowledged.
    newest: AtomicU64,
    /// Reads before this are refused.
    floor: AtomicU64,
    /// One compaction at a time; guards what it found to be garbage and has not won back yet.
    pub(super) compacting: Mutex<Garbage>,
    /// Ask long work to end.
    pub(super) stopping: AtomicBool,
    unrotated: AtomicU64,
    /// Its revision is set when the newest one is known.
    recent: Recent,
    /// Let go of last, when no table is open any more.
    home: Home,
}

impl Deref for Engine {
    type Target = Tables;

    fn deref(&self) -> &Tables {
        &self.tables
    }
}

impl Tables {
    /// Opens the tables. Cuts a torn end off their journal where that is what they do not open for.
    fn open_mended(path: &Path, store: &Path, options: &Options) -> Result<Self> {
        let refused = match Self::database(store, options) {
            Ok(db) => return Self::with(db),
            Err(error) => error,
        };
        if matches!(refused, fjall::Error::JournalRecovery(_)) {
            let mended = journal::mend(store).map_err(|error| open_error(path, &error.into()))?;
            if mended != journal::Mended::Not {
                tracing::warn!(path = %path.display(), ?mended, "cut off a write that a crash had torn");
                return Self::open(path, store, options);
            }
        }
        Err(open_error(path, &refused))
    }

    /// `path` is the directory that its owner knows, for messages.
    fn open(path: &Path, store: &Path, options: &Options) -> Result<Self> {
        Self::database(store, options).map_err(|error| open_error(path, &error)).and_then(Self::with)
    }

    fn database(store: &Path, options: &Options) -> fjall::Result<Database> {
        Database::builder(store)
            .cache_size(options.cache_bytes - recent_bytes(options))
            .max_journaling_size(64 << 20)
            // One: with more, the first spins for as long as the others merge, and takes a core from requests.
            .worker_threads(1)
            .manual_journal_persist(true)
            .open()
    }

    fn with(db: Database) -> Result<Self> {
        let small = |bytes: u64| move || KeyspaceCreateOptions::default().max_memtable_size(bytes);
        Ok(Self {
            versions: db.keyspace("versions", small(4 << 20)).map_err(storage)?,
            values: db.keyspace("values", || values_options(8 << 20)).map_err(storage)?,
            log: db.keyspace("log", small(2 << 20)).map_err(storage)?,
            meta: db.keyspace("meta", small(1 << 20)).map_err(storage)?,
            db,
        })
    }

    /// The first entry of a new store.
    fn found(self) -> Result<()> {
        let mut batch = self.db.batch();
        batch.insert(&self.meta, "format", FORMAT);
        batch.durability(Some(PersistMode::SyncAll)).commit().map_err(storage)
    }

    fn check_format(&self, path: &Path) -> Result<()> {
        match self.meta.get("format").map_err(storage)? {
            Some(found) if *found == *FORMAT => Ok(()),
            found => Err(Error::Corrupt(format!(
                "{} holds a store of format {:?}; this version reads {:?}",
                path.display(),
                String::from_utf8_lossy(&found.unwrap_or_default()),
                String::from_utf8_lossy(FORMAT),
            ))),
        }
    }

    pub(super) fn all(&self) -> [&Keyspace; 4] {
        [&self.versions, &self.values, &self.log, &self.meta]
    }
}

/// Bytes that compaction removed since the tables were last rewritten for it.
#[derive(Default)]
pub(super) struct Garbage {
    pub(super) versions: u64,
    pub(super) values: u64,
}

impl Engine {
    /// Opens or creates the store; nothing in here walks it.
    pub(super) fn open(path: &Path, options: &Options) -> Result<Self> {
        let home = Home::take(path)?;
        let store = home.store(|store| Tables::open(path, store, options)?.found())?;
        let tables = Tables::open_mended(path, &store, options)?;
        tables.check_format(path)?;
        let mut engine = Self {
            tables,
            recent: Recent::new(Revision(0), recent_bytes(options)),
            newest: AtomicU64::new(0),
            floor: AtomicU64::new(0),
            compacting: Mutex::default(),
            stopping: AtomicBool::new(false),
            unrotated: AtomicU64::new(0),
            home,
        };
        engine.recall()?;
        engine.recent = Recent::new(engine.newest(), recent_bytes(options));
        Ok(engine)
    }

    /// The newest revision is the last of the log, or the floor where compaction emptied the log.
    fn recall(&self) -> Result<()> {
        let floor = self.meta_number("floor")?;
        let swept = self.meta_number("swept")?;
        let last = match self.log.range(layout::after(swept)..).next_back() {
            Some(guard) => layout::decode_revision(&guard.key().map_err(storage)?)?.0,
            None => 0,
        };
        self.floor.store(floor, Ordering::SeqCst);
        self.newest.store(last.max(floor), Ordering::SeqCst);
        Ok(())
    }

    pub(super) fn meta_number(&self, name: &str) -> Result<u64> {
        match self.meta.get(name).map_err(storage)? {
            Some(stored) => Ok(layout::decode_revision(&stored)?.0),
            None => Ok(0),
        }
    }

    /// A batch that is only as durable as its caller asks for.
    pub(super) fn batch(&self) -> OwnedWriteBatch {
        self.db.batch()
    }

    pub(super) fn newest(&self) -> Revision {
        Revision(self.newest.load(Ordering::SeqCst))
    }

    /// Small values that were read lately.
    pub(super) fn recent(&self) -> &Recent {
        &self.recent
    }

    pub(super) fn set_newest(&self, revision: Revision) {
        self.newest.store(revision.0, Ordering::SeqCst);
    }

    pub(super) fn floor(&self) -> Revision {
        Revision(self.floor.load(Ordering::SeqCst))
    }

    pub(super) fn set_floor(&self, revision: Revision) {
        self.floor.store(revision.0, Ordering::SeqCst);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Everything that was acknowledged before, unmoved by what comes after.
    pub(super) fn snapshot(&self) -> Snapshot {
        self.db.snapshot()
    }

    /// The newest version of a key at or before a revision, with its stored form.
    pub(super) fn head(&self, view: &Snapshot, key: &[u8], at: u64) -> Result<Option<(Head, Slice)>> {
        let range = layout::version_key(key, 0)..=layout::version_key(key, at);
        let Some(guard) = view.range(&self.versions, range).next_back() else { return Ok(None) };
        let (stored_key, stored) = guard.into_inner().map_err(storage)?;
        let (_, modified) = layout::split_version_key(&stored_key)?;
        Ok(Some((Head::decode(modified, &stored)?, stored)))
    }

    /// Counts what was written and, now and then, makes the tables write out what they hold in memory.
    pub(super) fn wrote(&self, bytes: u64) -> Result<()> {
        if self.unrotated.fetch_add(bytes, Ordering::Relaxed) + bytes < ROTATE_AFTER {
            return Ok(());
        }
        self.unrotated.store(0, Ordering::Relaxed);
        for keyspace in self.all() {
            keyspace.rotate_memtable().map_err(storage)?;
        }
        Ok(())
    }

    /// Writes out what a table holds in memory and waits for it, so that a merge sees all of it.
    pub(super) fn flush(&self, keyspace: &Keyspace) -> Result<()> {
        keyspace.rotate_memtable().map_err(storage)?;
        let deadline = Instant::now() + FLUSH_PATIENCE;
        while keyspace.sealed_memtable_count() > 0 && !self.is_stopping() {
            if Instant::now() > deadline {
                return Err(Error::Unavailable("tables are not written out in time".into()));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Bytes left for unprivileged users on the file system of the store.
    pub(super) fn free_bytes(&self) -> Result<u64> {
        let stat = rustix::fs::statvfs(self.home.path())
            .map_err(|error| Error::Unavailable(format!("cannot tell the free space: {error}")))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// Bytes that the file system holds for the store. The journal is a sparse file, so lengths would mislead.
    pub(super) fn size(&self) -> Result<u64> {
        allocated(self.home.path())
            .map_err(|error| Error::Unavailable(format!("cannot measure the store: {error}")))
    }
}

/// What small values may take of the cache.
fn recent_bytes(options: &Options) -> u64 {
    options.cache_bytes / 4
}

fn allocated(path: &Path) -> std::io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut sum = 0;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        // Tables come and go while we look.
        let Ok(metadata) = entry.metadata() else { continue };
        sum += if metadata.is_dir() { allocated(&entry.path())? } else { metadata.blocks() * 512 };
    }
    Ok(sum)
}

/// Values rest in files of their own: merging tables moves pointers of some ten bytes, and a file is rewritten only
/// when a quarter of it is garbage.
fn values_options(memtable: u64) -> KeyspaceCreateOptions {
    let apart = KvSeparationOptions::default()
        .separation_threshold(1)
        .file_target_size(64 << 20)
        .staleness_threshold(0.25)
        .age_cutoff(1.0);
    KeyspaceCreateOptions::default().max_memtable_size(memtable).with_kv_separation(Some(apart))
}

fn open_error(path: &Path, error: &fjall::Error) -> Error {
    let path = path.display();
    match error {
        fjall::Error::Io(error) => Error::Unavailable(format!("cannot open {path}: {error}")),
        other => Error::Corrupt(format!("cannot open {path}: {other}")),
    }
}

/// What a failed read, or a write that is safe to repeat, means to a caller.
#[allow(clippy::needless_pass_by_value)] // The shape `map_err` wants.
pub(super) fn storage(error: fjall::Error) -> Error {
    match error {
        fjall::Error::Io(error) => Error::Unavailable(format!("disk: {error}")),
        fjall::Error::Storage(fjall::LsmError::Io(error)) => Error::Unavailable(format!("disk: {error}")),
        fjall::Error::Poisoned => Error::Unavailable("a write to disk failed earlier".into()),
        other => Error::Corrupt(other.to_string()),
    }
}
