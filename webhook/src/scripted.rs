//! A kube-apiserver of a few lines, for tests: answers by a function, and remembers what it was asked.

use std::{convert::Infallible, sync::Arc};

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde_json::Value;

/// Method, path with query, and body of each request, in order.
pub(crate) type Asked = Arc<Mutex<Vec<(String, String, Value)>>>;

/// Code and body for a path.
pub(crate) type Answer = fn(&str) -> (u16, Value);

/// A client of a server that answers a path with a code and a body.
pub(crate) fn client(answer: Answer) -> (Client, Asked) {
    let asked = Asked::default();
    let own = asked.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let own = own.clone();
        async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            let body = serde_json::from_slice(&bytes).unwrap_or_default();
            let (code, answer) = answer(parts.uri.path());
            own.lock().push((parts.method.to_string(), parts.uri.to_string(), body));
            let response = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
            Ok::<_, Infallible>(response.expect("a response"))
        }
    });
    (Client::new(service, "default"), asked)
}

/// The body of a refusal.
pub(crate) fn status(code: u16, message: &str) -> (u16, Value) {
    let reason = if code == 404 { "NotFound" } else { "Forbidden" };
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message, "reason": reason,
    });
    (code, status)
}
