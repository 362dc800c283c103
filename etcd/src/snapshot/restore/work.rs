//! The working directory beside the data directory, and the step by which the one becomes the other.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use repot_etcd_core::snapshot::SnapshotName;
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};

use super::{Error, Result, at};

const LOCK: &str = "lock";

/// A working directory that is ours alone while this lives, and goes with it.
#[derive(Debug)]
pub(super) struct Work {
    dir: PathBuf,
    /// Whether it stays when this goes, for another attempt to continue from.
    stays: bool,
    _lock: File,
}

impl Work {
    /// Makes it. What a restore that died left there is removed; one that lives is not disturbed.
    pub(super) fn begin(data_dir: &Path) -> Result<Self> {
        let mut work = Self::reopen(data_dir)?;
        work.stays = false;
        work.clear()?;
        Ok(work)
    }

    /// Takes it with all that an attempt before has left in it. It stays when this is dropped, until [`Work::remove`].
    pub(super) fn reopen(data_dir: &Path) -> Result<Self> {
        if fs::symlink_metadata(data_dir).is_ok() {
            return Err(Error::Exists(data_dir.to_owned()));
        }
        let dir = Self::beside(data_dir);
        // What an etcd holds is not for everybody.
        match fs::DirBuilder::new().mode(0o700).create(&dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(at(&dir)(error)),
            _ => {}
        }
        let path = dir.join(LOCK);
        let lock = File::options().create(true).truncate(false).write(true).open(&path).map_err(at(&path))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| Error::Busy(data_dir.to_owned()))?;
        Ok(Self { dir, stays: true, _lock: lock })
    }

    /// Where it is for a data directory.
    pub(super) fn beside(data_dir: &Path) -> PathBuf {
        let mut name = data_dir.file_name().map(ToOwned::to_owned).unwrap_or_default();
        name.push(".part");
        data_dir.with_file_name(name)
    }

    /// Removes all that is in it.
    pub(super) fn clear(&self) -> Result<()> {
        for entry in fs::read_dir(&self.dir).map_err(at(&self.dir))? {
            let left = entry.map_err(at(&self.dir))?.path();
            match left.is_dir() {
                true => fs::remove_dir_all(&left).map_err(at(&left))?,
                false if left.file_name().is_some_and(|name| name == LOCK) => {}
                false => fs::remove_file(&left).map_err(at(&left))?,
            }
        }
        let objects = self.dir.join("objects");
        fs::create_dir(&objects).map_err(at(&objects))
    }

    /// It goes when this is dropped.
    pub(super) fn remove(mut self) {
        self.stays = false;
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn base(&self) -> PathBuf {
        self.dir.join("base.db")
    }

    pub(super) fn object(&self, name: &SnapshotName) -> PathBuf {
        self.dir.join("objects").join(name.to_string())
    }

    pub(super) fn replay(&self) -> PathBuf {
        self.dir.join("replay")
    }

    pub(super) fn replayed(&self) -> PathBuf {
        self.dir.join("replayed.db")
    }

    pub(super) fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Lets the data directory appear. Everything in it is on disk before.
    pub(super) fn finish(&self, data_dir: &Path) -> Result<()> {
        Self::finish_from(&self.data(), data_dir)
    }

    /// The same, from another directory in it.
    pub(super) fn finish_from(data: &Path, data_dir: &Path) -> Result<()> {
        sync_tree(data)?;
        renameat_with(CWD, data, CWD, data_dir, RenameFlags::NOREPLACE).map_err(|error| match error {
            rustix::io::Errno::EXIST => Error::Exists(data_dir.to_owned()),
            other => Error::File { path: data_dir.to_owned(), source: io::Error::from(other) },
        })?;
        let parent = data_dir.parent().filter(|parent| !parent.as_os_str().is_empty());
        sync(parent.unwrap_or(Path::new(".")))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        // It takes as much room as the data, and the next attempt begins anew.
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            tracing::warn!(%error, path = %self.dir.display(), "the working directory is left behind");
        }
    }
}

fn sync(path: &Path) -> Result<()> {
    File::open(path).and_then(|file| file.sync_all()).map_err(at(path))
}

fn sync_tree(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir).map_err(at(dir))? {
        let path = entry.map_err(at(dir))?.path();
        match path.is_dir() {
            true => sync_tree(&path)?,
            false => sync(&path)?,
        }
    }
    sync(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_written_over_and_leftovers_go() {
        let place = tempfile::tempdir().expect("a directory");
        let data = place.path().join("data");
        let work = Work::begin(&data).expect("a working directory");
        assert!(matches!(Work::begin(&data), Err(Error::Busy(_))), "two at once");
        drop(work);
        let part = place.path().join("data.part");
        assert!(!part.exists(), "the working directory is left");
        // One that was killed removes nothing.
        fs::create_dir_all(part.join("replay")).expect("a directory");
        fs::write(part.join("base.db"), b"x").expect("a file");
        let work = Work::begin(&data).expect("after one that died");
        assert!(!work.replay().exists() && !work.base().exists());
        fs::create_dir_all(work.data().join("member")).expect("a directory");
        fs::write(work.data().join("member/db"), b"x").expect("a file");
        // Somebody makes the directory meanwhile.
        fs::create_dir(&data).expect("a directory");
        assert!(matches!(work.finish(&data), Err(Error::Exists(_))));
        drop(work);
        assert!(matches!(Work::begin(&data), Err(Error::Exists(_))));
        fs::remove_dir(&data).expect("it is empty");
        let work = Work::begin(&data).expect("again");
        fs::create_dir(work.data()).expect("a directory");
        fs::write(work.data().join("db"), b"x").expect("a file");
        work.finish(&data).expect("a rename");
        drop(work);
        assert_eq!(fs::read(data.join("db")).expect("the file"), b"x");
        assert!(!place.path().join("data.part").exists());
    }
}
