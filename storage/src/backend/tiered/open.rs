//! Whether an object store is the one that belongs to a backend.

use std::sync::{Arc, OnceLock, atomic::AtomicU64};

use bytes::Bytes;
use object_store::{ObjectStore, PutMode, path::Path};
use parking_lot::Mutex;
use uuid::Uuid;

use super::{ChunkStore, MARKER, Options, Tiered, metrics::Metrics};
use crate::backend::{Backend, Compare, Error, Op, Outcome, Result, Revision, Txn};

/// The object that says which store the others belong to.
const OWN: &str = "repot-store";
/// What stands before the name of a store in its marker until [`OWN`] is known to be there.
const FOUNDING: &str = "founding ";
/// A place for objects that nobody else writes to.
#[derive(Clone, Debug)]
pub struct ObjectLocation {
    /// The store; what it puts is durable when it says so.
    pub objects: Arc<dyn ObjectStore>,
    /// Path within the object store below which all of these objects are.
    pub root: Path,
    /// What it is called in messages, without anything secret.
    pub url: String,
}

impl Tiered {
    /// Puts large values of a backend into objects.
    ///
    /// # Errors
    /// [`Error::Refused`] where the objects there belong to another store, or those of this one are elsewhere;
    /// [`Error::Unavailable`].
    pub async fn open(inner: Arc<dyn Backend>, place: ObjectLocation, options: Options) -> Result<Self> {
        let ObjectLocation { objects, root, url } = place;
        let (bytes, passed, pass) = (AtomicU64::new(0), Mutex::new(None), Mutex::new(None));
        let metrics = Metrics::new().map_err(|error| Error::Refused(error.to_string()))?;
        let name = OnceLock::new();
        let chunk_store = ChunkStore { objects, root, url, options, bytes, passed, pass, metrics, name };
        let tiered = Self { inner, chunk_store: Arc::new(chunk_store) };
        tiered.recognise().await?;
        Ok(tiered)
    }

    /// Makes sure that backend and object store belong together, or makes them so.
    async fn recognise(&self) -> Result<()> {
        let known = match self.marker().await? {
            Some((known, _)) => known,
            None => {
                let name = format!("{FOUNDING}{}", Uuid::new_v4());
                // Another replica may be quicker; then it is that one's name.
                self.mark(&name, Revision(0)).await?;
                self.marker().await?.map(|(known, _)| known).unwrap_or_default()
            }
        };
        let own = self.chunk_store.root.clone().join(OWN);
        let url = &self.chunk_store.url;
        if let Some(name) = known.strip_prefix(FOUNDING) {
            let body = Bytes::copy_from_slice(name.as_bytes()).into();
            let put = self.chunk_store.objects.put_opts(&own, body, PutMode::Create.into());
            match self.chunk_store.in_time(put).await? {
                Ok(_) | Err(object_store::Error::AlreadyExists { .. }) => {}
                Err(error) => return Err(self.chunk_store.error(&error)),
            }
        }
        let there = match self.chunk_store.read(&own).await {
            Err(Error::Corrupt(_)) => {
                return Err(Error::Refused(format!("the objects of this store are not in {url}")));
            }
            there => there?,
        };
        let name = known.strip_prefix(FOUNDING).unwrap_or(&known);
        if there != name.as_bytes() {
            return Err(Error::Refused(format!("what is in {url} belongs to another store")));
        }
        let _ = self.chunk_store.name.set(there); // Read once.
        if known.starts_with(FOUNDING)
            && let Some((_, modified)) = self.marker().await?.filter(|(now, _)| *now == known)
        {
            self.mark(name, modified).await?;
        }
        Ok(())
    }

    async fn marker(&self) -> Result<Option<(String, Revision)>> {
        let found = self.inner.get(MARKER.into(), None).await?;
        Ok(found.map(|kv| (String::from_utf8_lossy(&kv.value).into_owned(), kv.modified)))
    }

    async fn mark(&self, name: &str, modified: Revision) -> Result<Outcome> {
        let compares = vec![Compare::ModifiedAt(MARKER.into(), modified)];
        let value = Bytes::copy_from_slice(name.as_bytes());
        self.inner.txn(Txn { compares, ops: vec![Op::Put(MARKER.into(), value)] }).await
    }
}

impl ChunkStore {
    /// Whether the object store is still there and still the one that belongs to the backend below. A bucket that was removed, a
    /// prefix that was renamed and a directory that is not mounted answer "not found" for every object: that proves no loss.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub(super) async fn check_marker(&self) -> Result<()> {
        let found = match self.read(&self.root.clone().join(OWN)).await {
            Err(Error::Corrupt(_)) => None,
            found => Some(found?),
        };
        if found.is_some() && found.as_ref() == self.name.get() {
            return Ok(());
        }
        Err(Error::Unavailable(format!(
            "{} is not the chunk store that it was: its object {OWN} is {}. Bring back the bucket, or the mount, with all of its \
             objects",
            self.url,
            if found.is_some() { "that of another store" } else { "not there" }
        )))
    }
}
