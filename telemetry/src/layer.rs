//! Which spans become spans of OpenTelemetry: those of this project's crates that are part of a request that is traced.
//!
//! The level of these spans is TRACE, which logs leave out by default: logs are the same with tracing and without. Events, which are
//! log lines, are not exported: they may name users.

use opentelemetry_sdk::trace::SdkTracer;
use tracing::{Metadata, level_filters::LevelFilter, subscriber::Interest};
use tracing_subscriber::{
    Layer, Registry,
    layer::{Context, Filter},
};

use crate::RequestSampler;

/// Name of the span of a request in the code. It is made only for requests that are traced.
pub(crate) const REQUEST: &str = "request";
/// A span with this field begins work that no request asked for. It is traced at the rate of the sampler.
const BACKGROUND: &str = "background";
/// What the modules of this project's crates begin with.
const OURS: &str = "repot";

/// The layer of a subscriber that exports spans.
pub type TraceLayer = Box<dyn Layer<Registry> + Send + Sync>;

pub(crate) fn layer(tracer: SdkTracer, sampler: RequestSampler) -> TraceLayer {
    tracing_opentelemetry::layer()
        .with_tracer(tracer)
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_context_activation(false)
        .with_error_fields_to_exceptions(false)
        .with_filter(PartsOfRequests(sampler))
        .boxed()
}

struct PartsOfRequests(RequestSampler);

impl Filter<Registry> for PartsOfRequests {
    fn enabled(&self, metadata: &Metadata<'_>, context: &Context<'_, Registry>) -> bool {
        if !is_ours(metadata) {
            return false;
        }
        if metadata.name() == REQUEST {
            return true;
        }
        if metadata.fields().field(BACKGROUND).is_some() {
            return self.0.by_rate();
        }
        context.lookup_current().is_some_and(|span| span.scope().any(|span| is_ours(span.metadata())))
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        if is_ours(metadata) { Interest::sometimes() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::TRACE)
    }
}

fn is_ours(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && metadata.target().starts_with(OURS)
}
