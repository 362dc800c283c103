//! Named backups: each a store of its own below the store of an etcd, with two records beside its snapshot.
//!
//! ```text
//! <store>/backups/<name>/v2/Full-…            the snapshot, in the layout of etcd-backup-restore
//!                        integrity/…          its length and hash
//!                        backup.json          who asked for it, and how far the taking has come
//!                        verified.json        what it holds, or why it cannot be restored; written once
//! ```
//!
//! What became of a backup is told by the store alone, so it outlives whoever took it. A backup counts when it was read to its
//! end and restored elsewhere; that it was uploaded says little.
//!
//! | module | does |
//! |---|---|
//! | [`store_ref`] | from the store of an object and its Secret to a URL and credentials |
//! | [`record`] | the two records |
//! | [`take`] | from a live etcd into a named backup |
//! | [`import`] | the newest state of another store into a named backup |
//! | [`prove`] | reads and restores it, and writes down what it holds |

pub mod import;
pub mod prove;
pub mod record;
pub mod store_ref;
pub mod take;

use crate::{
    digest,
    snapshot::{
        inspect, restore,
        store::{self, Store},
        take as snapshots,
    },
};
use record::{BACKUP, BackupRecord, VERIFIED, Verdict};
use repot_etcd_core::snapshot::{SnapshotName, chain};

/// Where named backups are below a store.
const DIRECTORY: &str = "backups";

/// What can go wrong with a named backup.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// A record cannot be understood.
    #[error("the record {record} of backup {name} is damaged")]
    Record {
        /// The backup.
        name: String,
        /// Name of the record.
        record: &'static str,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// A name that is none.
    #[error(
        "{0:?} is no name of a backup: lower-case letters, digits, dashes and dots, 63 at most, with a letter or digit at both ends"
    )]
    Name(String),
    /// It belongs to somebody else.
    #[error("backup {name} is that of {owner}")]
    Owner {
        /// The backup.
        name: String,
        /// UID in its record.
        owner: String,
    },
    /// It was never stored.
    #[error("backup {0} is not in the store, or its taking did not end")]
    NotStored(String),
    /// No snapshot could be taken.
    #[error(transparent)]
    Take(#[from] snapshots::Error),
    /// A store from which nothing can be restored.
    #[error("{0} holds no full snapshot, and no backup that was stored; look at its container and prefix")]
    Empty(String),
    /// A store whose snapshots do not follow on each other.
    #[error("the newest state of {store} cannot be restored")]
    Chain {
        /// Its URL.
        store: String,
        /// Why.
        #[source]
        source: chain::PlanError,
    },
    /// A snapshot could not be copied.
    #[error("failed to copy {snapshot}")]
    Copy {
        /// Its name.
        snapshot: SnapshotName,
        /// Why.
        #[source]
        source: std::sync::Arc<inspect::Error>,
    },
    /// Snapshots were put away while they were copied.
    #[error("snapshots of {0} were removed while they were copied")]
    Vanished(String),
    /// It could not be restored, and that says nothing about it.
    #[error(transparent)]
    Restore(#[from] restore::Error),
    /// What was restored could not be read.
    #[error("failed to read what was restored")]
    Digest(#[from] digest::Error),
    /// No room to restore it elsewhere.
    #[error("failed to use the scratch directory {path}")]
    Scratch {
        /// The directory.
        path: std::path::PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// The result of this module's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The named backups of one etcd.
#[derive(Clone, Debug)]
pub struct Backups(Store);

impl Backups {
    /// Those in the store of an etcd.
    #[must_use]
    pub fn of(store: &Store) -> Self {
        Self(store.below_prefix(&[DIRECTORY]))
    }

    /// Names of all of them, whole or not.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn names(&self) -> Result<Vec<String>> {
        let all = self.0.children().await?;
        Ok(all.into_iter().filter(|name| is_name(name)).collect())
    }

    /// The store of one.
    ///
    /// # Errors
    /// [`Error::Name`].
    pub fn store(&self, name: &str) -> Result<Store> {
        if is_name(name) { Ok(self.0.below_prefix(&[name])) } else { Err(Error::Name(name.to_owned())) }
    }

    /// How far the taking of one has come; nothing where it was never begun.
    ///
    /// # Errors
    /// [`Error::Name`], [`Error::Store`], [`Error::Record`].
    pub async fn taken(&self, name: &str) -> Result<Option<BackupRecord>> {
        self.read(name, BACKUP).await
    }

    /// What was found out about one; nothing where nobody did.
    ///
    /// # Errors
    /// [`Error::Name`], [`Error::Store`], [`Error::Record`].
    pub async fn verdict(&self, name: &str) -> Result<Option<Verdict>> {
        self.read(name, VERIFIED).await
    }

    /// Removes one, its records last: until nothing is left, it says whose it is.
    ///
    /// # Errors
    /// [`Error::Name`], [`Error::Store`].
    pub async fn remove(&self, name: &str) -> Result<()> {
        let store = self.store(name)?;
        clear(&store).await?;
        Ok(store.remove_all().await?)
    }

    async fn read<T: serde::de::DeserializeOwned>(
        &self,
        name: &str,
        record: &'static str,
    ) -> Result<Option<T>> {
        let Some(bytes) = self.store(name)?.read_small(record).await? else { return Ok(None) };
        let read = serde_json::from_slice(&bytes);
        read.map(Some).map_err(|source| Error::Record { name: name.to_owned(), record, source })
    }

    async fn write(&self, name: &str, record: &'static str, value: &impl serde::Serialize) -> Result<()> {
        let failed = |source| Error::Record { name: name.to_owned(), record, source };
        let bytes = serde_json::to_vec(value).map_err(failed)?;
        Ok(self.store(name)?.write_small(record, bytes.into()).await?)
    }
}

/// Removes the snapshots of a named backup, and leaves its records.
async fn clear(store: &Store) -> Result<()> {
    for part in ["v2", "sealed", "integrity"] {
        store.below_prefix(&[part]).remove_all().await?;
    }
    Ok(())
}

/// Whether it can be a name: it becomes a part of paths, labels and names of Jobs.
fn is_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    // What has something between its dots leads to no other directory.
    let is_part = |part: &str| {
        let ends = [part.bytes().next(), part.bytes().next_back()];
        ends.into_iter().all(|end| end.is_some_and(is_letter))
            && part.bytes().all(|byte| is_letter(byte) || byte == b'-')
    };
    name.len() <= 63 && name.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_no_other_place() {
        for good in ["b-1", "b", "before.v1-36", "20261121-204312-x7k2p9qa"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "..", "a/b", "A", "a..b", ".a", "a.", "-a", "a-", "a.-b", "a\0", &"a".repeat(64)] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
