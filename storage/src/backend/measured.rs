//! Measures how long requests to a backend take, and how many of them fail.

use std::{
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use prometheus::{HistogramOpts, HistogramVec, core::Collector};

use super::{
    Backend, Error, KeyValue, Limits, Outcome, Page, RangeRequest, Result, Revision, Txn, WatchStream,
};

/// From an answer of memory to the longest timeout, in seconds.
const SECONDS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Requests that are measured. A watch lasts for as long as somebody needs it, so it is not among them.
const OPERATIONS: [&str; 7] = ["compact", "count", "get", "get_many", "range", "revision", "txn"];

/// A backend whose requests are measured.
#[derive(Debug)]
pub(crate) struct Measured {
    inner: Arc<dyn Backend>,
    durations: HistogramVec,
}

impl Measured {
    /// Measures this backend. All samples are there from the start, so that rates see the first failure.
    ///
    /// # Errors
    /// None in practice: names and labels are constants.
    pub(crate) fn new(inner: Arc<dyn Backend>) -> prometheus::Result<Self> {
        let opts = HistogramOpts::new(
            "repot_storage_backend_request_duration_seconds",
            "Time of requests to the store below: etcd or the embedded one, and the chunk store.",
        );
        let durations = HistogramVec::new(opts.buckets(SECONDS.to_vec()), &["operation", "result"])?;
        for operation in OPERATIONS {
            for result in ["success", "error"] {
                durations.with_label_values(&[operation, result]);
            }
        }
        Ok(Self { inner, durations })
    }

    /// Measures a request. One that is dropped before it ends is not counted.
    async fn measure<T>(
        &self,
        operation: &'static str,
        request: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let begin = Instant::now();
        let outcome = request.await;
        let result = if outcome.as_ref().is_err_and(is_failure) { "error" } else { "success" };
        self.durations.with_label_values(&[operation, result]).observe(begin.elapsed().as_secs_f64());
        outcome
    }
}

/// Whether an error is the store's. A revision out of the window, or a request that is too large, is the caller's.
fn is_failure(error: &Error) -> bool {
    match error {
        Error::Compacted { .. } | Error::Future { .. } | Error::TooLarge { .. } => false,
        Error::NoSpace(_)
        | Error::Refused(_)
        | Error::Unavailable(_)
        | Error::Declined(_)
        | Error::Unknown(_)
        | Error::Corrupt(_) => true,
    }
}

#[async_trait]
impl Backend for Measured {
    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn prefers_compression(&self) -> bool {
        self.inner.prefers_compression()
    }

    async fn revision(&self) -> Result<Revision> {
        self.measure("revision", self.inner.revision()).await
    }

    async fn get(&self, key: Bytes, at: Option<Revision>) -> Result<Option<KeyValue>> {
        self.measure("get", self.inner.get(key, at)).await
    }

    async fn get_many(&self, keys: Vec<Bytes>, at: Revision) -> Result<Vec<Option<KeyValue>>> {
        self.measure("get_many", self.inner.get_many(keys, at)).await
    }

    async fn range(&self, request: RangeRequest) -> Result<Page> {
        self.measure("range", self.inner.range(request)).await
    }

    async fn count(&self, keys: Range<Bytes>, at: Option<Revision>) -> Result<u64> {
        self.measure("count", self.inner.count(keys, at)).await
    }

    async fn missing_values(&self) -> Result<Vec<Bytes>> {
        self.inner.missing_values().await
    }

    async fn txn(&self, txn: Txn) -> Result<Outcome> {
        self.measure("txn", self.inner.txn(txn)).await
    }

    async fn watch(&self, prefix: Bytes, after: Revision, progress: Duration) -> Result<WatchStream> {
        self.inner.watch(prefix, after, progress).await
    }

    async fn request_progress(&self) {
        self.inner.request_progress().await;
    }

    async fn compact(&self, revision: Revision) -> Result<()> {
        self.measure("compact", self.inner.compact(revision)).await
    }

    async fn oldest(&self) -> Result<Revision> {
        self.inner.oldest().await
    }

    async fn size(&self) -> Result<u64> {
        self.inner.size().await
    }

    async fn cluster(&self) -> Result<Option<String>> {
        self.inner.cluster().await
    }

    async fn tidy(&self) -> Result<()> {
        self.inner.tidy().await
    }

    fn collectors(&self) -> Vec<Box<dyn Collector>> {
        let mut all = self.inner.collectors();
        all.push(Box::new(self.durations.clone()));
        all
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_failures_of_the_store_count_as_errors() {
        let (requested, oldest) = (Revision(1), Revision(2));
        assert!(!is_failure(&Error::Compacted { requested, oldest }));
        assert!(!is_failure(&Error::TooLarge { size: 2, limit: 1 }));
        assert!(is_failure(&Error::Unavailable("no answer".into())));
        assert!(is_failure(&Error::Unknown("no answer".into())));
    }
}
