//! Traces by OpenTelemetry, and CPU profiles. This crate knows no request, no object and no user: callers say what a span tells.
//!
//! Code that does a part of the work of a request makes a span by `tracing::trace_span!`, and needs no crate but `tracing` for it.
//! Such a span is exported if it belongs to a request that is traced ([`RequestSampler`]); otherwise none is made. Without
//! [`Tracing`], a span costs one comparison of levels.
//!
//! | file | does |
//! |---|---|
//! | [`config`] | reads `TracingConfiguration`, the file of `--tracing-config-file` |
//! | `sampler` | decides which requests are traced |
//! | [`request`] | the span of one request |
//! | [`propagation`] | trace context in HTTP headers: W3C `traceparent` and `tracestate` |
//! | `layer` | which spans become spans of OpenTelemetry |
//! | `export` | a bounded queue of spans, and the task that sends them |
//! | [`profile`] | CPU profiles in the format of pprof |

pub mod config;
mod export;
mod layer;
pub mod metrics;
pub mod profile;
pub mod propagation;
pub mod request;
mod sampler;

pub use export::{Exporting, StartError, Tracing};
pub use layer::TraceLayer;
pub use sampler::{ParentTrust, RequestSampler};
