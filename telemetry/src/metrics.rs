//! What is counted about traces: one process has one of each.

use std::sync::LazyLock;

use prometheus::{IntCounter, IntCounterVec, Opts, core::Collector};

/// Spans that a collector has accepted.
pub static EXPORTED: LazyLock<IntCounter> = LazyLock::new(|| {
    #[expect(clippy::expect_used, reason = "constants, proved by a test")]
    IntCounter::new("repot_traces_exported_total", "Spans that the collector accepted.")
        .expect("a valid name")
});

/// Spans that were lost. `reason`: `queue_full` (they came faster than the collector took them), or `export_failed`.
pub static DROPPED: LazyLock<IntCounterVec> = LazyLock::new(|| {
    let opts = Opts::new("repot_traces_dropped_total", "Spans that were not sent to the collector.");
    #[expect(clippy::expect_used, reason = "constants, proved by a test")]
    IntCounterVec::new(opts, &["reason"]).expect("a valid name")
});

/// Value of the label `reason`: the queue had no room.
pub(crate) const QUEUE_FULL: &str = "queue_full";
/// Value of the label `reason`: the collector did not accept the spans.
pub(crate) const EXPORT_FAILED: &str = "export_failed";

/// All metrics of this crate, for a registry.
#[must_use]
pub fn collectors() -> Vec<Box<dyn Collector>> {
    vec![Box::new(EXPORTED.clone()), Box::new(DROPPED.clone())]
}

#[cfg(test)]
mod tests {
    #[test]
    fn all_can_be_made() {
        assert_eq!(super::collectors().len(), 2);
    }
}
