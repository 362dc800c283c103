//! Reading heads: one object, or a page of them as of one version.

use bytes::Bytes;

use super::{
    core::Core,
    path,
    types::{Key, List, ListRequest, Object},
};
use crate::{
    Error, Result,
    backend::{RangeRequest, Revision, prefix_range},
};

/// Bytes of records in one page, and of the heads in them, unless the request says another number.
const PAGE_BYTES: usize = 4 << 20;
/// Records that are opened before others get a turn; a record costs some ten microseconds.
const TURN: usize = 64;

impl Core {
    /// See [`Store::get`](super::Store::get).
    pub(crate) async fn get(&self, key: &Key) -> Result<Option<Object>> {
        let (found, at) = self.read(&path::record(key)?).await?;
        match found {
            Some(kv) => self.open(kv, at).await.map(Some),
            None => Ok(None),
        }
    }

    /// See [`Store::list`](super::Store::list).
    pub(crate) async fn list(&self, request: ListRequest) -> Result<List> {
        self.sound()?;
        let mut keys = prefix_range(&path::scope(&request.scope)?);
        if let Some(after) = &request.after {
            let start = path::after(&path::record(after)?);
            keys.start = start.clamp(keys.start, keys.end.clone());
        }
        let at = request.at.map(|version| self.epoch.revision(version));
        if at == Some(Revision(0)) {
            // From before this epoch. To a backend, zero may mean "now".
            return self.expired().await;
        }
        let max_bytes = if request.max_bytes == 0 { PAGE_BYTES } else { request.max_bytes };
        let request = RangeRequest { keys, at, limit: request.limit, max_bytes, keys_only: false };
        if request.keys.is_empty() {
            let at = match request.at {
                Some(at) => at,
                None => self.revision().await?,
            };
            return Ok(List {
                objects: Vec::new(),
                version: self.version(at),
                next: None,
                remaining: Some(0),
            });
        }
        self.page(request).await
    }

    async fn page(&self, request: RangeRequest) -> Result<List> {
        let before = if request.at.is_none() { self.seen() } else { Revision(0) };
        // Records are compressed. A client can write metadata that is a thousand times as long as its record, so the bound is for what
        // the records open to as well.
        let max_bytes = request.max_bytes;
        let page = self.backend.range(request).await.map_err(|error| self.error(error))?;
        let version = self.version(self.later(before, page.revision)?);
        let (mut last, mut more, mut bytes) = (None, page.more, 0);
        let (count, mut objects) = (page.kvs.len(), Vec::new());
        for (index, kv) in page.kvs.into_iter().enumerate() {
            if index % TURN == TURN - 1 {
                tokio::task::yield_now().await;
            }
            last = Some(kv.key.clone());
            match self.open(kv, page.revision).await {
                // A service that is away now is so for the others, too: each of them would wait for it anew.
                Err(error @ Error::Unavailable(_)) => return Err(error),
                opened => {
                    bytes += opened.as_ref().map_or(0, |object| object.meta.len() + object.summary.len());
                    objects.push(opened);
                }
            }
            if bytes >= max_bytes && index + 1 < count {
                more = true;
                break;
            }
        }
        let next = last.filter(|_| more).map(|path| next(&path)).transpose()?;
        let remaining = (!more).then_some(0);
        Ok(List { objects, version, next, remaining })
    }
}

/// The key to go on after. A page that ends with something that is no object has none, and to end there would hide the rest.
fn next(path: &Bytes) -> Result<Key> {
    path::parse_record(path)
        .ok_or_else(|| Error::Damaged("a key among the objects is not that of an object".into()))
}
