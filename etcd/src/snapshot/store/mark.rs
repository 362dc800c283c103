//! Which cluster made a snapshot, which owner's time it ends, and the end of snapshots that are not kept.

use bytes::Bytes;
use object_store::{ObjectStoreExt, path::Path};
use repot_etcd_core::snapshot::SnapshotName;

use super::{Error, Mode, Result, Store, Stored, put};

/// Holds the id of the cluster, in hexadecimal. It is not copied from one store to another: there, another cluster goes on.
const CLUSTER: &str = ".cluster";
/// Holds the owner id whose time a snapshot ends, full or delta. It is not copied either.
pub(super) const OWNER: &str = ".owner";
/// The newest hand-over to an etcd that writes into this store.
const HANDOVER: &str = "handover.json";
/// What the founders of an etcd restore, by their cluster token.
const FOUNDING: &str = "founding";
/// Bytes of such an object; a longer one is of somebody else.
const LONGEST: u64 = 64 << 10;
/// The same for one that names snapshots: more than a hundred thousand of them.
pub(super) const LONGEST_LIST: u64 = 8 << 20;

impl Store {
    /// A small object; `None` where there is none.
    pub(super) async fn small(&self, path: &Path, longest: u64) -> Result<Option<Bytes>> {
        let failed =
            |source: object_store::Error| Error::Read { place: self.place(path), source: source.into() };
        match self.objects.get(path).await {
            Ok(got) if got.meta.size > longest => {
                let why = format!("it has {} bytes, and {longest} are the most", got.meta.size);
                Err(failed(object_store::Error::Generic { store: "snapshots", source: why.into() }))
            }
            Ok(got) => got.bytes().await.map(Some).map_err(failed),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(source) => Err(failed(source)),
        }
    }

    async fn text_beside(&self, name: &SnapshotName, suffix: &str) -> Result<Option<String>> {
        let bytes = self.small(&self.beside(name, suffix), LONGEST).await?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()))
    }

    /// The cluster that made a snapshot; `None` where nobody said, as other tools.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub async fn cluster(&self, name: &SnapshotName) -> Result<Option<String>> {
        self.text_beside(name, CLUSTER).await
    }

    /// Says which cluster made a snapshot.
    ///
    /// # Errors
    /// [`Error::Write`], [`Error::File`], [`Error::Busy`].
    pub async fn set_cluster(&self, name: &SnapshotName, cluster: &str) -> Result<()> {
        put::small(
            self,
            self.beside(name, CLUSTER),
            Bytes::copy_from_slice(cluster.as_bytes()),
            Mode::Replace,
        )
        .await
    }

    /// The owner id whose time a snapshot ends: when it was taken, no member served clients any more. `None` where nobody said.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub async fn ended_owner(&self, name: &SnapshotName) -> Result<Option<String>> {
        self.text_beside(name, OWNER).await
    }

    /// Says it.
    ///
    /// # Errors
    /// [`Error::Write`], [`Error::File`], [`Error::Busy`].
    pub async fn set_ended_owner(&self, name: &SnapshotName, id: &str) -> Result<()> {
        put::small(self, self.beside(name, OWNER), Bytes::copy_from_slice(id.as_bytes()), Mode::Replace).await
    }

    /// What is recorded of the newest hand-over to an etcd that writes into this store, in JSON.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub async fn handover(&self) -> Result<Option<Bytes>> {
        self.small(&self.prefix.clone().join(HANDOVER), LONGEST).await
    }

    /// Records it.
    ///
    /// # Errors
    /// [`Error::Write`], [`Error::File`], [`Error::Busy`].
    pub async fn set_handover(&self, json: Bytes) -> Result<()> {
        put::small(self, self.prefix.clone().join(HANDOVER), json, Mode::Replace).await
    }

    /// What the founders of an etcd restore, in JSON; `key` stands for their cluster token.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub async fn founding(&self, key: &str) -> Result<Option<Bytes>> {
        self.small(&self.founding_path(key), LONGEST_LIST).await
    }

    /// Records it, unless it is recorded already.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Write`], [`Error::File`], [`Error::Busy`].
    pub async fn record_founding(&self, key: &str, json: Bytes) -> Result<()> {
        put::small(self, self.founding_path(key), json, Mode::Create).await
    }

    /// Where it is recorded, for people.
    #[must_use]
    pub fn place_of_founding(&self, key: &str) -> String {
        self.place(&self.founding_path(key))
    }

    fn founding_path(&self, key: &str) -> Path {
        self.prefix.clone().join(FOUNDING).join(format!("{key}.json"))
    }

    /// Deletes a snapshot and what lies beside it. One that is not there any more is deleted.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub async fn delete(&self, snapshot: &Stored) -> Result<()> {
        // The snapshot first: what is left beside it when this is broken off is read by nobody.
        let beside =
            [snapshot.form.record(), CLUSTER, OWNER].map(|suffix| self.beside(&snapshot.name, suffix));
        for path in std::iter::once(&snapshot.path).chain(&beside) {
            match self.objects.delete(path).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(source) => return Err(Error::Write { place: self.place(path), source: source.into() }),
            }
        }
        Ok(())
    }
}
