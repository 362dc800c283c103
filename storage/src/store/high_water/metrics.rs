//! What is counted about the high-water mark.

use std::time::{SystemTime, UNIX_EPOCH};

use prometheus::{Gauge, IntCounter, Opts, core::Collector};

use super::MarkError;

/// Counters of one store. Clones are one.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    recorded_at: Gauge,
    failures: IntCounter,
    rollbacks: IntCounter,
}

impl Metrics {
    /// Zeroes.
    ///
    /// # Errors
    /// None in practice: the names are constants.
    pub(crate) fn new() -> prometheus::Result<Self> {
        let name = |name: &str| format!("repot_storage_high_water_mark_{name}");
        Ok(Self {
            recorded_at: Gauge::with_opts(Opts::new(
                name("last_recorded_timestamp_seconds"),
                "When this server last recorded the newest resource version outside of the store.",
            ))?,
            failures: IntCounter::with_opts(Opts::new(
                name("record_failures_total"),
                "Tries to record the newest resource version that failed.",
            ))?,
            rollbacks: IntCounter::with_opts(Opts::new(
                "repot_storage_rollbacks_continued_total",
                "Starts on a store that was put back to an older copy, with --on-rollback=continue.",
            ))?,
        })
    }

    pub(crate) fn collectors(&self) -> Vec<Box<dyn Collector>> {
        vec![
            Box::new(self.recorded_at.clone()),
            Box::new(self.failures.clone()),
            Box::new(self.rollbacks.clone()),
        ]
    }

    pub(super) fn recorded(&self, now: SystemTime) {
        self.recorded_at.set(now.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64()));
    }

    pub(super) fn failed(&self, error: &MarkError) {
        tracing::warn!(%error, "the high-water mark was not recorded, trying again");
        self.failures.inc();
    }

    pub(super) fn rolled_back(&self) {
        self.rollbacks.inc();
    }
}
