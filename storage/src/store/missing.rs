//! Objects whose chunks are gone: after etcd was restored from a snapshot that is older than the retention of the chunk store,
//! or with a chunk store that lost objects. Looks at names and lengths only; `fsck` reads every byte.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use futures::{StreamExt, stream};
use uuid::Uuid;

use super::{Store, commit::chunk_keys, core::Core, pages::Pages, path};
use crate::{Error, Result, backend::prefix_range};

/// Chunks of one object that are asked for at once.
const PARALLEL: usize = 16;

/// Numbers of objects whose chunks are gone, as [`Store::missing_chunks`] counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Objects that were looked at.
    pub objects: u64,
    /// Objects that name a chunk which is gone.
    pub incomplete: u64,
    /// The first of them, as they are called.
    pub first: Vec<String>,
    /// Objects that do not open, so that nothing can be said of them.
    pub unreadable: u64,
}

impl Store {
    /// Looks for objects whose payload cannot be read because a chunk is gone. Names at most `names` of them. Reads all records,
    /// lists the chunk store once, asks for each chunk by its name, and reads no chunk.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn missing_chunks(&self, names: usize) -> Result<Missing> {
        let core = &self.inner.core;
        let gone = core.gone().await?;
        let mut missing = Missing::default();
        let mut records = Pages::new(core, path::REGISTRY, None, true);
        while let Some(page) = records.next().await? {
            for kv in page {
                match core.is_complete(&kv.key, &gone).await {
                    Ok(complete) => {
                        missing.objects += 1;
                        if !complete {
                            missing.incomplete += 1;
                            let name = path::parse_record(&kv.key).map(|key| key.to_string());
                            missing.first.extend(name.filter(|_| missing.first.len() < names));
                        }
                    }
                    Err(Error::Corrupt { .. } | Error::Sealing { .. } | Error::Damaged(_)) => {
                        missing.objects += 1;
                        missing.unreadable += 1;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(missing)
    }
}

impl Core {
    /// Chunks whose key is there and whose value is not, by uid.
    async fn gone(&self) -> Result<BTreeMap<Uuid, HashSet<Bytes>>> {
        let mut gone: BTreeMap<Uuid, HashSet<Bytes>> = BTreeMap::new();
        for key in self.backend.missing_values().await.map_err(|error| self.error(error))? {
            if let Some(uid) = path::uid_of(&key) {
                gone.entry(uid).or_default().insert(key);
            }
        }
        Ok(gone)
    }

    /// Whether all chunks are there that the record at a path names; one that is gone by now is complete.
    async fn is_complete(&self, record: &Bytes, gone: &BTreeMap<Uuid, HashSet<Bytes>>) -> Result<bool> {
        let (Some(kv), at) = self.read(record).await? else { return Ok(true) };
        let object = self.open(kv, at).await?;
        let keys = chunk_keys(object.uid, object.record.payload.chunks());
        let gone = gone.get(&object.uid);
        if keys.iter().any(|key| gone.is_some_and(|gone| gone.contains(key))) {
            return Ok(false);
        }
        // All of one object: its keys are between its first and its last.
        let (Some(first), Some(last)) = (keys.first(), keys.last()) else { return Ok(true) };
        let range = first.clone()..prefix_range(last).end;
        let there = self.backend.count(range, Some(at)).await.map_err(|error| self.error(error))?;
        if there < keys.len() as u64 {
            return Ok(false);
        }
        // Their number does not prove that they are these: chunks that are being written, or garbage, may be among them. So each
        // is asked for by its name, and counted, because to list keys makes etcd read their values.
        let counts = stream::iter(keys).map(|key| self.backend.count(path::only(&key), Some(at)));
        let mut counts = counts.buffer_unordered(PARALLEL);
        while let Some(there) = counts.next().await {
            if there.map_err(|error| self.error(error))? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
