//! The span of one request, by the semantic conventions of OpenTelemetry for HTTP servers and the attributes of kube-apiserver.
//!
//! It never has names of users or objects, queries, headers or bodies. The audit ID leads to the audit log, which has them.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, StatusCode};
use opentelemetry::{Context, KeyValue, Value, trace::TraceContextExt};
use opentelemetry_sdk::trace::SpanData;
use tracing::{Span, field::Empty};
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::{
    RequestSampler,
    propagation::extract,
    sampler::{Decision, ParentTrust},
};

/// When the request came, in nanoseconds since 1970: a span begins when it is made, and whether to make one is known only after
/// authentication. Exported spans do not have it.
const RECEIVED: &str = "repot.received_unix_nano";

/// What the span of a request tells.
#[derive(Clone, Debug, Default)]
pub struct RequestAttributes<'a> {
    /// Method of the request, such as `GET`.
    pub method: &'a str,
    /// Path with placeholders, such as `/apis/G/V/namespaces/{:namespace}/R/{:name}`. Absent where the path names nothing that is served.
    pub route: Option<&'a str>,
    /// Version of HTTP: `1.1` or `2`.
    pub protocol: &'a str,
    /// Verb of Kubernetes, such as `list`.
    pub verb: Option<&'a str>,
    /// API group of the resource, where one is served.
    pub group: Option<&'a str>,
    /// API version of the resource, where one is served.
    pub version: Option<&'a str>,
    /// Plural name of the resource, where one is served.
    pub resource: Option<&'a str>,
    /// Subresource, such as `status`, where there is one.
    pub subresource: Option<&'a str>,
    /// ID of the request in audit logs, where it has one.
    pub audit_id: Option<&'a str>,
}

impl RequestSampler {
    /// The span of a request that came `received`, if the request is traced; otherwise none. `trust` says how far the client may
    /// decide it, and is asked only where the headers name a parent.
    pub fn begin(
        &self,
        headers: &HeaderMap,
        received: Instant,
        trust: impl FnOnce() -> ParentTrust,
        attributes: &RequestAttributes<'_>,
    ) -> Span {
        if !self.is_on() {
            return Span::none();
        }
        let parent = extract(headers);
        let trust = if parent.is_some() { trust() } else { ParentTrust::Ignored };
        match self.decide(parent, trust) {
            Decision::NotTraced => Span::none(),
            Decision::Root => span(received, attributes),
            Decision::Child(parent) => {
                let span = span(received, attributes);
                // Fails only for a span that nobody exports.
                let _ = span.set_parent(Context::new().with_remote_span_context(parent));
                span
            }
        }
    }
}

fn span(received: Instant, attributes: &RequestAttributes<'_>) -> Span {
    let RequestAttributes { method, route, protocol, verb, group, version, resource, subresource, audit_id } =
        attributes;
    let name = route.map_or_else(|| (*method).to_owned(), |route| format!("{method} {route}"));
    // No parent here: a connection may be served inside of another span.
    tracing::trace_span!(
        parent: None,
        "request",
        otel.name = name,
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = method,
        http.route = route,
        http.response.status_code = Empty,
        http.response.body.size = Empty,
        network.protocol.version = protocol,
        url.scheme = "https",
        verb,
        group,
        version,
        resource,
        subresource,
        "audit-id" = audit_id,
        "repot.received_unix_nano" = nanoseconds(SystemTime::now() - received.elapsed()),
    )
}

fn nanoseconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// Records how a request was answered. As for servers by convention, only a failure of the server is an error.
pub fn answered(span: &Span, code: StatusCode) {
    span.record("http.response.status_code", i64::from(code.as_u16()));
    if code.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
}

/// Records that the answer is sent, with so many bytes: the span ends now, however long it is kept.
pub fn sent(span: &Span, bytes: u64) {
    // An unsigned number would become text: OpenTelemetry has signed ones only.
    span.record("http.response.body.size", i64::try_from(bytes).unwrap_or(i64::MAX));
    // A span ends when it was left last.
    span.in_scope(|| {});
}

/// Lets a span begin when its request came.
pub(crate) fn begin_when_received(span: &mut SpanData) {
    let at = span.attributes.iter().position(|KeyValue { key, .. }| key.as_str() == RECEIVED);
    if let Some(KeyValue { value: Value::I64(nanos), .. }) = at.map(|at| span.attributes.swap_remove(at)) {
        span.start_time = UNIX_EPOCH + Duration::from_nanos(u64::try_from(nanos).unwrap_or_default());
    }
}
