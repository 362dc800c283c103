//! What every request passes: who asks, how many are answered at a time, and the headers of each answer.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{Request, State},
    http::{
        HeaderName, HeaderValue, StatusCode,
        header::{
            CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, RETRY_AFTER, SET_COOKIE,
            X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
        },
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use tokio::{sync::Semaphore, time::timeout};

use super::{
    access::{Access, Entry},
    assets,
};

/// Requests that are answered at a time, without streams of events.
const REQUESTS: usize = 16;
/// How long a request waits for its turn.
const TURN: Duration = Duration::from_secs(10);
/// How long an answer may take. Reads and writes of the garden end before that.
const ANSWER: Duration = Duration::from_secs(180);

/// Code and styles come from this server alone, none of them inline; nothing shows the page in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";
const HEADERS: [(HeaderName, &str); 8] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (CACHE_CONTROL, "no-store"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
];

/// What every request passes.
pub(super) struct Gate {
    pub(super) access: Access,
    requests: Semaphore,
}

impl Gate {
    pub(super) fn new(access: Access) -> Self {
        Self { access, requests: Semaphore::new(REQUESTS) }
    }
}

/// Answers, or refuses.
pub(super) async fn pass(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let mut response = match gate.access.check(&parts) {
        Ok(Entry::Link) => entered(&gate.access),
        Ok(Entry::Session) => answer(&gate, Request::from_parts(parts, body), next).await,
        Err(denied) => {
            tracing::debug!(%denied, path = parts.uri.path(), "request refused");
            (denied.status(), format!("{denied}\n")).into_response()
        }
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn entered(access: &Access) -> Response {
    let mut response = assets::enter(access.key());
    match HeaderValue::from_str(&access.set_cookie()) {
        Ok(cookie) => {
            response.headers_mut().insert(SET_COOKIE, cookie);
            response
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn answer(gate: &Gate, request: Request, next: Next) -> Response {
    let busy = || {
        let told = "too many requests are being answered\n";
        (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "5")], told).into_response()
    };
    let Ok(Ok(_permit)) = timeout(TURN, gate.requests.acquire()).await else { return busy() };
    let late = || (StatusCode::GATEWAY_TIMEOUT, "the garden does not answer\n").into_response();
    timeout(ANSWER, next.run(request)).await.unwrap_or_else(|_| late())
}
