//! Spans on their way to a collector: a bounded queue, and one task that sends batches of them. A span that finds no room is dropped
//! and counted, so no request ever waits for a collector.

use std::time::{Duration, Instant};

use opentelemetry::{Context, KeyValue, trace::TracerProvider};
use opentelemetry_otlp::{SpanExporter as OtlpExporter, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{Sampler, SdkTracerProvider, Span, SpanData, SpanExporter, SpanProcessor},
};
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint as TonicEndpoint};

use crate::{
    RequestSampler, TraceLayer,
    config::{Endpoint, TracingConfiguration},
    layer,
    metrics::{DROPPED, EXPORT_FAILED, EXPORTED, QUEUE_FULL},
    request::begin_when_received,
};

/// Spans that wait, at most. This and the next two are the defaults of OpenTelemetry.
const QUEUE: usize = 2048;
/// Spans that are sent together, at most.
const BATCH: usize = 512;
/// How long spans wait for others to be sent with them.
const DELAY: Duration = Duration::from_secs(5);
/// How long a collector may take for a batch, with all retries.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long connecting to a collector may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How often it is logged that spans cannot be sent.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Why spans cannot be sent at all.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The endpoint is no address.
    #[error("endpoint: {0}")]
    Endpoint(#[from] tonic::transport::Error),
    /// A variable of the environment, such as OTEL_EXPORTER_OTLP_HEADERS, has no valid value.
    #[error("failed to make the exporter: {0}")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
}

/// Spans of one process, before anything is sent.
pub struct Tracing {
    endpoint: Endpoint,
    resource: Resource,
    sampler: RequestSampler,
    provider: SdkTracerProvider,
    queue: mpsc::Receiver<SpanData>,
}

/// The task that sends spans.
pub struct Exporting {
    sampler: RequestSampler,
    stop: CancellationToken,
    task: JoinHandle<()>,
    /// Spans end in it, so it has to live as long as they do.
    _provider: SdkTracerProvider,
}

impl Tracing {
    /// Prepares tracing for a process: `service` is what it is called in traces, `instance` which of several it is. The layer has to
    /// become part of the subscriber before the first span.
    #[must_use]
    pub fn new(config: TracingConfiguration, service: &'static str, instance: String) -> (Self, TraceLayer) {
        let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        // OTEL_RESOURCE_ATTRIBUTES adds attributes, as with kube-apiserver.
        let resource = Resource::builder()
            .with_service_name(service)
            .with_attributes([version, KeyValue::new("service.instance.id", instance)])
            .build();
        let (sender, queue) = mpsc::channel(QUEUE);
        // Only spans of requests that are traced come here.
        let provider = SdkTracerProvider::builder()
            .with_sampler(Sampler::AlwaysOn)
            .with_resource(resource.clone())
            .with_span_processor(Enqueue(sender))
            .build();
        let sampler = RequestSampler::new(config.sampling_rate_per_million);
        let layer = layer::layer(provider.tracer("repot"), sampler.clone());
        (Self { endpoint: config.endpoint, resource, sampler, provider, queue }, layer)
    }

    /// Starts to send spans. A collector that does not answer is no error. Must be called in a runtime.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(self) -> Result<Exporting, StartError> {
        let Self { endpoint, resource, sampler, provider, queue } = self;
        let channel = channel(&endpoint)?;
        let exporter =
            OtlpExporter::builder().with_tonic().with_channel(channel).with_timeout(EXPORT_TIMEOUT);
        let mut exporter = exporter.build()?;
        exporter.set_resource(&resource);
        tracing::info!(%endpoint, "traces are sent to a collector");
        Ok(Exporting::spawn(exporter, queue, sampler, provider))
    }
}

/// A connection that is made when it is first used, and again when it is lost.
fn channel(endpoint: &Endpoint) -> Result<Channel, tonic::transport::Error> {
    let uri = match endpoint {
        Endpoint::Tcp { host, port } => format!("http://{host}:{port}"),
        Endpoint::Unix(path) => format!("unix:{}", path.display()),
    };
    let endpoint = TonicEndpoint::from_shared(uri)?;
    Ok(endpoint.connect_timeout(CONNECT_TIMEOUT).timeout(EXPORT_TIMEOUT).connect_lazy())
}

impl Exporting {
    fn spawn(
        exporter: impl SpanExporter + 'static,
        queue: mpsc::Receiver<SpanData>,
        sampler: RequestSampler,
        provider: SdkTracerProvider,
    ) -> Self {
        let stop = CancellationToken::new();
        let batches = Batches { exporter, queue, failures: Failures::default() };
        let task = tokio::spawn(batches.send(stop.clone()));
        Self { sampler, stop, task, _provider: provider }
    }

    /// Decides which requests are traced.
    #[must_use]
    pub fn sampler(&self) -> RequestSampler {
        self.sampler.clone()
    }

    /// Sends what waits, for as long as `limit`; what is left then is lost.
    pub async fn end(self, limit: Duration) {
        self.stop.cancel();
        if tokio::time::timeout(limit, self.task).await.is_err() {
            tracing::warn!("the collector did not take the last traces in time");
        }
    }
}

/// Takes each span that ends.
#[derive(Debug)]
struct Enqueue(mpsc::Sender<SpanData>);

impl SpanProcessor for Enqueue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, mut span: SpanData) {
        begin_when_received(&mut span);
        if self.0.try_send(span).is_err() {
            DROPPED.with_label_values(&[QUEUE_FULL]).inc();
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// The other end of the queue.
struct Batches<E> {
    exporter: E,
    queue: mpsc::Receiver<SpanData>,
    failures: Failures,
}

impl<E: SpanExporter> Batches<E> {
    async fn send(mut self, stop: CancellationToken) {
        loop {
            let mut batch = Vec::new();
            let ended = !self.gather(&mut batch, &stop).await;
            if ended {
                self.queue.close();
                while batch.len() < BATCH
                    && let Ok(span) = self.queue.try_recv()
                {
                    batch.push(span);
                }
            }
            if ended && batch.is_empty() {
                return;
            }
            self.export(batch).await;
        }
    }

    /// Waits until a batch is full, or its first span has waited for [`DELAY`]. Returns false where no more are to come.
    async fn gather(&mut self, batch: &mut Vec<SpanData>, stop: &CancellationToken) -> bool {
        if stop.run_until_cancelled(self.queue.recv_many(batch, BATCH)).await.unwrap_or(0) == 0 {
            return false;
        }
        let full = async {
            while batch.len() < BATCH && self.queue.recv_many(batch, BATCH - batch.len()).await > 0 {}
        };
        // What has come is in the batch, wherever this ends.
        stop.run_until_cancelled(tokio::time::timeout(DELAY, full)).await.is_some()
    }

    async fn export(&mut self, batch: Vec<SpanData>) {
        let count = batch.len() as u64;
        let why = match tokio::time::timeout(EXPORT_TIMEOUT, self.exporter.export(batch)).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no answer within {EXPORT_TIMEOUT:?}")),
        };
        match why {
            None => {
                EXPORTED.inc_by(count);
                self.failures.over();
            }
            Some(why) => {
                DROPPED.with_label_values(&[EXPORT_FAILED]).inc_by(count);
                self.failures.add(count, &why);
            }
        }
    }
}

/// Spans that could not be sent since the last success, and when that was logged.
#[derive(Debug, Default)]
struct Failures {
    spans: u64,
    logged: Option<Instant>,
    /// A warning was logged, and not yet that it is over.
    warned: bool,
}

impl Failures {
    fn add(&mut self, spans: u64, why: &str) {
        self.spans += spans;
        if self.is_due(Instant::now()) {
            let dropped = self.spans;
            self.warned = true;
            tracing::warn!(dropped, why, "failed to send traces to the collector; spans are dropped");
        }
    }

    fn is_due(&mut self, now: Instant) -> bool {
        let due = self.logged.is_none_or(|logged| now.duration_since(logged) >= LOG_INTERVAL);
        if due {
            self.logged = Some(now);
        }
        due
    }

    fn over(&mut self) {
        if self.warned {
            tracing::info!(dropped = self.spans, "traces are sent to the collector again");
        }
        (self.spans, self.warned) = (0, false);
    }
}

#[cfg(test)]
mod tests;
