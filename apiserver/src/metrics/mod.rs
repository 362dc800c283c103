//! Prometheus metrics, under the names that dashboards for API servers look for.

mod orphans;
mod process;
mod shared;
mod usage;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::body::Body;
use http::{HeaderValue, Response, header};
use prometheus::{
    Encoder, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, PullingGauge, Registry,
    TextEncoder, core::Collector,
};
use repot_certs::tls;

pub use self::shared::*;
use self::{process::Process, usage::Usage};
use crate::{
    answer::{End, Sent},
    filters::request_info::RequestInfo,
    resource::Resource,
};

const SECONDS: &[f64] =
    &[0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0];
const SIZES: &[f64] = &[1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];
const EVENT_SIZES: &[f64] =
    &[1024.0, 4096.0, 16384.0, 65536.0, 262_144.0, 1_048_576.0, 4_194_304.0, 16_777_216.0];

/// What a request is called in metrics: verb, group, version, resource, subresource, scope, component.
const REQUEST: [&str; 7] = ["verb", "group", "version", "resource", "subresource", "scope", "component"];
const REQUEST_AND_CODE: [&str; 8] =
    ["verb", "group", "version", "resource", "subresource", "scope", "component", "code"];

/// The metrics of a server.
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    terminations: IntCounterVec,
    aborts: IntCounterVec,
    durations: HistogramVec,
    sli_durations: HistogramVec,
    sizes: HistogramVec,
    inflight: IntGaugeVec,
    long_running: IntGaugeVec,
    watch_events: IntCounterVec,
    watch_event_sizes: HistogramVec,
    terminated_watchers: IntCounterVec,
    storage_objects: IntGaugeVec,
    resource_objects: IntGaugeVec,
    resource_bytes: IntGaugeVec,
    usage: Usage,
    process: Process,
    /// Of objects without their namespace.
    pub orphans: orphans::Counters,
    /// Metrics of admission webhooks: time taken, rejections, and failures that were let pass.
    pub admission: crate::admission::metrics::Counters,
}

fn histogram(name: &str, help: &str, buckets: &[f64], labels: &[&str]) -> prometheus::Result<HistogramVec> {
    HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels)
}

fn counters(name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntCounterVec> {
    IntCounterVec::new(Opts::new(name, help), labels)
}

fn gauges(name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntGaugeVec> {
    IntGaugeVec::new(Opts::new(name, help), labels)
}

/// What [`Metrics::count_certificate`] adds.
const CERTIFICATE_END: &str = "repot_serving_certificate_not_after_timestamp_seconds";

impl Metrics {
    /// Tells when the serving certificate ends, as of the moment of the scrape.
    pub fn count_certificate(&self, serving: Arc<tls::Serving>) {
        let end = move || serving.not_after().map_or(0.0, |end| end as f64);
        let gauge = PullingGauge::new(CERTIFICATE_END, "When the serving certificate ends.", Box::new(end));
        if let Err(error) = gauge.and_then(|gauge| self.registry.register(Box::new(gauge))) {
            tracing::error!(%error, "the end of the serving certificate is not among the metrics");
        }
    }

    /// Zeroes, and what others count.
    ///
    /// # Errors
    /// When two metrics have one name.
    pub fn new(others: Vec<Box<dyn Collector>>) -> prometheus::Result<Self> {
        let kind = ["group", "version", "resource"];
        let registry = Registry::new();
        let metrics = Self {
            orphans: orphans::Counters::new(&registry)?,
            admission: crate::admission::metrics::Counters::new(&registry)?,
            registry,
            requests: counters("apiserver_request_total", "Requests by HTTP code.", &REQUEST_AND_CODE)?,
            terminations: counters(
                "apiserver_request_terminations_total",
                "Requests that were turned away or given up to protect the server.",
                &REQUEST_AND_CODE,
            )?,
            aborts: counters(
                "apiserver_request_aborts_total",
                "Requests whose answer was cut off, such as at a timeout.",
                &REQUEST[..6],
            )?,
            durations: histogram(
                "apiserver_request_duration_seconds",
                "Time until an answer was sent.",
                SECONDS,
                &REQUEST,
            )?,
            sli_durations: histogram(
                "apiserver_request_sli_duration_seconds",
                "Time until an answer was sent, without waiting for others' webhooks.",
                SECONDS,
                &REQUEST,
            )?,
            sizes: histogram("apiserver_response_sizes", "Bytes of answers, as sent.", SIZES, &REQUEST)?,
            inflight: gauges(
                "apiserver_current_inflight_requests",
                "Requests being served.",
                &["request_kind"],
            )?,
            long_running: gauges("apiserver_longrunning_requests", "Watches being served.", &REQUEST)?,
            watch_events: counters("apiserver_watch_events_total", "Events sent to watches.", &kind)?,
            watch_event_sizes: histogram(
                "apiserver_watch_events_sizes",
                "Bytes of events sent to watches.",
                EVENT_SIZES,
                &kind,
            )?,
            terminated_watchers: counters(
                "apiserver_terminated_watchers_total",
                "Watches that were ended because their clients take nothing.",
                &["group", "resource"],
            )?,
            storage_objects: gauges("apiserver_storage_objects", "Objects at rest.", &["resource"])?,
            resource_objects: gauges(
                "apiserver_resource_objects",
                "Objects at rest.",
                &["group", "resource"],
            )?,
            resource_bytes: gauges(
                "apiserver_resource_size_estimate_bytes",
                "Bytes of the JSON form of objects at rest.",
                &["group", "resource"],
            )?,
            usage: Usage::new()?,
            process: Process::new()?,
        };
        for collector in metrics.collectors().into_iter().chain(shared::all()).chain(others) {
            metrics.registry.register(collector)?;
        }
        Ok(metrics)
    }

    fn collectors(&self) -> Vec<Box<dyn Collector>> {
        let counters =
            [&self.requests, &self.terminations, &self.aborts, &self.watch_events, &self.terminated_watchers];
        let gauges = [
            &self.inflight,
            &self.long_running,
            &self.storage_objects,
            &self.resource_objects,
            &self.resource_bytes,
        ];
        let histograms = [&self.durations, &self.sli_durations, &self.sizes, &self.watch_event_sizes];
        let counters = counters.into_iter().map(|c| Box::new(c.clone()) as Box<dyn Collector>);
        let gauges = gauges.into_iter().map(|g| Box::new(g.clone()) as Box<dyn Collector>);
        let histograms = histograms.into_iter().map(|h| Box::new(h.clone()) as Box<dyn Collector>);
        let usage = self.usage.collectors();
        counters.chain(gauges).chain(histograms).chain(usage).chain(self.process.collectors()).collect()
    }

    /// Counts a request whose answer is known.
    pub fn answered(&self, request: &Labels, code: u16) {
        let text = code.to_string();
        let labels: Vec<&str> = request.values().into_iter().chain([text.as_str()]).collect();
        self.requests.with_label_values(&labels).inc();
        if matches!(code, 429 | 503 | 504) {
            self.terminations.with_label_values(&labels).inc();
        }
    }

    /// Measures a request whose answer is over.
    pub fn sent(&self, request: &Labels, sent: Sent, took: Duration) {
        let labels = request.values();
        if matches!(sent.end, End::Broken | End::Late) {
            self.aborts.with_label_values(&labels[..6]).inc();
        }
        if request.verb == "WATCH" {
            if sent.end == End::Late {
                self.terminated_watchers.with_label_values(&[&request.group, &request.resource]).inc();
            }
        } else {
            self.durations.with_label_values(&labels).observe(took.as_secs_f64());
            self.sli_durations.with_label_values(&labels).observe(took.as_secs_f64());
            #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
            self.sizes.with_label_values(&labels).observe(sent.bytes as f64);
        }
    }

    /// Counts a request being served for as long as the guard lives.
    #[must_use]
    pub fn serving(&self, info: &RequestInfo, request: &Labels) -> Serving {
        let gauge = match (info.long_running(), info.mutating()) {
            (true, _) => self.long_running.with_label_values(&request.values()),
            (_, true) => self.inflight.with_label_values(&["mutating"]),
            _ => self.inflight.with_label_values(&["readOnly"]),
        };
        gauge.inc();
        Serving(gauge)
    }

    /// Counters for the events of a watch.
    #[must_use]
    pub fn watch(&self, resource: &Resource) -> WatchMetrics {
        let labels = [resource.name.group.as_str(), &resource.version, &resource.name.resource];
        WatchMetrics {
            events: self.watch_events.with_label_values(&labels),
            sizes: self.watch_event_sizes.with_label_values(&labels),
        }
    }

    /// Tells how many objects of a resource there are, and how large they are, by namespace.
    pub fn at_rest(&self, resource: &Resource, namespaces: &BTreeMap<String, repot_storage::Usage>) {
        let (group, plural) = (resource.name.group.as_str(), resource.name.resource.as_str());
        let objects = integer(namespaces.values().map(|usage| usage.objects).sum());
        let bytes = integer(namespaces.values().map(|usage| usage.bytes).sum());
        self.storage_objects.with_label_values(&[&resource.name.to_string()]).set(objects);
        self.resource_objects.with_label_values(&[group, plural]).set(objects);
        self.resource_bytes.with_label_values(&[group, plural]).set(bytes);
        self.usage.tell(&resource.name, namespaces);
    }

    /// All metrics in the text format of Prometheus, as an HTTP response.
    #[must_use]
    pub fn render(&self) -> Response<Body> {
        self.process.refresh();
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

fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// What a request is called in metrics. Only what is served has a name of its own: clients can invent any number of others.
#[derive(Clone, Debug)]
pub struct Labels {
    verb: &'static str,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    scope: &'static str,
}

impl Labels {
    /// Of a request, and the resource it is about if that is served.
    #[must_use]
    pub fn of(info: &RequestInfo, resource: Option<&Resource>) -> Self {
        let verb = verb(info.verb);
        let none = String::new;
        let (Some(target), Some(_)) = (&info.target, resource) else {
            let (group, version, resource, subresource) = (none(), none(), none(), none());
            return Self { verb, group, version, resource, subresource, scope: "" };
        };
        let scope = match (target.name.is_empty(), target.namespace.is_empty()) {
            (false, _) => "resource",
            (true, false) => "namespace",
            (true, true) => "cluster",
        };
        let subresource = match target.subresource.as_str() {
            known @ ("status" | "scale") => known.to_owned(),
            _ => none(),
        };
        let (group, version) = (target.group.clone(), target.version.clone());
        Self { verb, group, version, resource: target.resource.clone(), subresource, scope }
    }

    fn values(&self) -> [&str; 7] {
        [self.verb, &self.group, &self.version, &self.resource, &self.subresource, self.scope, "repot"]
    }
}

/// Verbs as kube-apiserver's metrics have them.
fn verb(verb: &str) -> &'static str {
    match verb {
        "get" => "GET",
        "list" => "LIST",
        "watch" => "WATCH",
        "create" | "post" => "POST",
        "update" | "put" => "PUT",
        "patch" => "PATCH",
        "delete" => "DELETE",
        "deletecollection" => "DELETECOLLECTION",
        _ => "other",
    }
}

/// Takes a request off the gauge when it is answered.
pub struct Serving(IntGauge);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Counts the events of a watch.
#[derive(Clone)]
pub struct WatchMetrics {
    events: prometheus::IntCounter,
    sizes: prometheus::Histogram,
}

impl WatchMetrics {
    /// An event of so many bytes was sent.
    pub fn sent(&self, bytes: u64) {
        self.events.inc();
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
        self.sizes.observe(bytes as f64);
    }
}
