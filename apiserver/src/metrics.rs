//! Prometheus metrics, under the names that dashboards for API servers look for.

use std::time::Duration;

use axum::body::Body;
use http::{HeaderValue, Response, header};
use prometheus::{
    Encoder, Gauge, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder,
};

use crate::{filters::request_info::RequestInfo, resource::Resource};

const SECONDS: &[f64] =
    &[0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0];

/// The metrics of a server.
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    durations: HistogramVec,
    inflight: IntGaugeVec,
    start: Gauge,
    resident: Gauge,
    cpu: Gauge,
    /// Of objects without their namespace.
    pub orphans: crate::orphans::Counters,
    /// Of admission.
    pub admission: crate::admission::metrics::Counters,
}

impl Metrics {
    /// Zeroes.
    ///
    /// # Errors
    /// When two metrics have one name.
    pub fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let labels = ["verb", "group", "version", "resource", "scope", "component", "code"];
        let metrics = Self {
            requests: IntCounterVec::new(
                Opts::new("apiserver_request_total", "Requests by verb, resource and HTTP code."),
                &labels,
            )?,
            durations: HistogramVec::new(
                HistogramOpts::new("apiserver_request_duration_seconds", "Time until the answer began.")
                    .buckets(SECONDS.to_vec()),
                &labels[..6],
            )?,
            inflight: IntGaugeVec::new(
                Opts::new("apiserver_current_inflight_requests", "Requests being served."),
                &["request_kind"],
            )?,
            start: Gauge::new("process_start_time_seconds", "When the process began, since the epoch.")?,
            resident: Gauge::new("process_resident_memory_bytes", "Resident memory.")?,
            cpu: Gauge::new("process_cpu_seconds_total", "User and system CPU time.")?,
            orphans: crate::orphans::Counters::new(&registry)?,
            admission: crate::admission::metrics::Counters::new(&registry)?,
            registry,
        };
        let collectors: [Box<dyn prometheus::core::Collector>; 6] = [
            Box::new(metrics.requests.clone()),
            Box::new(metrics.durations.clone()),
            Box::new(metrics.inflight.clone()),
            Box::new(metrics.start.clone()),
            Box::new(metrics.resident.clone()),
            Box::new(metrics.cpu.clone()),
        ];
        for collector in collectors {
            metrics.registry.register(collector)?;
        }
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        metrics.start.set(now.as_secs_f64());
        Ok(metrics)
    }

    /// Counts a request that was answered. Only what is served has labels of its own: clients can invent any number of
    /// other names.
    pub fn answered(&self, info: &RequestInfo, resource: Option<&Resource>, code: u16, took: Duration) {
        let verb = info.verb.to_ascii_uppercase();
        let (group, version, resource, scope) = match (&info.target, resource) {
            (None, _) | (_, None) => ("", "", "", ""),
            (Some(t), Some(_)) => {
                let scope = match (t.name.is_empty(), t.namespace.is_empty()) {
                    (false, _) => "resource",
                    (true, false) => "namespace",
                    (true, true) => "cluster",
                };
                (t.group.as_str(), t.version.as_str(), t.resource.as_str(), scope)
            }
        };
        let code = code.to_string();
        self.requests.with_label_values(&[&verb, group, version, resource, scope, "repot", &code]).inc();
        if !info.long_running() {
            let labels = [verb.as_str(), group, version, resource, scope, "repot"];
            self.durations.with_label_values(&labels).observe(took.as_secs_f64());
        }
    }

    /// Counts a request being served for as long as the guard lives.
    #[must_use]
    pub fn serving(&self, info: &RequestInfo) -> Serving {
        let kind = match (info.long_running(), info.mutating()) {
            (true, _) => "longRunning",
            (_, true) => "mutating",
            _ => "readOnly",
        };
        let gauge = self.inflight.with_label_values(&[kind]);
        gauge.inc();
        Serving(gauge)
    }

    /// The text form.
    #[must_use]
    pub fn render(&self) -> Response<Body> {
        let (resident, cpu) = process();
        self.resident.set(resident);
        self.cpu.set(cpu);
        let mut text = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&self.registry.gather(), &mut text) {
            tracing::error!(%error, "metrics could not be printed");
        }
        let mut response = Response::new(Body::from(text));
        let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}

/// Takes a request off the gauge when it is answered.
pub struct Serving(prometheus::IntGauge);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Resident bytes and CPU seconds of this process; zeroes where the system does not say.
fn process() -> (f64, f64) {
    const PAGE: f64 = 4096.0;
    const TICKS: f64 = 100.0;
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return (0.0, 0.0) };
    // The name of the process stands in parentheses and may hold anything; the numbers come after it.
    let fields: Vec<f64> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .map(|f| f.parse().unwrap_or(0.0))
        .collect();
    let field = |at: usize| fields.get(at).copied().unwrap_or(0.0);
    (field(21) * PAGE, (field(11) + field(12)) / TICKS)
}
