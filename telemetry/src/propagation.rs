//! Trace context in HTTP headers, as W3C defines it: `traceparent` and `tracestate`. Baggage is neither read nor sent.

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::{
    propagation::{Extractor, Injector, TextMapPropagator},
    trace::{SpanContext, TraceContextExt},
};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The span of the client as the headers name it, if they do.
pub(crate) fn extract(headers: &HeaderMap) -> Option<SpanContext> {
    if !headers.contains_key("traceparent") {
        return None;
    }
    let context =
        TraceContextPropagator::new().extract_with_context(&opentelemetry::Context::new(), &Headers(headers));
    Some(context.span().span_context().clone()).filter(SpanContext::is_valid)
}

/// Puts the context of the current span into the headers of a request that is about to be sent. Nothing where nothing is traced.
pub fn inject(headers: &mut HeaderMap) {
    let span = Span::current();
    if span.is_none() {
        return;
    }
    TraceContextPropagator::new().inject_context(&span.context(), &mut HeadersMut(headers));
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

struct HeadersMut<'a>(&'a mut HeaderMap);

impl Injector for HeadersMut<'_> {
    fn set(&mut self, key: &str, value: String) {
        // Both are made of ASCII by the propagator; an empty tracestate says nothing.
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(key), HeaderValue::try_from(value))
            && !value.is_empty()
        {
            self.0.insert(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(traceparent: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("traceparent", traceparent.parse().expect("a value"));
        headers
    }

    #[test]
    fn reads_who_the_parent_is_and_whether_it_is_sampled() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        for (flags, sampled) in [("01", true), ("00", false)] {
            let found = extract(&headers(&format!("00-{trace}-b7ad6b7169203331-{flags}"))).expect("a parent");
            assert_eq!((found.trace_id().to_string(), found.is_sampled()), (trace.to_owned(), sampled));
            assert!(found.is_remote());
        }
    }

    #[test]
    fn what_is_no_trace_context_is_passed_over() {
        let zeroes = "00-00000000000000000000000000000000-b7ad6b7169203331-01";
        for text in ["", "01", zeroes, "00-0af7651916cd43dd8448eb211c80319c-short-01", "ff-a-b-c"] {
            assert_eq!(extract(&headers(text)), None, "{text}");
        }
        assert_eq!(extract(&HeaderMap::new()), None);
    }
}
