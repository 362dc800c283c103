//! The directory of a store: who owns it, and how a store comes into being in it.
//!
//! ```text
//! <directory>/lock       held by the owner, as long as it lives
//! <directory>/store      the tables
//! <directory>/store.new  tables that are being made; left behind only by a crash, holds nothing
//! ```

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use super::super::{Error, Result};

/// How often the lock is tried again, and the pause between: a predecessor may be about to end, and a process that was
/// forked off holds a copy of the lock until it runs its own program.
const PATIENCE: usize = 10;
const PAUSE: Duration = Duration::from_millis(30);

/// A directory that belongs to this handle until it is dropped.
pub(super) struct Home {
    path: PathBuf,
    _lock: File,
}

impl Home {
    /// Makes the directory where it does not exist, and takes possession of it.
    pub(super) fn take(path: &Path) -> Result<Self> {
        let failed =
            |error: io::Error| Error::Unavailable(format!("cannot open {}: {error}", path.display()));
        fs::create_dir_all(path).map_err(failed)?;
        let lock = File::options().create(true).append(true).open(path.join("lock")).map_err(failed)?;
        let mut patience = PATIENCE;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(Self { path: path.to_owned(), _lock: lock }),
                Err(TryLockError::WouldBlock) if patience > 0 => patience -= 1,
                Err(TryLockError::WouldBlock) => {
                    return Err(Error::Unavailable(format!(
                        "{} is in use by another process",
                        path.display()
                    )));
                }
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
            std::thread::sleep(PAUSE);
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the tables are. Where there are none, `make` makes them under another name first: a crash on the way leaves
    /// nothing that looks like a store.
    pub(super) fn store(&self, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let failed = |error: io::Error| {
            Error::Unavailable(format!("cannot make a store in {}: {error}", self.path.display()))
        };
        let (store, new) = (self.path.join("store"), self.path.join("store.new"));
        if !store.try_exists().map_err(failed)? {
            match fs::remove_dir_all(&new) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
            make(&new)?;
            fs::rename(&new, &store).map_err(failed)?;
            File::open(&self.path).and_then(|directory| directory.sync_all()).map_err(failed)?;
        }
        Ok(store)
    }
}
