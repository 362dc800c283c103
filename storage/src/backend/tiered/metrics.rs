//! What the collector says about the objects of a chunk store.

use std::time::{SystemTime, UNIX_EPOCH};

use prometheus::{Gauge, IntCounter, IntGauge, Opts, core::Collector};

/// Gauges of one handle, as of the last pass that this handle made. Only the server that collects makes passes: take the server
/// whose last pass is the newest.
#[derive(Clone, Debug)]
pub(super) struct Metrics {
    objects: IntGauge,
    bytes: IntGauge,
    passed_at: Gauge,
    evicted_objects: IntCounter,
    evicted_bytes: IntCounter,
}

impl Metrics {
    /// Makes the gauges; all are zero before the first pass.
    ///
    /// # Errors
    /// None in practice: the names are constants.
    pub(super) fn new() -> prometheus::Result<Self> {
        let name = |name: &str| format!("repot_storage_chunk_store_{name}");
        Ok(Self {
            objects: IntGauge::with_opts(Opts::new(
                name("retained_objects"),
                "Objects of the chunk store to which nothing points, kept for --chunk-retention, as of the last pass of this server.",
            ))?,
            bytes: IntGauge::with_opts(Opts::new(
                name("retained_bytes"),
                "Bytes in objects of the chunk store to which nothing points, as of the last pass of this server.",
            ))?,
            passed_at: Gauge::with_opts(Opts::new(
                name("last_pass_timestamp_seconds"),
                "When this server last went over the objects of the chunk store; zero: never.",
            ))?,
            evicted_objects: IntCounter::with_opts(Opts::new(
                name("evicted_objects_total"),
                "Objects that this server removed before --chunk-retention was over, because of --chunk-retention-max-bytes.",
            ))?,
            evicted_bytes: IntCounter::with_opts(Opts::new(
                name("evicted_bytes_total"),
                "Bytes in objects that this server removed before --chunk-retention was over.",
            ))?,
        })
    }

    pub(super) fn collectors(&self) -> Vec<Box<dyn Collector>> {
        vec![
            Box::new(self.objects.clone()),
            Box::new(self.bytes.clone()),
            Box::new(self.passed_at.clone()),
            Box::new(self.evicted_objects.clone()),
            Box::new(self.evicted_bytes.clone()),
        ]
    }

    /// After so many objects were removed before their retention was over.
    pub(super) fn evicted(&self, objects: u64, bytes: u64) {
        self.evicted_objects.inc_by(objects);
        self.evicted_bytes.inc_by(bytes);
    }

    /// After a pass that left so many objects without a pointer.
    pub(super) fn passed(&self, objects: u64, bytes: u64, now: SystemTime) {
        self.objects.set(i64::try_from(objects).unwrap_or(i64::MAX));
        self.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        self.passed_at.set(now.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64()));
    }
}
