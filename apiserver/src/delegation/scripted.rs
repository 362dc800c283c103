//! A kube-apiserver of a few lines, for tests: answers by a function, and remembers what it was asked.

use std::{sync::Arc, time::Duration};

use http_body_util::BodyExt;
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{sync::Semaphore, task::JoinHandle};

/// What was asked.
#[derive(Clone, Default)]
pub(crate) struct Script(Arc<Mutex<Vec<Value>>>);

impl Script {
    /// The bodies of requests, in order; null where there was none.
    pub(crate) fn bodies(&self) -> Vec<Value> {
        self.0.lock().clone()
    }

    /// How often it was asked, when so many tasks have ended and nothing moves any more.
    pub(crate) async fn asked_when<T>(&self, ended: usize, tasks: &[JoinHandle<T>]) -> usize {
        let settled = async {
            let (mut quiet, mut asked) = (0, 0);
            while quiet < 200 {
                tokio::task::yield_now().await;
                let now = self.0.lock().len();
                let there = tasks.iter().filter(|task| task.is_finished()).count() >= ended;
                quiet = if there && now == asked { quiet + 1 } else { 0 };
                asked = now;
            }
            asked
        };
        tokio::time::timeout(Duration::from_secs(60), settled).await.expect("it settles")
    }
}

/// A client of a server that answers path and body with code and body.
pub(crate) fn script(
    answer: impl Fn(&str, &Value) -> (u16, Value) + Clone + Send + Sync + 'static,
) -> (Client, Script) {
    script_behind(Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)), answer)
}

/// The same; each answer waits for a permit, which it takes.
pub(crate) fn script_behind(
    gate: Arc<Semaphore>,
    answer: impl Fn(&str, &Value) -> (u16, Value) + Clone + Send + Sync + 'static,
) -> (Client, Script) {
    let script = Script::default();
    let asked = script.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (answer, asked, gate) = (answer.clone(), asked.clone(), gate.clone());
        async move {
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect().await.expect("a body").to_bytes();
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            asked.0.lock().push(body.clone());
            gate.acquire().await.expect("a gate").forget();
            let (code, body) = answer(&path, &body);
            let response =
                http::Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
            Ok::<_, std::convert::Infallible>(response.expect("a response"))
        }
    });
    (Client::new(service, "default"), script)
}
