//! Which cluster made a snapshot, and the end of snapshots that are not kept.

use bytes::Bytes;
use object_store::{ObjectStoreExt, path::Path};

use super::{Error, Result, Store, Stored, put, record};
use crate::snapshot::SnapshotName;

/// Holds the id of the cluster, in hexadecimal. It is not copied from one store to another: there, another cluster goes on.
const CLUSTER: &str = ".cluster";

impl Store {
    fn cluster_path(&self, name: &SnapshotName) -> Path {
        self.prefix.clone().join(record::DIRECTORY).join(format!("{name}{CLUSTER}"))
    }

    /// The cluster that made a snapshot; `None` where nobody said, as other tools.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub async fn cluster(&self, name: &SnapshotName) -> Result<Option<String>> {
        let path = self.cluster_path(name);
        let failed =
            |source: object_store::Error| Error::Read { place: self.place(&path), source: source.into() };
        match self.objects.get(&path).await {
            Ok(got) => {
                let bytes = got.bytes().await.map_err(failed)?;
                Ok(Some(String::from_utf8_lossy(&bytes).trim().to_owned()))
            }
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(source) => Err(failed(source)),
        }
    }

    /// Says which cluster made a snapshot.
    ///
    /// # Errors
    /// [`Error::Write`], [`Error::File`], [`Error::Busy`].
    pub async fn set_cluster(&self, name: &SnapshotName, cluster: &str) -> Result<()> {
        put::small(self, self.cluster_path(name), Bytes::copy_from_slice(cluster.as_bytes())).await
    }

    /// Deletes a snapshot and what lies beside it. One that is not there any more is deleted.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub async fn delete(&self, snapshot: &Stored) -> Result<()> {
        // The snapshot first: what is left beside it when this is broken off is read by nobody.
        let beside = [snapshot.form.record(), CLUSTER].map(|suffix| {
            self.prefix.clone().join(record::DIRECTORY).join(format!("{}{suffix}", snapshot.name))
        });
        for path in std::iter::once(&snapshot.path).chain(&beside) {
            match self.objects.delete(path).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(source) => return Err(Error::Write { place: self.place(path), source: source.into() }),
            }
        }
        Ok(())
    }
}
