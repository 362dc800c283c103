//! The epoch of a store: its format, and how revisions of the backend become versions that clients see.
//!
//! `version = revision + offset`. Revisions start again where a store is imported, restored from an older copy or moved to
//! another backend; raising the offset past every version ever shown keeps versions from going back. This is the one place
//! where one is made into the other.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use prost::Message;
use uuid::Uuid;

use super::{path, types::ResourceVersion};
use crate::{
    Error, Result,
    backend::{Backend, Compare, Op, Outcome, Revision, Txn, tiered},
};

/// The format this code writes. One that is newer is refused: it may mean something else.
const FORMAT: u32 = 1;
/// How often the offset is written at most, to raise it.
const TRIES: u32 = 5;
/// Offsets are not larger, so that versions do not end.
const MOST: u64 = 1 << 62;

#[derive(Clone, PartialEq, Message)]
struct Stored {
    #[prost(uint32, tag = "1")]
    format: u32,
    #[prost(uint64, tag = "2")]
    offset: u64,
    /// The name of the store: 16 bytes; empty where an earlier program founded it.
    #[prost(bytes = "vec", tag = "3")]
    store: Vec<u8>,
}

/// The epoch of an open store.
#[derive(Debug)]
pub(crate) struct Epoch {
    offset: AtomicU64,
    store: Uuid,
}

impl Epoch {
    /// Reads the epoch, or founds it in an empty store. Two replicas may do so at once.
    pub(crate) async fn load(backend: &dyn Backend) -> Result<Self> {
        if backend.get(tiered::MARKER.into(), None).await.map_err(damaged_or_unavailable)?.is_some() {
            return Err(Error::Damaged(
                "chunks of this store rest in an object store, which was not named".into(),
            ));
        }
        let name = || Uuid::new_v4().into_bytes().to_vec();
        match read(backend).await? {
            None => {
                let first = Stored { format: FORMAT, offset: 0, store: name() };
                write(backend, first, Revision(0)).await?;
            }
            Some((stored, modified)) if stored.format == FORMAT && stored.store.is_empty() => {
                write(backend, Stored { store: name(), ..stored }, modified).await?;
            }
            Some(_) => {}
        }
        let (stored, _) =
            read(backend).await?.ok_or_else(|| Error::Damaged("the epoch was removed".into()))?;
        if stored.format != FORMAT {
            return Err(Error::Damaged(format!(
                "the store has format {}, this program knows {FORMAT}; use the program that wrote it",
                stored.format
            )));
        }
        let store = Uuid::from_slice(&stored.store)
            .map_err(|_| Error::Damaged("the epoch does not name the store".into()))?;
        Ok(Self { offset: AtomicU64::new(stored.offset), store })
    }

    /// The name of the store. Copies of it have the same one.
    pub(crate) fn store(&self) -> Uuid {
        self.store
    }

    /// Every version up to this one was given out before versions were last raised, if they ever were.
    pub(crate) fn offset(&self) -> u64 {
        self.offset.load(Ordering::Relaxed)
    }

    /// The version of a revision.
    pub(crate) fn version(&self, revision: Revision) -> ResourceVersion {
        ResourceVersion(revision.0.saturating_add(self.offset.load(Ordering::Relaxed)))
    }

    /// The revision of a version, where it is one of this epoch: what was seen in an earlier one may never have happened in this.
    pub(crate) fn of_this(&self, version: ResourceVersion) -> Option<Revision> {
        let offset = self.offset.load(Ordering::Relaxed);
        (offset == 0 || version.0 > offset).then(|| self.revision(version))
    }

    /// The revision of a version; a version of an earlier epoch is before everything.
    pub(crate) fn revision(&self, version: ResourceVersion) -> Revision {
        Revision(version.0.saturating_sub(self.offset.load(Ordering::Relaxed)))
    }

    /// Raises the offset to `mark`: all versions from now on are above it, and whatever is not is of an earlier epoch. Returns once the
    /// offset that is stored is `mark` or more: the answer to a write is not believed. To be called right after opening a store that was
    /// imported or restored, before it serves, and while no other replica has it open: they would go on with the old.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where [`TRIES`] writes did not raise it; [`Error::Invalid`] for a mark above 2^62.
    pub(crate) async fn raise_past(&self, backend: &dyn Backend, mark: ResourceVersion) -> Result<()> {
        if mark.0 > MOST {
            return Err(Error::Invalid("no client has seen a version of more than 2^62"));
        }
        let mut last = "somebody else writes it again and again".to_owned();
        for tried in 0..=TRIES {
            let (stored, modified) =
                read(backend).await?.ok_or_else(|| Error::Damaged("the epoch was removed".into()))?;
            if stored.offset >= mark.0 {
                self.offset.store(stored.offset, Ordering::Relaxed);
                return Ok(());
            }
            if tried < TRIES {
                match write(backend, Stored { offset: mark.0, ..stored }, modified).await {
                    Ok(_) => {}
                    // It may have been done.
                    Err(Error::Unavailable(why)) => last = why,
                    Err(error) => return Err(error),
                }
            }
        }
        Err(Error::Unavailable(format!("versions were not raised above {mark} in {TRIES} tries: {last}")))
    }
}

async fn read(backend: &dyn Backend) -> Result<Option<(Stored, Revision)>> {
    let found = backend.get(path::EPOCH.into(), None).await.map_err(damaged_or_unavailable)?;
    let decode = |kv: crate::backend::KeyValue| {
        let stored =
            Stored::decode(kv.value).map_err(|_| Error::Damaged("the epoch cannot be read".into()))?;
        Ok((stored, kv.modified))
    };
    found.map(decode).transpose()
}

/// Writes the epoch if it is still as it was read. If it is not, somebody else was quicker and the caller reads again.
async fn write(backend: &dyn Backend, stored: Stored, expected: Revision) -> Result<Outcome> {
    let key = Bytes::from(path::EPOCH);
    let txn = Txn {
        compares: vec![Compare::ModifiedAt(key.clone(), expected)],
        ops: vec![Op::Put(key, stored.encode_to_vec().into())],
    };
    backend.txn(txn).await.map_err(damaged_or_unavailable)
}

/// For calls that know no object and no version yet.
fn damaged_or_unavailable(error: crate::backend::Error) -> Error {
    match error {
        crate::backend::Error::Corrupt(what) => Error::Damaged(what),
        crate::backend::Error::NoSpace(what) => Error::NoSpace(what),
        crate::backend::Error::Refused(what) => Error::Refused(what),
        other => Error::Unavailable(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::embedded::{Embedded, Options};

    #[tokio::test]
    async fn data_of_a_newer_program_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let backend = Embedded::open(dir.path(), Options::default()).await.expect("a store");
        Epoch::load(&backend).await.expect("founded");
        Epoch::load(&backend).await.expect("found again");
        let (stored, modified) = read(&backend).await.expect("read").expect("an epoch");
        assert_eq!(stored.store.len(), 16);
        let unnamed = Stored { store: Vec::new(), ..stored.clone() };
        write(&backend, unnamed, modified).await.expect("written");
        let named = Epoch::load(&backend).await.expect("named");
        assert_eq!(Epoch::load(&backend).await.expect("found again").store(), named.store());
        let (stored, modified) = read(&backend).await.expect("read").expect("an epoch");
        let newer = Stored { format: FORMAT + 1, ..stored };
        write(&backend, newer, modified).await.expect("written");
        let before = backend.revision().await.expect("a revision");
        let refused = Epoch::load(&backend).await.expect_err("a newer format was accepted");
        assert!(matches!(&refused, Error::Damaged(why) if why.contains("format 2")), "{refused}");
        assert_eq!(backend.revision().await.expect("a revision"), before, "something was written");
    }
}
