//! Answers of the proxy itself: `Status` objects, as kube-apiserver gives them.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use serde_json::json;

/// An answer that is no success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The HTTP status of the answer.
    pub code: StatusCode,
    /// `reason` of the `Status`.
    pub reason: &'static str,
    /// What failed, why, and what to do.
    pub message: String,
    /// When it is worth while to try again.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// With these words, and nothing that says when to try again.
    #[must_use]
    pub fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), retry_after: None }
    }

    /// Too many requests: clients try again after a second by themselves.
    #[must_use]
    pub fn busy(message: &str) -> Self {
        let retry_after = Some(Duration::from_secs(1));
        Self { retry_after, ..Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message) }
    }

    /// The answer.
    ///
    /// Only 429 has the header `Retry-After`: for other codes client-go would try again ten times within one call, and the controller
    /// would stand still instead of requeueing. What they say of time is in `details`.
    #[must_use]
    pub fn response(&self) -> Response<Full<Bytes>> {
        let seconds = self.retry_after.map(|time| time.as_secs().max(1));
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code.as_u16(),
        });
        if let Some(seconds) = seconds {
            status["details"] = json!({ "retryAfterSeconds": seconds });
        }
        let mut response = Response::new(Full::new(Bytes::from(status.to_string())));
        *response.status_mut() = self.code;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let (StatusCode::TOO_MANY_REQUESTS, Some(seconds)) = (self.code, seconds) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
