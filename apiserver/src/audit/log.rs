//! Where events go: a file that is changed for a new one when it is full, or standard output. One thread redacts and writes.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;

use super::event::Event;
use crate::metrics;

/// Events that may wait; kube-apiserver's default, too.
const QUEUE: usize = 10_000;
/// Bytes of bodies that may wait with them.
const QUEUED_BYTES: usize = 64 << 20;

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

/// The log.
pub struct Log {
    queue: Mutex<Option<SyncSender<Event>>>,
    waiting: Arc<AtomicUsize>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Log {
    /// Begins to write to a file; `-`: to standard output.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: &Path, rotation: Rotation) -> io::Result<Self> {
        let output = match path.to_str() {
            Some("-") => Output::Stdout,
            _ => Output::File(Rotated::open(path.to_owned(), rotation)?),
        };
        let (queue, events) = sync_channel(QUEUE);
        let waiting = Arc::new(AtomicUsize::new(0));
        let counted = waiting.clone();
        let writer = std::thread::Builder::new()
            .name("audit".into())
            .spawn(move || write_all(&events, &counted, output))?;
        Ok(Self { queue: Mutex::new(Some(queue)), waiting, writer: Mutex::new(Some(writer)) })
    }

    /// Queues an event. Without its bodies where too many wait; not at all where too many events do.
    pub(super) fn write(&self, mut event: Event) {
        if self.waiting.load(Ordering::Relaxed) + event.weight() > QUEUED_BYTES {
            event.lighten();
        }
        let weight = event.weight();
        self.waiting.fetch_add(weight, Ordering::Relaxed);
        let queued = self.queue.lock().as_ref().is_some_and(|queue| queue.try_send(event).is_ok());
        if !queued {
            self.waiting.fetch_sub(weight, Ordering::Relaxed);
            lost();
        }
    }

    /// Writes what is queued and ends. Blocks.
    pub(super) fn close(&self) {
        self.queue.lock().take();
        if let Some(writer) = self.writer.lock().take() {
            let _ = writer.join();
        }
    }
}

fn lost() {
    metrics::AUDIT_ERRORS.with_label_values(&["log"]).inc();
}

fn write_all(events: &Receiver<Event>, waiting: &AtomicUsize, mut output: Output) {
    while let Ok(event) = events.recv() {
        let weight = event.weight();
        let written = event.line().map_err(io::Error::other).and_then(|line| output.write(&line));
        waiting.fetch_sub(weight, Ordering::Relaxed);
        match written {
            Ok(()) => metrics::AUDIT_EVENTS.inc(),
            Err(error) => {
                tracing::error!(%error, "an audit event could not be written");
                lost();
            }
        }
    }
}

enum Output {
    Stdout,
    File(Rotated),
}

impl Output {
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(line)?;
                out.flush()
            }
            Self::File(file) => file.write(line),
        }
    }
}

/// A file, and full ones beside it with the time in their names.
struct Rotated {
    path: PathBuf,
    rotation: Rotation,
    file: File,
    length: u64,
}

impl Rotated {
    fn open(path: PathBuf, rotation: Rotation) -> io::Result<Self> {
        let file = append(&path)?;
        let length = file.metadata()?.len();
        Ok(Self { path, rotation, file, length })
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if self.length > 0 && self.length + line.len() as u64 > self.rotation.most_bytes {
            self.rotate()?;
        }
        self.file.write_all(line)?;
        self.length += line.len() as u64;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H-%M-%S%.6f").to_string();
        std::fs::rename(&self.path, self.path.with_file_name(format!("{}{now}{}", self.stem(), self.end())))?;
        (self.file, self.length) = (append(&self.path)?, 0);
        self.forget()
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
