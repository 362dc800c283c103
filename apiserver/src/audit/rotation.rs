//! A file of the audit log that is changed for a new one when it is full.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// How files are kept.
#[derive(Clone, Copy, Debug)]
pub struct Rotation {
    /// Size at which a file is full.
    pub most_bytes: u64,
    /// Full files that are kept; zero: all.
    pub backups: usize,
    /// For how long they are kept; zero: for ever.
    pub age: Duration,
}

/// A file, and full ones beside it with the time in their names.
pub(super) struct Rotated {
    path: PathBuf,
    rotation: Rotation,
    file: File,
    /// Bytes of whole lines.
    length: u64,
    /// Not a pipe or a device.
    regular: bool,
    /// Size at which a new file is begun.
    full_at: u64,
    /// Whether the file may end with a part of a line.
    torn: bool,
}

impl Rotated {
    pub(super) fn open(path: PathBuf, rotation: Rotation) -> io::Result<Self> {
        let file = append(&path)?;
        let found = file.metadata()?;
        let (length, regular) = (found.len(), found.is_file());
        // A process that was killed may have left a part of a line.
        let torn = regular && length > 0 && !ends_with_a_line(&path)?;
        Ok(Self { path, rotation, file, length, regular, full_at: rotation.most_bytes, torn })
    }

    /// Appends a line.
    ///
    /// # Errors
    /// When it is not in the file as a whole. A part of it is taken out again, where that is possible.
    pub(super) fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if self.regular && self.length > 0 && self.length + line.len() as u64 > self.full_at {
            self.rotate_or_grow();
        }
        if self.torn {
            self.file.write_all(b"\n")?;
            self.torn = false;
            self.length += 1;
        }
        match self.file.write_all(line) {
            Ok(()) => {
                self.length += line.len() as u64;
                Ok(())
            }
            Err(error) => {
                self.torn = !self.cut_off();
                Err(error)
            }
        }
    }

    /// Takes out what was written of a line that failed. False where it may still be there.
    fn cut_off(&self) -> bool {
        let found = self.file.metadata().map(|found| found.len());
        self.regular
            && match found {
                // Somebody else has emptied the file meanwhile.
                Ok(length) if length <= self.length => true,
                Ok(_) => self.file.set_len(self.length).is_ok(),
                Err(_) => false,
            }
    }

    /// An event is worth more than a bound on the size of a file: where no new file can be begun, the old one grows, and a new
    /// one is tried for again after another tenth of its size.
    fn rotate_or_grow(&mut self) {
        match self.rotate() {
            Ok(()) => self.full_at = self.rotation.most_bytes,
            Err(error) => {
                tracing::error!(%error, path = %self.path.display(), "the audit log could not be rotated");
                self.full_at = self.length + (self.rotation.most_bytes / 10).max(1);
            }
        }
    }

    fn rotate(&mut self) -> io::Result<()> {
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H-%M-%S%.6f").to_string();
        let full = self.path.with_file_name(format!("{}{now}{}", self.stem(), self.end()));
        match std::fs::rename(&self.path, full) {
            // Somebody else has put the file aside.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
        (self.file, self.length, self.torn) = (append(&self.path)?, 0, false);
        if let Err(error) = self.forget() {
            tracing::error!(%error, "old files of the audit log could not be removed");
        }
        Ok(())
    }

    /// Beginning of the names of full files: `audit-` for `audit.log`.
    fn stem(&self) -> String {
        format!("{}-", self.path.file_stem().unwrap_or_default().to_string_lossy())
    }

    /// End of the names of full files: `.log` for `audit.log`.
    fn end(&self) -> String {
        self.path.extension().map(|end| format!(".{}", end.to_string_lossy())).unwrap_or_default()
    }

    /// Removes full files that are too many or too old.
    fn forget(&self) -> io::Result<()> {
        let (stem, end) = (self.stem(), self.end());
        let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut full = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let time = name.strip_prefix(&stem).and_then(|rest| rest.strip_suffix(&end));
            // Others may keep files of similar names here.
            if time.is_some_and(|time| time.len() == 26 && time.starts_with(|c: char| c.is_ascii_digit())) {
                full.push((name, entry));
            }
        }
        full.sort_by(|a, b| b.0.cmp(&a.0));
        let Rotation { backups, age, .. } = self.rotation;
        let now = SystemTime::now();
        for (at, (_, entry)) in full.iter().enumerate() {
            let changed = entry.metadata()?.modified()?;
            let old = !age.is_zero() && now.duration_since(changed).is_ok_and(|passed| passed > age);
            if (backups > 0 && at >= backups) || old {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

fn ends_with_a_line(path: &Path) -> io::Result<bool> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_files_are_put_aside_and_the_oldest_forgotten() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("audit.log");
        std::fs::write(dir.path().join("audit-notes.log"), "not ours").expect("written");
        let rotation = Rotation { most_bytes: 10, backups: 2, age: Duration::ZERO };
        let mut file = Rotated::open(path.clone(), rotation).expect("opened");
        for line in ["one one\n", "two\n", "three three three\n", "four\n", "five\n", "six\n"] {
            file.write(line.as_bytes()).expect("written");
        }
        let read = |path: &Path| std::fs::read_to_string(path).expect("read");
        assert_eq!(read(&path), "six\n");
        let mut others: Vec<PathBuf> = std::fs::read_dir(dir.path())
            .expect("a directory")
            .map(|e| e.expect("an entry").path())
            .collect();
        others.retain(|other| *other != path);
        others.sort();
        let texts: Vec<String> = others.iter().map(|path| read(path)).collect();
        assert_eq!(texts, ["three three three\n", "four\nfive\n", "not ours"]);
        // What was written before a restart is gone on with.
        let mut again = Rotated::open(path.clone(), rotation).expect("opened");
        again.write(b"7\n").expect("written");
        assert_eq!(read(&path), "six\n7\n");
    }

    #[test]
    fn events_are_written_although_the_file_cannot_be_rotated() {
        let dir = tempfile::tempdir().expect("a directory");
        let (inner, moved) = (dir.path().join("logs"), dir.path().join("moved"));
        std::fs::create_dir(&inner).expect("made");
        let rotation = Rotation { most_bytes: 10, backups: 0, age: Duration::ZERO };
        let mut file = Rotated::open(inner.join("audit.log"), rotation).expect("opened");
        file.write(b"one one\n").expect("written");
        std::fs::rename(&inner, &moved).expect("moved");
        // No directory to begin a new file in; the open one takes the events meanwhile.
        file.write(b"two two\n").expect("written");
        assert_eq!(std::fs::read_to_string(moved.join("audit.log")).expect("read"), "one one\ntwo two\n");
        std::fs::create_dir(&inner).expect("made again");
        file.write(b"three three\n").expect("written");
        assert_eq!(std::fs::read_to_string(inner.join("audit.log")).expect("read"), "three three\n");
    }

    #[test]
    fn a_line_that_was_written_in_part_does_not_spoil_the_next() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("audit.log");
        let rotation = Rotation { most_bytes: 1000, backups: 0, age: Duration::ZERO };
        let mut file = Rotated::open(path.clone(), rotation).expect("opened");
        file.write(b"one\n").expect("written");
        // What a full disk leaves of a line.
        file.file.write_all(b"tw").expect("written");
        assert!(file.cut_off());
        file.write(b"three\n").expect("written");
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "one\nthree\n");
        // What a process left that was killed while it wrote.
        file.file.write_all(b"fo").expect("written");
        let mut again = Rotated::open(path.clone(), rotation).expect("opened");
        again.write(b"five\n").expect("written");
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "one\nthree\nfo\nfive\n");
    }

    #[test]
    fn old_files_are_forgotten() {
        let dir = tempfile::tempdir().expect("a directory");
        let old = dir.path().join("audit-2020-01-01T00-00-00.000000.log");
        std::fs::write(&old, "old").expect("written");
        let then = SystemTime::now() - Duration::from_secs(3 * 86_400);
        File::options().write(true).open(&old).expect("opened").set_modified(then).expect("set");
        let rotation = Rotation { most_bytes: 4, backups: 0, age: Duration::from_secs(2 * 86_400) };
        let mut file = Rotated::open(dir.path().join("audit.log"), rotation).expect("opened");
        file.write(b"one\n").expect("written");
        assert!(old.exists());
        file.write(b"two\n").expect("written");
        assert!(!old.exists());
        assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 2);
    }
}
