//! The history of its store that this etcd writes.

use super::{config::Store as StoreConfig, settings};
use crate::snapshot::store::{self, Store};

/// The own history, in the store that holds all of them.
pub(super) struct OwnHistory {
    root: Store,
    name: String,
    snapshots: Store,
}

impl OwnHistory {
    /// Opens it. Nothing is written: who reads the store is led to where it was before.
    ///
    /// # Errors
    /// As of [`Store::open_with`].
    pub(super) fn open(config: &StoreConfig) -> Result<Self, store::Error> {
        let root = settings::open_all(config)?;
        let name = settings::history(config).to_owned();
        let snapshots = root.history(&name);
        Ok(Self { root, name, snapshots })
    }

    /// Its snapshots.
    pub(super) fn snapshots(&self) -> &Store {
        &self.snapshots
    }

    /// Leads whoever reads the store to this history from now on. Only for an etcd that may write it.
    ///
    /// # Errors
    /// As of [`Store::make_current`].
    pub(super) async fn make_current(&self) -> Result<(), store::Error> {
        self.root.make_current(&self.name).await
    }
}
