//! The store on an etcd cluster, 3.5.8 or later (earlier ones may announce progress ahead of events).
//!
//! May not know what rests in it. Revisions are the cluster's own, shared with whatever else lives there. Connections
//! come back by themselves; a watch that lost its connection ends with an error and is opened again by its caller.

use std::{fmt, ops::Range, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch as signal;

use super::{Backend, KeyValue, Limits, Outcome, Page, RangeRequest, Result, Revision, Txn, WatchStream};
use error::{Failure, Kind};
use keys::Prefix;
use lease::Lease;
use link::Link;
use renewal::Renewal;

mod answers;
mod error;
mod keys;
mod kv;
mod lease;
mod link;
mod options;
mod renewal;
mod watch;

pub use options::{ClientFiles, Options, Tls};

/// Below what etcd takes by default: 1.5 MiB a request and 128 operations a transaction.
const LIMITS: Limits = Limits { txn_bytes: 960 << 10, txn_ops: 100 };

/// A handle on a part of an etcd cluster. Certificates that are replaced in their files are taken while it is used.
///
/// # Guarantees
/// Those of [`Backend`]. A call whose request never reached etcd is made again within its deadline; a write that may
/// have reached it is not, and fails with [`Error::Unknown`](super::Error::Unknown).
///
/// # Assumptions
/// etcd's limits are not below its defaults. Somebody else defragments and watches the quota.
pub struct Etcd {
    link: Arc<Link>,
    prefix: Prefix,
    lease: Lease,
    /// The revision that progress must reach after a nudge.
    nudges: signal::Sender<Revision>,
    endpoints: String,
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
}

impl Etcd {
    /// Makes a handle. The connection is made when it is first used, so etcd may come up later.
    ///
    /// # Errors
    /// [`Error::Refused`](super::Error::Refused) where a URL or a certificate cannot be used; the message names it.
    pub async fn connect(options: Options) -> Result<Self> {
        let certificates = if options.speaks_tls() { Some(options.tls.read().await?) } else { None };
        let client = options.client(certificates.as_ref()).await?;
        let handle = Self {
            link: Arc::new(Link::new(client, options.deadline)),
            prefix: Prefix::new(&options.prefix),
            lease: Lease::new(options.lease),
            nudges: signal::channel(Revision(0)).0,
            endpoints: options.endpoints.join(","),
        };
        if let Some(certificates) = certificates {
            Renewal::begin(options, &handle.link, certificates.hash());
        }
        Ok(handle)
    }
}

#[async_trait]
impl Backend for Etcd {
    fn prefers_compression(&self) -> bool {
        true
    }

    fn limits(&self) -> Limits {
        LIMITS
    }

    async fn revision(&self) -> Result<Revision> {
        self.newest().await
    }

    async fn get(&self, key: Bytes, at: Option<Revision>) -> Result<Option<KeyValue>> {
        self.one(key, at).await
    }

    async fn get_many(&self, keys: Vec<Bytes>, at: Revision) -> Result<Vec<Option<KeyValue>>> {
        self.several(keys, at).await
    }

    async fn range(&self, request: RangeRequest) -> Result<Page> {
        self.page(&request).await
    }

    async fn count(&self, keys: Range<Bytes>, at: Option<Revision>) -> Result<u64> {
        self.counted(&keys, at).await
    }

    async fn txn(&self, txn: Txn) -> Result<Outcome> {
        txn.check(LIMITS)?;
        self.commit(&txn).await
    }

    async fn watch(&self, prefix: Bytes, after: Revision, progress: Duration) -> Result<WatchStream> {
        self.follow(prefix, after, progress).await
    }

    async fn request_progress(&self) {
        // Only a read through the leader tells what is newest; without it there is nothing to promise, and the watches
        // are about to notice for themselves.
        match self.newest().await {
            Ok(newest) => self.nudges.send_modify(|owed| *owed = newest.max(*owed)),
            Err(error) => tracing::debug!(%error, "no progress asked for"),
        }
    }

    async fn compact(&self, revision: Revision) -> Result<()> {
        let at = link::number(revision);
        let make = |mut kv: etcd_client::KvClient| async move { kv.compact(at, None).await };
        match self.link.call(Kind::Read, make).await {
            // Another replica was first.
            Ok(_) | Err(Failure::Compacted) => Ok(()),
            Err(failure) => Err(self.read_error(failure, Some(revision)).await),
        }
    }

    async fn oldest(&self) -> Result<Revision> {
        self.oldest_kept().await
    }

    async fn size(&self) -> Result<u64> {
        let mut client = self.link.maintenance();
        let end = tokio::time::Instant::now() + self.link.deadline;
        let status = self.link.within(end, client.status()).await;
        let status = status.map_err(|failure| failure.into_error(Kind::Read))?;
        Ok(u64::try_from(status.db_size()).unwrap_or(0))
    }

    async fn cluster(&self) -> Result<Option<String>> {
        self.cluster_id().await.map(Some)
    }

    async fn close(&self) {
        self.lease.revoke(&self.link).await;
        self.link.closed.cancel();
    }
}
