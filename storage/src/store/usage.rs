//! How much there is, by namespace.

use std::collections::BTreeMap;

use super::{
    core::Core,
    path,
    types::{Object, Scope},
};
use crate::{
    Error, Result,
    backend::{RangeRequest, prefix_range},
};

/// Bytes of records that are read at once.
const PAGE_BYTES: usize = 2 << 20;

/// What the objects of one namespace come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// How many there are, those that do not open among them.
    pub objects: u64,
    /// The lengths of metadata and payload as they were given, before compression. An object that does not open has none.
    pub bytes: u64,
    /// How many of the objects do not open now but may later ([`Error::is_proven_damage`](crate::Error::is_proven_damage) is false):
    /// their lengths are missing in `bytes`.
    pub unknown: u64,
}

impl Object {
    /// What it counts as in [`Usage::bytes`].
    #[must_use]
    pub fn length(&self) -> u64 {
        self.meta.len() as u64 + self.payload_len
    }
}

/// Usage by namespace, kept up while objects come and go. Cluster-scoped ones are under the empty name.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger(BTreeMap<String, Usage>);

impl Ledger {
    /// An object at a path takes the place of another one; either may be none.
    pub(super) fn replace(
        &mut self,
        path: &[u8],
        before: Option<&Result<Object>>,
        now: Option<&Result<Object>>,
    ) {
        let Some(key) = path::parse_record(path) else { return };
        let bytes = |object: Option<&Result<Object>>| match object {
            Some(Ok(object)) => object.length(),
            _ => 0,
        };
        let unknown = |object: Option<&Result<Object>>| match object {
            Some(Err(error)) => u64::from(!error.is_proven_damage()),
            _ => 0,
        };
        let usage = self.0.entry(key.namespace.clone()).or_default();
        usage.objects = (usage.objects + u64::from(now.is_some())) - u64::from(before.is_some());
        usage.bytes = (usage.bytes + bytes(now)) - bytes(before);
        usage.unknown = (usage.unknown + unknown(now)) - unknown(before);
        if usage.objects == 0 {
            self.0.remove(&key.namespace);
        }
    }

    /// All, or that of one namespace.
    pub(super) fn of(&self, namespace: Option<&str>) -> BTreeMap<String, Usage> {
        match namespace {
            None => self.0.clone(),
            Some(name) => {
                self.0.get_key_value(name).map(|(name, usage)| (name.clone(), *usage)).into_iter().collect()
            }
        }
    }
}

/// Reads all heads of a scope, page by page, and keeps none.
pub(super) async fn count(core: &Core, scope: &Scope) -> Result<BTreeMap<String, Usage>> {
    let mut counted = Ledger::default();
    // Each page as of now, not all of one version: this may take longer than history is kept.
    let mut request = RangeRequest {
        keys: prefix_range(&path::scope(scope)?),
        at: None,
        limit: 0,
        max_bytes: PAGE_BYTES,
        keys_only: false,
    };
    loop {
        let page = core.backend.range(request.clone()).await.map_err(|error| core.error(error))?;
        if let Some(last) = page.kvs.last() {
            request.keys.start = path::after(&last.key);
        }
        for kv in page.kvs {
            let path = kv.key.clone();
            match core.open(kv, page.revision).await {
                Err(error @ Error::Unavailable(_)) => return Err(error),
                head => counted.replace(&path, None, Some(&head)),
            }
        }
        if !page.more {
            return Ok(counted.of(scope.namespace.as_deref()));
        }
    }
}
