//! What admission counts, under upstream's names.

use std::time::Duration;

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

const SECONDS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];

/// The counters of admission.
pub struct Counters {
    durations: HistogramVec,
    rejections: IntCounterVec,
    failed_open: IntCounterVec,
}

impl Counters {
    /// Zeroes.
    ///
    /// # Errors
    /// When two metrics have one name.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        let name = |text: &str| format!("apiserver_admission_webhook_{text}");
        let counters = Self {
            durations: HistogramVec::new(
                HistogramOpts::new(name("admission_duration_seconds"), "Time that webhooks took.")
                    .buckets(SECONDS.to_vec()),
                &["name", "operation", "rejected", "type"],
            )?,
            rejections: IntCounterVec::new(
                Opts::new(name("rejection_count"), "Requests that a webhook or its failure ended."),
                &["error_type", "name", "operation", "rejection_code", "type"],
            )?,
            failed_open: IntCounterVec::new(
                Opts::new(name("fail_open_count"), "Failures of webhooks that were passed over."),
                &["name", "type"],
            )?,
        };
        registry.register(Box::new(counters.durations.clone()))?;
        registry.register(Box::new(counters.rejections.clone()))?;
        registry.register(Box::new(counters.failed_open.clone()))?;
        Ok(counters)
    }

    /// A webhook was asked. `kind`: `admit` or `validating`.
    pub fn asked(&self, name: &str, operation: &str, kind: &str, rejected: bool, took: Duration) {
        let rejected = if rejected { "true" } else { "false" };
        self.durations.with_label_values(&[name, operation, rejected, kind]).observe(took.as_secs_f64());
    }

    /// A request ended here. `why`: `no_error` (denied), `calling_webhook_error` or `apiserver_internal_error`.
    pub fn rejected(&self, why: &str, name: &str, operation: &str, kind: &str, code: u16) {
        self.rejections.with_label_values(&[why, name, operation, &code.to_string(), kind]).inc();
    }

    /// A failure was passed over.
    pub fn failed_open(&self, name: &str, kind: &str) {
        self.failed_open.with_label_values(&[name, kind]).inc();
    }
}
