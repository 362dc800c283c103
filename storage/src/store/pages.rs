//! Going through all keys under a prefix.

use super::{core::Core, path};
use crate::{
    Result,
    backend::{KeyValue, RangeRequest, Revision, prefix_range},
};

/// Keys in one page.
const PAGE: usize = 1000;
/// Keys in one page without values. etcd reads the values of these too, so that many may be in its memory at once.
const BARE_PAGE: usize = 128;
/// Bytes of values in one page, about.
const PAGE_BYTES: usize = 4 << 20;

/// All keys under a prefix, page by page.
pub(super) struct Pages<'a> {
    core: &'a Core,
    request: Option<RangeRequest>,
}

impl<'a> Pages<'a> {
    /// `at`: all pages as of one revision, which has to stay in the history; `None`: each as of now, for a walk of any length.
    pub(super) fn new(core: &'a Core, prefix: &str, at: Option<Revision>, keys_only: bool) -> Self {
        let keys = prefix_range(prefix.as_bytes());
        let limit = if keys_only { BARE_PAGE } else { PAGE };
        Self { core, request: Some(RangeRequest { keys, at, limit, max_bytes: PAGE_BYTES, keys_only }) }
    }

    /// The next page; `None` after the last one.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<KeyValue>>> {
        let Some(mut request) = self.request.take() else { return Ok(None) };
        let page = self.core.backend.range(request.clone()).await.map_err(|error| self.core.error(error))?;
        if let Some(last) = page.kvs.last().filter(|_| page.more) {
            request.keys.start = path::after(&last.key);
            self.request = Some(request);
        }
        Ok(Some(page.kvs))
    }
}
