//! A kube-apiserver of a few lines, for tests: answers by a function, and remembers what it was asked.

use std::sync::Arc;

use http_body_util::BodyExt;
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde_json::Value;

/// What was asked.
#[derive(Clone, Default)]
pub(crate) struct Script(Arc<Mutex<Vec<Value>>>);

impl Script {
    /// The bodies of requests, in order; null where there was none.
    pub(crate) fn bodies(&self) -> Vec<Value> {
        self.0.lock().clone()
    }
}

/// A client of a server that answers path and body with code and body.
pub(crate) fn script(
    answer: impl Fn(&str, &Value) -> (u16, Value) + Clone + Send + Sync + 'static,
) -> (Client, Script) {
    let script = Script::default();
    let asked = script.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (answer, asked) = (answer.clone(), asked.clone());
        async move {
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect().await.expect("a body").to_bytes();
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            asked.0.lock().push(body.clone());
            let (code, body) = answer(&path, &body);
            let response =
                http::Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
            Ok::<_, std::convert::Infallible>(response.expect("a response"))
        }
    });
    (Client::new(service, "default"), script)
}
