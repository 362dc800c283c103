//! One line a request, under the id by which the front server's logs know it too.

use std::time::Duration;

use axum::body::Body;
use http::{HeaderValue, Response};

use crate::call::Call;

/// Puts the id on the answer.
pub fn stamp(response: &mut Response<Body>, audit_id: &str) {
    if let Ok(value) = HeaderValue::from_str(audit_id) {
        response.headers_mut().insert("audit-id", value);
    }
}

/// Writes the line: reads that went well only when asked for, everything else always. Never the body or the query: both
/// can hold payload.
pub fn record(call: &Call, code: u16, took: Duration) {
    let (id, verb, path, user) = (&call.audit_id, call.info.verb, &call.info.path, &call.user.name);
    for (key, value) in &call.notes.lock().annotations {
        tracing::info!(audit_id = %id, key, value, "admission annotated the request");
    }
    let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    if code >= 500 {
        tracing::warn!(audit_id = %id, verb, path, user, code, took_ms, "request failed");
    } else if call.info.mutating() {
        tracing::info!(audit_id = %id, verb, path, user, code, took_ms, "request");
    } else {
        tracing::debug!(audit_id = %id, verb, path, user, code, took_ms, "request");
    }
}
