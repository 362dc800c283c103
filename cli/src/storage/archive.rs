//! `repot storage export` and `import`: all objects in one file.

use std::{
    fs::{File, OpenOptions},
    io::BufWriter,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use repot_storage::{
    Store,
    store::archive::{Existing, Moved},
};

use super::Line;
use crate::store::StoreFlags;

/// Write all objects into one file, sealed as they rest: whoever imports it needs the same EncryptionConfiguration.
///
/// Of an embedded store that is being served, its server writes the same file: `kubectl get --raw /backup > FILE`, sent to the server
/// itself.
#[derive(Args)]
pub(super) struct ExportFlags {
    /// The file, which must not exist
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    pub(super) store: StoreFlags,
}

/// Write the objects of an archive into a store, embedded or on etcd. Stop all servers of this store first.
///
/// The archive is read and opened to its end before anything is written. Objects keep their uids, so owner references go on to
/// hold, and versions are above all of the store they came from.
#[derive(Args)]
pub(super) struct ImportFlags {
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// What to do with objects that exist already
    #[arg(long, value_enum, default_value_t = Policy::Fail)]
    existing: Policy,
    #[command(flatten)]
    pub(super) store: StoreFlags,
}

#[derive(Clone, Copy, ValueEnum)]
enum Policy {
    /// Import nothing
    Fail,
    /// Leave them as they are, as after an import that was broken off
    Skip,
    /// Replace those of the same uid
    Replace,
}

/// Exports. A file of this name is whole.
pub(super) async fn export(store: &Store, flags: &ExportFlags) -> anyhow::Result<()> {
    let path = &flags.file;
    if path.exists() {
        bail!("{} exists already", path.display());
    }
    let part = partial(path)?;
    let failed = || format!("failed to write {}", part.display());
    let file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part).with_context(failed)?;
    let result = write(store, &file).await;
    if result.is_err() {
        // What is left of it is of no use; why it failed matters more than that it stays.
        let _ = std::fs::remove_file(&part);
    }
    let moved = result?;
    std::fs::rename(&part, path).with_context(failed)?;
    println!("{} objects with {} bytes of payload exported", moved.objects, moved.bytes);
    Ok(())
}

async fn write(store: &Store, file: &File) -> anyhow::Result<Moved> {
    let line = Line::new();
    let show = |moved: Moved| line.draw(&format!("{} objects, {} bytes", moved.objects, moved.bytes));
    let moved = store.export(BufWriter::with_capacity(1 << 20, file), show).await?;
    file.sync_all()?;
    Ok(moved)
}

fn partial(path: &Path) -> anyhow::Result<PathBuf> {
    let name = path.file_name().with_context(|| format!("{} is no file", path.display()))?;
    Ok(path.with_file_name(format!("{}.part", name.to_string_lossy())))
}

/// Imports.
pub(super) async fn import(store: &Store, flags: &ImportFlags) -> anyhow::Result<()> {
    let path = &flags.file;
    let file = File::open(path).with_context(|| format!("failed to open {}", path.display()))?;
    let existing = match flags.existing {
        Policy::Fail => Existing::Fail,
        Policy::Skip => Existing::Skip,
        Policy::Replace => Existing::Replace,
    };
    let line = Line::new();
    let show = |moved: Moved| line.draw(&format!("{} objects, {} bytes", moved.objects, moved.bytes));
    let moved = store.import(file, existing, show).await.with_context(|| path.display().to_string())?;
    drop(line);
    println!("{} objects imported, {} left as they were", moved.objects, moved.left);
    Ok(())
}
