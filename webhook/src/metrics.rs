//! Prometheus metrics: reviews by path and code, how long they took, and what the rules said.

use std::{sync::Arc, time::Duration};

use prometheus::{
    Encoder, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, Opts, PullingGauge, Registry, TextEncoder,
};
use repot_certs::tls::Serving;
use repot_rules::finding::{Finding, Verdict};

const SECONDS: &[f64] =
    &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 10.0, 30.0];

/// The metrics of a server.
pub struct Metrics {
    registry: Registry,
    reviews: IntCounterVec,
    durations: HistogramVec,
    findings: IntCounterVec,
    /// Reviews that are being answered.
    pub inflight: IntGauge,
}

impl Metrics {
    /// Zeroes.
    ///
    /// # Errors
    /// When two metrics have one name.
    pub fn new() -> prometheus::Result<Self> {
        let counters =
            |name: &str, help: &str, labels: &[&str]| IntCounterVec::new(Opts::new(name, help), labels);
        let histogram =
            HistogramOpts::new("repot_webhook_review_duration_seconds", "Time until a review was answered.");
        let metrics = Self {
            registry: Registry::new(),
            reviews: counters(
                "repot_webhook_reviews_total",
                "Reviews by path, HTTP code and verdict.",
                &["path", "code", "verdict"],
            )?,
            durations: HistogramVec::new(histogram.buckets(SECONDS.to_vec()), &["path"])?,
            findings: counters("repot_webhook_findings_total", "What rules found.", &["rule", "verdict"])?,
            inflight: IntGauge::new("repot_webhook_inflight_reviews", "Reviews being answered.")?,
        };
        for collector in repot_telemetry::metrics::collectors() {
            metrics.registry.register(collector)?;
        }
        metrics.registry.register(Box::new(metrics.reviews.clone()))?;
        metrics.registry.register(Box::new(metrics.durations.clone()))?;
        metrics.registry.register(Box::new(metrics.findings.clone()))?;
        metrics.registry.register(Box::new(metrics.inflight.clone()))?;
        Ok(metrics)
    }

    /// Tells when the serving certificate ends, as of the moment of the scrape.
    pub fn count_certificate(&self, serving: Arc<Serving>) {
        let name = "repot_serving_certificate_not_after_timestamp_seconds";
        let end = move || serving.not_after().map_or(0.0, |end| end as f64);
        let gauge = PullingGauge::new(name, "When the serving certificate ends.", Box::new(end));
        if let Err(error) = gauge.and_then(|gauge| self.registry.register(Box::new(gauge))) {
            tracing::error!(%error, "the end of the serving certificate is not among the metrics");
        }
    }

    /// Counts a review. `path` is one that is served: clients can invent any number of others.
    pub fn answered(&self, path: &str, code: u16, verdict: &str, took: Duration) {
        self.reviews.with_label_values(&[path, code.to_string().as_str(), verdict]).inc();
        self.durations.with_label_values(&[path]).observe(took.as_secs_f64());
    }

    /// Counts what rules found.
    pub fn found(&self, findings: &[Finding]) {
        for finding in findings {
            let verdict = match finding.verdict {
                Verdict::Refuse => "refuse",
                Verdict::Warn => "warn",
            };
            self.findings.with_label_values(&[finding.rule, verdict]).inc();
        }
    }

    /// All metrics in the text format of Prometheus.
    #[must_use]
    pub fn render(&self) -> Vec<u8> {
        let mut text = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&self.registry.gather(), &mut text) {
            tracing::error!(%error, "metrics could not be printed");
        }
        text
    }
}
