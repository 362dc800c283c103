//! What is counted about a store: damage, rollbacks and passes of the collector.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use prometheus::{Gauge, IntCounter, IntCounterVec, IntGauge, Opts, core::Collector};

use super::types::Key;
use crate::seal::Defect;

/// The log names one damaged object in this time: clients may read the same one many times a second.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// The part of an object that was found damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Metadata, and the list of chunks.
    Record,
    /// Chunks, or the payload within a record.
    Payload,
}

impl Part {
    const ALL: [Self; 2] = [Self::Record, Self::Payload];

    fn label(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::Payload => "payload",
        }
    }
}

/// Counters of one store. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    damage: IntCounterVec,
    rolled_back: IntGauge,
    passed_at: Gauge,
    failed_passes: IntCounter,
    removed_chunks: IntCounter,
    /// When a damaged object was logged last.
    logged: Arc<Mutex<Option<Instant>>>,
}

impl Metrics {
    /// All metrics; every sample is there from the start, so that rates and alerts see the first increase.
    ///
    /// # Errors
    /// None in practice: names and labels are constants.
    pub(crate) fn new() -> prometheus::Result<Self> {
        let metrics = Self {
            damage: IntCounterVec::new(
                Opts::new(
                    "repot_storage_damage_found_total",
                    "Damaged records, and damaged or missing chunks, that reads and the collector met.",
                ),
                &["part"],
            )?,
            rolled_back: IntGauge::new(
                "repot_storage_rolled_back",
                "Whether this server noticed that its store was put back to an older copy; it answers nothing then.",
            )?,
            passed_at: Gauge::new(
                "repot_storage_collector_last_pass_timestamp_seconds",
                "When this server last collected chunks; 0: never.",
            )?,
            failed_passes: IntCounter::new(
                "repot_storage_collector_failures_total",
                "Passes of the collector that failed.",
            )?,
            removed_chunks: IntCounter::new(
                "repot_storage_collector_removed_chunks_total",
                "Chunks that the collector removed because no object names them.",
            )?,
            logged: Arc::default(),
        };
        for part in Part::ALL {
            metrics.damage.with_label_values(&[part.label()]);
        }
        Ok(metrics)
    }

    pub(crate) fn collectors(&self) -> Vec<Box<dyn Collector>> {
        vec![
            Box::new(self.damage.clone()),
            Box::new(self.rolled_back.clone()),
            Box::new(self.passed_at.clone()),
            Box::new(self.failed_passes.clone()),
            Box::new(self.removed_chunks.clone()),
        ]
    }

    /// Counts a damaged part of an object, and logs it unless another one was logged just before. Each read that meets the same
    /// damage counts it again.
    pub(crate) fn found_damage(&self, part: Part, key: &Key, what: Defect) {
        self.damage.with_label_values(&[part.label()]).inc();
        let now = Instant::now();
        let mut logged = self.logged.lock();
        if logged.is_none_or(|last| now.duration_since(last) >= LOG_INTERVAL) {
            *logged = Some(now);
            tracing::error!(%key, part = part.label(), what, "a stored object is damaged");
        }
    }

    /// Counts chunks that the collector did not find.
    pub(crate) fn found_missing_chunks(&self, count: u64) {
        self.damage.with_label_values(&[Part::Payload.label()]).inc_by(count);
    }

    /// Says that the store was put back, which lasts until the process ends.
    pub(crate) fn set_rolled_back(&self) {
        self.rolled_back.set(1);
    }

    /// Counts a pass of the collector that ended now.
    pub(crate) fn passed(&self, removed: u64) {
        self.removed_chunks.inc_by(removed);
        self.passed_at.set(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |now| now.as_secs_f64()));
    }

    /// Counts a pass that failed.
    pub(crate) fn pass_failed(&self) {
        self.failed_passes.inc();
    }
}
