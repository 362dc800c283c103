//! Writing files: one is linked or moved to its place once it is whole and on disk.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path as FilePath, PathBuf},
    thread,
};

use bytes::Bytes;
use object_store::path::Path;
use rustix::fs::{FlockOperation, flock};
use tokio::{
    sync::mpsc,
    task::{JoinHandle, spawn_blocking},
};

use super::{Error, Mode, Result};

const PARTIAL: &str = "partial";
/// How many pieces may wait to be written.
const PIECES: usize = 4;
/// After so much the kernel is asked to bring to disk what was written, so that little is left to be waited for at the end.
const EARLY_BYTES: usize = 32 << 20;

/// A file that a thread of its own writes beside the snapshots. When it is dropped, it goes.
#[derive(Debug)]
pub(super) struct PartialFile {
    orders: Option<mpsc::Sender<Order>>,
    writer: Option<JoinHandle<Result<()>>>,
    partial: PathBuf,
}

#[derive(Debug)]
enum Order {
    Write(Bytes),
    Finish,
}

impl PartialFile {
    pub(super) async fn open(directory: &FilePath, prefix: &Path, path: &Path, mode: Mode) -> Result<Self> {
        let relative: Vec<_> = path.parts().skip(prefix.parts().count()).collect();
        let target = relative.iter().fold(directory.to_owned(), |path, part| path.join(part.as_ref()));
        let partial = directory.join(PARTIAL).join(target.file_name().unwrap_or_default());
        let place = WritePaths { partial: partial.clone(), target, mode };
        let root = directory.to_owned();
        let opened = spawn_blocking(move || place.open(&root).map(|file| (place, file)));
        let (place, file) = opened.await.map_err(|error| at(&partial)(io::Error::other(error)))??;
        let (orders, inbox) = mpsc::channel(PIECES);
        let writer = spawn_blocking(move || place.write(file, inbox));
        Ok(Self { orders: Some(orders), writer: Some(writer), partial })
    }

    pub(super) async fn write(&mut self, bytes: Bytes) -> Result<()> {
        self.order(Order::Write(bytes)).await
    }

    async fn order(&mut self, order: Order) -> Result<()> {
        match &self.orders {
            Some(orders) if orders.send(order).await.is_ok() => Ok(()),
            // It ended, and tells why.
            _ => self.end().await,
        }
    }

    /// What became of it.
    async fn end(&mut self) -> Result<()> {
        self.orders = None;
        let gone = || at(&self.partial)(io::Error::other("nobody writes it any more"));
        match self.writer.take() {
            Some(writer) => writer.await.map_err(|_| gone())?,
            None => Err(gone()),
        }
    }

    pub(super) async fn finish(mut self) -> Result<()> {
        self.order(Order::Finish).await?;
        self.end().await
    }

    pub(super) async fn abort(mut self) {
        // It was told before what went wrong.
        let _ = self.end().await;
    }
}

/// From where to where.
#[derive(Debug)]
struct WritePaths {
    partial: PathBuf,
    target: PathBuf,
    mode: Mode,
}

impl WritePaths {
    fn open(&self, directory: &FilePath) -> Result<File> {
        let Self { partial, target, mode } = self;
        if *mode == Mode::Create && fs::exists(target).map_err(at(target))? {
            return Err(Error::Exists { place: target.display().to_string() });
        }
        for path in [target, partial] {
            make_directory(path.parent().unwrap_or(directory))?;
        }
        lock_new(partial)
    }

    /// Does as it is told; without being told to finish, nothing is left of it.
    fn write(&self, mut file: File, mut orders: mpsc::Receiver<Order>) -> Result<()> {
        let mut early = EarlySync::default();
        let outcome = loop {
            match orders.blocking_recv() {
                Some(Order::Write(bytes)) => {
                    let written = file.write_all(&bytes).and_then(|()| early.note(&file, bytes.len()));
                    if let Err(error) = written {
                        break Err(at(&self.partial)(error));
                    }
                }
                Some(Order::Finish) => {
                    let synced = early.end().and_then(|()| file.sync_all());
                    break synced.map_err(at(&self.partial)).and_then(|()| self.appear());
                }
                None => break self.remove(),
            }
        };
        if outcome.is_err() {
            // That it could not be written says more.
            let _ = self.remove();
        }
        outcome
    }

    fn remove(&self) -> Result<()> {
        fs::remove_file(&self.partial)
            .inspect_err(|error| {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(%error, path = %self.partial.display(), "a partial file is left behind");
                }
            })
            .map_err(at(&self.partial))
    }

    fn appear(&self) -> Result<()> {
        let Self { partial, target, mode } = self;
        match mode {
            Mode::Replace => fs::rename(partial, target).map_err(at(target))?,
            Mode::Create => {
                let linked = fs::hard_link(partial, target);
                fs::remove_file(partial).map_err(at(partial))?;
                linked.map_err(|error| match error.kind() {
                    io::ErrorKind::AlreadyExists => Error::Exists { place: target.display().to_string() },
                    _ => at(target)(error),
                })?;
            }
        }
        sync_directory(target.parent().unwrap_or(target))
    }
}

/// A directory and those above it, on disk: what is put there has to be found after the power was gone.
fn make_directory(path: &FilePath) -> Result<()> {
    let missing: Vec<_> = path.ancestors().take_while(|above| !above.exists()).collect();
    // What an etcd holds is not for everybody.
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(at(path))?;
    missing.iter().filter_map(|made| made.parent()).try_for_each(sync_directory)
}

fn sync_directory(path: &FilePath) -> Result<()> {
    File::open(path).and_then(|opened| opened.sync_all()).map_err(at(path))
}

/// Brings a file to disk while it is written.
#[derive(Default)]
struct EarlySync {
    since: usize,
    running: Option<thread::JoinHandle<io::Result<()>>>,
}

impl EarlySync {
    fn note(&mut self, file: &File, bytes: usize) -> io::Result<()> {
        self.since += bytes;
        let busy = self.running.as_ref().is_some_and(|running| !running.is_finished());
        if self.since < EARLY_BYTES || busy {
            return Ok(());
        }
        self.end()?;
        let file = file.try_clone()?;
        self.since = 0;
        self.running = Some(thread::spawn(move || file.sync_data()));
        Ok(())
    }

    /// The kernel tells only once that something could not be written, so it must not be missed here.
    fn end(&mut self) -> io::Result<()> {
        match self.running.take() {
            Some(running) => running.join().unwrap_or_else(|_| Err(io::Error::other("it panicked"))),
            None => Ok(()),
        }
    }
}

/// A new file that is locked by us. What an interrupted writer left behind goes first; it may be linked to something, so it is not
/// written to again. What a living one writes is left alone.
fn lock_new(path: &FilePath) -> Result<File> {
    let busy = |_| Error::Busy { path: path.to_owned() };
    loop {
        match File::options().create_new(true).write(true).mode(0o600).open(path) {
            Ok(file) => {
                flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(busy)?;
                // Before it was locked, another writer may have taken it for left behind.
                if is_at(&file, path)? {
                    return Ok(file);
                }
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(at(path)(error)),
        }
        let left = match File::open(path) {
            Ok(left) => left,
            // Whoever left it has taken it away meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(at(path)(error)),
        };
        flock(&left, FlockOperation::NonBlockingLockExclusive).map_err(busy)?;
        // Before it was locked, another writer may have put its own in its place.
        if !is_at(&left, path)? {
            continue;
        }
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(path)(error)),
            _ => {}
        }
    }
}

/// Whether the path leads to this very file. While the file is locked, nobody else takes it away from there.
fn is_at(file: &File, path: &FilePath) -> Result<bool> {
    let own = file.metadata().map_err(at(path))?;
    match fs::symlink_metadata(path) {
        Ok(found) => Ok((own.dev(), own.ino()) == (found.dev(), found.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(at(path)(error)),
    }
}

fn at(path: &FilePath) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { path, source }
}
