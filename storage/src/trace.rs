//! Spans of what the store does for a request. They name groups and resources, and never an object, a key or payload.
//!
//! `tracing` has them at level TRACE: where nobody exports traces, none is made.

use tracing::{Instrument, Span, field::Empty};

use crate::Result;

/// Name of a span: that of the method of [`Store`](crate::Store).
type Operation = &'static str;

/// Follows an operation on objects of a resource to its end.
pub(crate) async fn operation<T>(
    name: Operation,
    (group, resource): (&str, &str),
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let span = tracing::trace_span!(
        "storage",
        otel.name = name,
        group,
        resource,
        storage.chunks_written = Empty,
        storage.bytes_written = Empty,
        storage.objects = Empty,
        "error.type" = Empty,
        otel.status_code = Empty,
    );
    let done = work.instrument(span.clone()).await;
    if let Err(error) = &done {
        span.record("error.type", error.kind());
        if !error.is_answer() {
            span.record("otel.status_code", "ERROR");
        }
    }
    done
}

/// Records on the span of the operation that is under way that it is about so many objects.
pub(crate) fn objects(count: usize) {
    Span::current().record("storage.objects", integer(count));
}

/// The same of new chunks and of the bytes in them before compression.
pub(crate) fn written(chunks: usize, bytes: usize) {
    let span = Span::current();
    span.record("storage.chunks_written", integer(chunks));
    span.record("storage.bytes_written", integer(bytes));
}

/// The span of reading a payload, which ends when it is dropped.
pub(crate) fn payload(chunks: usize, bytes: u64) -> Span {
    tracing::trace_span!(
        "storage.read_payload",
        storage.chunks = integer(chunks),
        storage.bytes = integer(bytes)
    )
}

/// The span of a call to a key management service.
pub(crate) fn kms_call(provider: &str, call: &str) -> Span {
    tracing::trace_span!(
        "kms",
        otel.name = format_args!("kms.{call}"),
        otel.kind = "client",
        kms.provider = provider,
        rpc.system.name = "grpc",
        rpc.method = call,
        rpc.response.status_code = Empty,
        otel.status_code = Empty,
    )
}

/// Records on the span of a call what code of gRPC it ended with.
pub(crate) fn kms_answered(span: &Span, code: &str) {
    span.record("rpc.response.status_code", code);
    if code != "OK" {
        span.record("otel.status_code", "ERROR");
    }
}

/// The span of a question for the status of a key management service, which no request asks for.
pub(crate) fn kms_probe(provider: &str) -> Span {
    tracing::trace_span!("kms.probe", background = true, kms.provider = provider)
}

/// A number as OpenTelemetry has them: an unsigned one would become text.
fn integer(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}
