//! The record beside a snapshot: what its bytes are.

use std::fmt::Write as _;

use object_store::{ObjectStoreExt, path::Path};
use repot_etcd_core::snapshot::SnapshotName;
use serde::{Deserialize, Serialize};

use super::{Error, Form, Mode, Result, Store, put};
use crate::snapshot::codec::HASH_BYTES;

/// Length and hash of an object, as it is in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Integrity {
    /// Length of the object, in bytes.
    pub bytes: u64,
    /// SHA-256 of the object, in lower-case hexadecimal.
    pub sha256: String,
}

impl Integrity {
    /// Of a length and a hash.
    #[must_use]
    pub fn new(bytes: u64, hash: [u8; HASH_BYTES]) -> Self {
        let sha256 = hash.iter().fold(String::new(), |mut text, byte| {
            // Writing to a text does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        Self { bytes, sha256 }
    }
}

pub(super) const DIRECTORY: &str = "integrity";
pub(super) const EXCLUDE: &str = ".exclude";

impl Store {
    /// An object that is kept for a snapshot.
    pub(super) fn beside(&self, name: &SnapshotName, suffix: &str) -> Path {
        self.prefix.clone().join(DIRECTORY).join(format!("{name}{suffix}"))
    }

    /// What was recorded of a snapshot; `None` where nothing was, as by other tools.
    ///
    /// # Errors
    /// [`Error::Read`], [`Error::Record`].
    pub async fn integrity(&self, name: &SnapshotName, form: Form) -> Result<Option<Integrity>> {
        let path = self.beside(name, form.record());
        let failed =
            |source: object_store::Error| Error::Read { place: self.place(&path), source: source.into() };
        let bytes = match self.objects.get(&path).await {
            Ok(got) => got.bytes().await.map_err(failed)?,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(source) => return Err(failed(source)),
        };
        let read = serde_json::from_slice(&bytes);
        read.map(Some).map_err(|source| Error::Record { place: self.place(&path), source })
    }

    /// Records what a snapshot is, in place of what was recorded before.
    ///
    /// # Errors
    /// [`Error::Write`], [`Error::File`], [`Error::Busy`].
    pub async fn record(&self, name: &SnapshotName, form: Form, integrity: &Integrity) -> Result<()> {
        let path = self.beside(name, form.record());
        let text = serde_json::to_vec(integrity)
            .map_err(|source| Error::Record { place: self.place(&path), source })?;
        put::small(self, path, text.into(), Mode::Replace).await
    }

    /// Marks a snapshot as not to be listed.
    ///
    /// # Errors
    /// [`Error::Write`], [`Error::File`], [`Error::Busy`].
    pub async fn exclude(&self, name: &SnapshotName) -> Result<()> {
        put::small(self, self.beside(name, EXCLUDE), bytes::Bytes::new(), Mode::Replace).await
    }
}
