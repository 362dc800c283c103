//! Where snapshots rest: below a prefix of a directory, S3, Google Cloud Storage or Azure.
//!
//! ```text
//! <prefix>/v2/<name>                     snapshot (and v1/Backup-<unix seconds>/<name>, which is only read)
//! <prefix>/sealed/<name>                 snapshot that is sealed; other tools never see it
//! <prefix>/integrity/<name>.json         its length and SHA-256, written after it (of a sealed one: <name>.sealed.json)
//! <prefix>/integrity/<name>.exclude      a mark: the snapshot is not to be listed
//! <prefix>/integrity/<name>.cluster      id of the cluster that made a full one, where snapshots go on from it
//! <prefix>/integrity/<name>.owner        the owner id whose time a full snapshot or a delta ends: clients wrote nothing after it
//! <prefix>/handover.json                 the newest hand-over to an etcd that writes into this store
//! <prefix>/partial/<name>                a file that is being written; in directories only
//! <prefix>/histories, current, closed    other histories, which one is written, and which ones nobody writes: see `history.rs`
//! ```
//!
//! Other tools look into v1 and v2 only. The record of integrity is an object of its own, since a hash is known after the bytes
//! were sent, when metadata can no longer be given, and since a directory has no metadata.

mod connect;
mod credentials;
mod failure;
mod file;
mod history;
mod list;
mod mark;
mod object;
mod open;
mod put;
mod read;
mod record;
mod seal;
mod sent;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use object_store::{ObjectStore, path::Path};
use repot_storage::{keyring, stream};

pub use failure::Failure;
pub use history::{FIRST_HISTORY, is_history_name};
pub use open::environment;
pub(super) use put::PART_BYTES;
pub use put::{Mode, Upload};
pub use read::Reading;
pub use record::Integrity;
use repot_etcd_core::snapshot::SnapshotName;
pub use seal::CONFIGURATION;
use seal::Seal;
pub(super) use seal::SnapshotDecryption;
pub use sent::SentBytes;

pub use repot_etcd_core::snapshot::name::Form;

/// What can go wrong with a store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL names no store.
    #[error("{url:?} is no place for snapshots: {why}")]
    Url {
        /// As it was given, without anything secret.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// The store cannot be reached with what is known of it.
    #[error("failed to open the store {url}")]
    Open {
        /// The store.
        url: String,
        /// Why.
        #[source]
        source: Failure,
    },
    /// Files with credentials cannot be used.
    #[error("failed to read the credentials in {path}")]
    Credentials {
        /// The directory or file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Its encryption configuration cannot be used.
    #[error("snapshots in {url} cannot be sealed")]
    Keys {
        /// The store.
        url: String,
        /// Why.
        #[source]
        source: keyring::Error,
    },
    /// A snapshot could not be sealed.
    #[error("failed to seal {place}")]
    Sealing {
        /// Store and object.
        place: String,
        /// Why.
        #[source]
        source: stream::Error,
    },
    /// A snapshot is sealed, and there are no keys.
    #[error(
        "{place} is sealed, and no keys are configured: set STORE_ENCRYPTION_PROVIDER_CONFIG (SOURCE_STORE_ENCRYPTION_PROVIDER_CONFIG, where it is a source), or encryptionConfiguration in the Secret of the store"
    )]
    NoKeys {
        /// Store and object.
        place: String,
    },
    /// Its objects could not be listed.
    #[error("failed to list {place}")]
    List {
        /// Store and prefix.
        place: String,
        /// Why.
        #[source]
        source: Failure,
    },
    /// An object could not be read.
    #[error("failed to read {place}")]
    Read {
        /// Store and object.
        place: String,
        /// Why.
        #[source]
        source: Failure,
    },
    /// An object could not be written.
    #[error("failed to write {place}")]
    Write {
        /// Store and object.
        place: String,
        /// Why.
        #[source]
        source: Failure,
    },
    /// A file could not be written.
    #[error("failed to write {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Somebody else writes it at this moment.
    #[error("{path} is being written by another process")]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// There is one of this name, and it is not to be replaced.
    #[error("{place} exists already")]
    Exists {
        /// Store and object.
        place: String,
    },
    /// The etcd of this history is gone for good.
    #[error(
        "HistoryClosed: {place} says that nobody writes the history {name} any more, since the volumes of its etcd were released: \
         end this etcd, or give it another history or store"
    )]
    Closed {
        /// Store and object.
        place: String,
        /// The history.
        name: String,
    },
    /// The record of its integrity cannot be understood.
    #[error("the integrity record {place} is damaged")]
    Record {
        /// Store and object.
        place: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

/// The result of this module's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Environment variables, so that two stores can be opened with different ones.
pub type Environment = BTreeMap<String, String>;

/// A snapshot in a store.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Name of the snapshot, taken apart.
    pub name: SnapshotName,
    /// Its length in the store.
    pub bytes: u64,
    /// Whether its integrity was recorded.
    pub recorded: bool,
    /// Whether the store says whose time it ends: see [`Store::ended_owner`].
    pub ends_owner: bool,
    /// Whether it is sealed.
    pub form: Form,
    path: Path,
    e_tag: Option<String>,
}

impl Stored {
    /// Store and path, for messages.
    #[must_use]
    pub fn place(&self, store: &Store) -> String {
        store.place(&self.path)
    }

    /// Path below the prefix of the store, such as `v2/Full-00000000-00000042-1700000000.gz`.
    #[must_use]
    pub fn path(&self, store: &Store) -> String {
        let whole = self.path.as_ref();
        whole.strip_prefix(store.prefix.as_ref()).unwrap_or(whole).trim_start_matches('/').to_owned()
    }
}

/// A place for the snapshots of one etcd.
#[derive(Clone, Debug)]
pub struct Store {
    objects: Arc<dyn ObjectStore>,
    prefix: Path,
    /// For a directory: its path. Files are written by us, so that no half-written one is ever among the snapshots.
    directory: Option<PathBuf>,
    url: String,
    /// How long one request is tried again.
    patience: Duration,
    /// Where new snapshots are to be sealed.
    seal: Option<Seal>,
    /// What counts the bytes of objects that are written.
    sent: Option<Arc<SentBytes>>,
}

impl Store {
    /// What it stands on, and where in that: for others who keep objects by the same URLs and credentials.
    #[must_use]
    pub fn objects(&self) -> (Arc<dyn ObjectStore>, Path) {
        (Arc::clone(&self.objects), self.prefix.clone())
    }

    /// Counts the bytes of snapshots that are written from now on.
    #[must_use]
    pub fn counting(self, sent: Arc<SentBytes>) -> Self {
        Self { sent: Some(sent), ..self }
    }

    /// The URL, for messages.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    fn place(&self, path: &Path) -> String {
        let rest = path.as_ref().strip_prefix(self.prefix.as_ref()).unwrap_or(path.as_ref());
        format!("{}/{}", self.url.trim_end_matches('/'), rest.trim_start_matches('/'))
    }

    fn snapshot_path(&self, name: &SnapshotName, form: Form) -> Path {
        self.prefix.clone().join(form.directory()).join(name.to_string())
    }

    /// The form of new snapshots.
    #[must_use]
    pub fn form(&self) -> Form {
        if self.seal.is_some() { Form::Sealed } else { Form::Clear }
    }

    /// Where a new snapshot of a name is in messages.
    #[must_use]
    pub fn place_of(&self, name: &SnapshotName) -> String {
        self.place(&self.snapshot_path(name, self.form()))
    }

    /// Begins to write a snapshot, which is sealed on the way where this store has keys.
    ///
    /// # Errors
    /// [`Error::Exists`] with [`Mode::Create`] where there is one, [`Error::Busy`], [`Error::File`], [`Error::Write`],
    /// [`Error::Keys`], [`Error::Sealing`].
    pub async fn upload(&self, name: &SnapshotName, mode: Mode) -> Result<Upload> {
        let path = self.snapshot_path(name, self.form());
        match &self.seal {
            None => Upload::begin(self, path, mode).await,
            Some(seal) => {
                let place = self.place(&path);
                let sealing = seal.begin(&self.url, name, place).await?;
                Upload::begin(self, path, mode).await?.sealed(sealing).await
            }
        }
    }

    /// Begins to write the bytes of a snapshot as another store has them.
    ///
    /// # Errors
    /// As [`Store::upload`].
    pub(in crate::snapshot) async fn upload_as_it_is(&self, one: &Stored, mode: Mode) -> Result<Upload> {
        Upload::begin(self, self.snapshot_path(&one.name, one.form), mode).await
    }

    /// What opens the bytes of a snapshot; `None` where they are in clear.
    ///
    /// # Errors
    /// [`Error::NoKeys`], [`Error::Keys`].
    pub(in crate::snapshot) async fn opening(&self, one: &Stored) -> Result<Option<SnapshotDecryption>> {
        match (one.form, &self.seal) {
            (Form::Clear, _) => Ok(None),
            (Form::Sealed, None) => Err(Error::NoKeys { place: one.place(self) }),
            (Form::Sealed, Some(seal)) => seal.opening(&self.url, &one.name).await.map(Some),
        }
    }

    /// A snapshot that was written just now.
    pub(in crate::snapshot) fn written(&self, name: &SnapshotName, form: Form, bytes: u64) -> Stored {
        let path = self.snapshot_path(name, form);
        Stored { name: name.clone(), bytes, recorded: true, ends_owner: false, form, path, e_tag: None }
    }
}
