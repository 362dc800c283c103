//! Spans from code to a collector of the test.

use std::sync::{Arc, atomic::AtomicBool};

use http::{HeaderMap, StatusCode};
use opentelemetry::{
    Value,
    trace::{SpanKind, Status},
};
use opentelemetry_sdk::error::OTelSdkError;
use parking_lot::Mutex;
use tracing_subscriber::{Layer, layer::SubscriberExt};

use super::*;
use crate::{
    ParentTrust,
    request::{self, RequestAttributes},
};

/// A collector in this process.
#[derive(Clone, Debug, Default)]
struct Collector {
    spans: Arc<Mutex<Vec<SpanData>>>,
    silent: Arc<AtomicBool>,
    failing: Arc<AtomicBool>,
}

impl SpanExporter for Collector {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        if self.silent.load(std::sync::atomic::Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        if self.failing.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(OTelSdkError::InternalFailure("told to fail".into()));
        }
        self.spans.lock().extend(batch);
        Ok(())
    }
}

fn config(sampling_rate_per_million: u32) -> TracingConfiguration {
    let endpoint = Endpoint::Tcp { host: "localhost".into(), port: 4317 };
    TracingConfiguration { endpoint, sampling_rate_per_million }
}

/// A process that traces, and its collector.
fn traced(rate: u32) -> (Exporting, TraceLayer, Collector) {
    let (tracing, layer) = Tracing::new(config(rate), "repot-test", "one".into());
    let collector = Collector::default();
    let Tracing { queue, sampler, provider, .. } = tracing;
    (Exporting::spawn(collector.clone(), queue, sampler, provider), layer, collector)
}

fn begin(sampler: &RequestSampler, headers: &HeaderMap, received: Instant) -> tracing::Span {
    let attributes = RequestAttributes {
        method: "GET",
        route: Some("/apis/g/v1/things/{:name}"),
        protocol: "2",
        audit_id: Some("id"),
        ..RequestAttributes::default()
    };
    sampler.begin(headers, received, || ParentTrust::Full, &attributes)
}

/// What a request does, with a log line in it.
fn work() {
    let span = tracing::trace_span!("step", kind = "inner");
    span.in_scope(|| tracing::info!(user = "alice", "a log line"));
}

fn lost(reason: &str) -> u64 {
    DROPPED.with_label_values(&[reason]).get()
}

#[tokio::test]
async fn spans_of_a_request_arrive_with_their_parent_and_without_log_lines() {
    let (exporting, layer, collector) = traced(0);
    let mut headers = HeaderMap::new();
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    headers.insert("traceparent", parent.parse().expect("a value"));
    let received = Instant::now().checked_sub(Duration::from_secs(3)).expect("a time");
    let (sampler, sent) = (exporting.sampler(), Mutex::new(HeaderMap::new()));
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        // Nobody asked for it.
        work();
        let span = begin(&sampler, &headers, received);
        span.in_scope(|| {
            work();
            crate::propagation::inject(&mut sent.lock());
        });
        request::answered(&span, StatusCode::SERVICE_UNAVAILABLE);
        request::sent(&span, 42);
    });
    exporting.end(Duration::from_secs(10)).await;
    let spans = collector.spans.lock();
    let [step, request] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!(request.name, "GET /apis/g/v1/things/{:name}");
    assert_eq!((&request.span_kind, &step.span_kind), (&SpanKind::Server, &SpanKind::Internal));
    assert_eq!(request.span_context.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(request.parent_span_id.to_string(), "b7ad6b7169203331");
    assert_eq!(step.parent_span_id, request.span_context.span_id());
    assert_eq!(step.span_context.trace_id(), request.span_context.trace_id());
    let took = request.end_time.duration_since(request.start_time).expect("a time");
    assert!(took >= Duration::from_secs(3), "{took:?}");
    assert!(matches!(request.status, Status::Error { .. }));
    assert!(request.events.is_empty() && step.events.is_empty(), "log lines are not exported");
    let attribute =
        |name: &str| request.attributes.iter().find(|a| a.key.as_str() == name).map(|a| a.value.to_string());
    let numbers = ["http.response.status_code", "http.response.body.size"];
    let is_number = |name: &str| {
        request.attributes.iter().any(|a| a.key.as_str() == name && matches!(a.value, Value::I64(_)))
    };
    assert!(numbers.iter().all(|name| is_number(name)), "{:?}", request.attributes);
    for (name, expected) in [
        ("audit-id", Some("id")),
        ("http.response.status_code", Some("503")),
        ("http.response.body.size", Some("42")),
        ("network.protocol.version", Some("2")),
        ("resource", None),
        ("repot.received_unix_nano", None),
    ] {
        assert_eq!(attribute(name).as_deref(), expected, "{name}");
    }
    let sent = sent.into_inner();
    let expected = format!("00-0af7651916cd43dd8448eb211c80319c-{}-01", request.span_context.span_id());
    assert_eq!(sent.get("traceparent").and_then(|value| value.to_str().ok()), Some(expected.as_str()));
}

#[tokio::test]
async fn a_request_that_is_not_traced_makes_no_span() {
    let (exporting, layer, collector) = traced(0);
    let (sampler, mut sent) = (exporting.sampler(), HeaderMap::new());
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let span = begin(&sampler, &HeaderMap::new(), Instant::now());
        assert!(span.is_none());
        span.in_scope(|| {
            work();
            crate::propagation::inject(&mut sent);
        });
    });
    exporting.end(Duration::from_secs(10)).await;
    assert!(collector.spans.lock().is_empty() && sent.is_empty());
}

#[tokio::test]
async fn work_in_the_background_is_traced_at_the_rate() {
    for (rate, expected) in [(0, 0), (1_000_000, 2)] {
        let (exporting, layer, collector) = traced(rate);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::trace_span!("probe", background = true).in_scope(work);
        });
        exporting.end(Duration::from_secs(10)).await;
        assert_eq!(collector.spans.lock().len(), expected, "at {rate}");
    }
}

#[tokio::test]
async fn logs_are_the_same_with_tracing() {
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let (exporting, layer, _) = traced(1_000_000);
    let (lines, sampler) = (Lines::default(), exporting.sampler());
    let writer = lines.clone();
    let logs =
        tracing_subscriber::fmt::layer().without_time().with_ansi(false).with_writer(move || writer.clone());
    let logs = logs.with_filter(tracing_subscriber::EnvFilter::new("info"));
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer).with(logs), || {
        let span = begin(&sampler, &HeaderMap::new(), Instant::now());
        assert!(!span.is_none());
        span.in_scope(work);
    });
    exporting.end(Duration::from_secs(10)).await;
    let text = String::from_utf8(lines.0.lock().clone()).expect("text");
    assert_eq!(text, " INFO repot_telemetry::export::tests: a log line user=\"alice\"\n");
}

#[tokio::test]
async fn a_collector_that_does_not_answer_costs_spans_and_no_time() {
    let (exporting, layer, collector) = traced(1_000_000);
    collector.silent.store(true, std::sync::atomic::Ordering::Relaxed);
    let (sampler, before) = (exporting.sampler(), lost(QUEUE_FULL));
    let began = Instant::now();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for _ in 0..QUEUE + BATCH + 100 {
            drop(begin(&sampler, &HeaderMap::new(), Instant::now()));
        }
    });
    assert!(began.elapsed() < EXPORT_TIMEOUT, "it waited for the collector");
    // Other tests may lose spans too, but none so many.
    assert!(lost(QUEUE_FULL) - before >= 100, "{}", lost(QUEUE_FULL) - before);
    let began = Instant::now();
    exporting.end(Duration::from_millis(300)).await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test]
async fn what_a_collector_refuses_is_counted() {
    let (exporting, layer, collector) = traced(1_000_000);
    collector.failing.store(true, std::sync::atomic::Ordering::Relaxed);
    let (sampler, before) = (exporting.sampler(), lost(EXPORT_FAILED));
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        drop(begin(&sampler, &HeaderMap::new(), Instant::now()));
    });
    exporting.end(Duration::from_secs(10)).await;
    assert_eq!(lost(EXPORT_FAILED) - before, 1);
    assert!(collector.spans.lock().is_empty());
}

#[test]
fn failures_are_logged_once_a_minute() {
    let (mut failures, now) = (Failures::default(), Instant::now());
    let due = [0, 1, 59, 60, 61, 119, 120].map(|second| failures.is_due(now + Duration::from_secs(second)));
    assert_eq!(due, [true, false, false, true, false, false, true]);
}
