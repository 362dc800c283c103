//! From a live etcd into a named backup.

use std::path::Path;

use etcd_client::Client;
use jiff::Timestamp;
use repot_etcd_core::snapshot::{Compression, SnapshotName};

use super::{
    Backups, Error, Result,
    record::{BACKUP, BackupRecord, State},
};
use crate::snapshot::{store::Store, take};

/// Whose backup, and under which name.
#[derive(Clone, Debug)]
pub struct Asked<'a> {
    /// Name of the backup within its store.
    pub name: &'a str,
    /// UID of the object that asks for it.
    pub owner: &'a str,
}

/// Takes a backup, or does nothing where it is in the store already. `scratch` is a directory with room for the database.
///
/// # Guarantees
/// May be called again after whatever happened. One that is stored is never written to again.
///
/// # Errors
/// [`Error`]; where the store can be written, the failure is recorded there too.
pub async fn take(
    backups: &Backups,
    asked: &Asked<'_>,
    client: &Client,
    scratch: &Path,
    now: Timestamp,
) -> Result<BackupRecord> {
    let filled = async |store: Store| {
        let taken = take::full(client, &store, scratch, (Compression::Gzip, false), now).await?;
        Ok(Filled { revision: taken.name.last.0, bytes: taken.integrity.bytes, snapshot: taken.name })
    };
    recorded(backups, asked, now, filled).await
}

/// What the store of a backup holds.
pub(super) struct Filled {
    /// The full snapshot.
    pub(super) snapshot: SnapshotName,
    /// The revision up to which it all reaches.
    pub(super) revision: i64,
    /// Its length.
    pub(super) bytes: u64,
}

/// Fills the store of a backup, and writes down how far that has come. May be called again after whatever happened; one that is
/// stored is left alone.
pub(super) async fn recorded(
    backups: &Backups,
    asked: &Asked<'_>,
    now: Timestamp,
    fill: impl AsyncFnOnce(Store) -> Result<Filled>,
) -> Result<BackupRecord> {
    let Asked { name, owner } = *asked;
    let mut record = match backups.taken(name).await? {
        Some(record) if record.owner != owner => {
            return Err(Error::Owner { name: name.to_owned(), owner: record.owner });
        }
        Some(record) if record.state == State::Stored => return Ok(record),
        Some(record) => BackupRecord { state: State::Running, ..record },
        None => begun(owner, now),
    };
    backups.write(name, BACKUP, &record).await?;
    match fill(backups.store(name)?).await {
        Ok(filled) => {
            record.state = State::Stored;
            record.message = None;
            record.revision = Some(filled.revision);
            record.bytes = Some(filled.bytes);
            record.snapshot = Some(filled.snapshot.to_string());
            backups.write(name, BACKUP, &record).await?;
            Ok(record)
        }
        Err(error) => {
            record.state = State::Failed;
            record.failures += 1;
            record.message = Some(causes(&error));
            // The store may be why it failed.
            if let Err(error) = backups.write(name, BACKUP, &record).await {
                tracing::warn!(%error, name, "the failure of the backup could not be recorded");
            }
            Err(error)
        }
    }
}

fn begun(owner: &str, now: Timestamp) -> BackupRecord {
    BackupRecord {
        owner: owner.to_owned(),
        begun: now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        state: State::Running,
        failures: 0,
        message: None,
        snapshot: None,
        revision: None,
        bytes: None,
    }
}

/// An error with everything below it.
pub(super) fn causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
