//! HTTP server of a process with controllers: `/healthz`, `/livez`, `/readyz` and `/metrics`, without TLS.
//!
//! Kubelets and Prometheus show no credentials, so any client that reaches the port may ask. Connections are limited in number and
//! time, for all clients and for each address.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use repot_certs::{
    connections::{Connections, Counted, Limits},
    http::{self, ACCEPT_PAUSE, Protocol},
    unread,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt;

use crate::{errors::causes, metrics::Metrics};

/// Limits on connections. No request is worth more than another here, so all connections have the same time when they are idle.
const LIMITS: Limits =
    Limits { all: 256, of_address: 64, idle: Duration::from_secs(32), failed: Duration::from_secs(32) };
/// How long requests may take that are being answered when the process stops.
const DRAIN: Duration = Duration::from_secs(5);

/// Whether the process is ready, with the reason where it is not. Clones share it.
#[derive(Clone, Debug)]
pub struct Readiness(Arc<watch::Sender<Option<&'static str>>>);

impl Readiness {
    /// Not ready, for this reason.
    #[must_use]
    pub fn not_ready(reason: &'static str) -> Self {
        Self(Arc::new(watch::Sender::new(Some(reason))))
    }

    /// Makes `/readyz` answer with 200 from now on.
    pub fn set_ready(&self) {
        self.0.send_replace(None);
    }

    /// Makes `/readyz` answer with 503 and this reason from now on.
    pub fn set_not_ready(&self, reason: &'static str) {
        self.0.send_replace(Some(reason));
    }
}

#[derive(Clone)]
struct Served {
    readiness: Readiness,
    metrics: Metrics,
}

/// Serves on this listener until `stop`. Requests that are being answered then have five more seconds.
pub async fn serve(listener: TcpListener, readiness: Readiness, metrics: Metrics, stop: CancellationToken) {
    serve_within(LIMITS, listener, readiness, metrics, stop).await;
}

async fn serve_within(
    limits: Limits,
    listener: TcpListener,
    readiness: Readiness,
    metrics: Metrics,
    stop: CancellationToken,
) {
    let router = router(readiness, metrics);
    let (tasks, connections) = (TaskTracker::new(), Connections::new(limits));
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, address)) => {
                let (counted, router, stop) = (connections.count(address.ip()), router.clone(), stop.clone());
                tasks.spawn(async move { serve_connection(stream, router, &counted, &stop).await });
            }
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    tasks.close();
    if tokio::time::timeout(DRAIN, tasks.wait()).await.is_err() {
        tracing::debug!("connections are still open after {DRAIN:?}");
    }
}

async fn serve_connection(stream: TcpStream, router: Router, counted: &Counted, stop: &CancellationToken) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "failed to set TCP_NODELAY");
    }
    // With HTTP/1.1 alone, a client that sends nothing is ended in time.
    http::serve(stream, Protocol::One, counted, unread::Limits::default(), stop, |request, answering| {
        let answered = router.clone().oneshot(request);
        async move {
            let Ok(response) = answered.await;
            drop(answering);
            response
        }
    })
    .await;
}

fn router(readiness: Readiness, metrics: Metrics) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(render_metrics))
        .fallback(async || (StatusCode::NOT_FOUND, "not found\n"))
        .with_state(Served { readiness, metrics })
}

async fn readyz(State(served): State<Served>) -> Response {
    let reason = *served.readiness.0.borrow();
    match reason {
        None => "ok\n".into_response(),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {reason}\n")).into_response(),
    }
}

async fn render_metrics(State(served): State<Served>) -> Response {
    match served.metrics.render() {
        Ok(text) => ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response(),
        Err(error) => {
            let error = causes(&error);
            tracing::error!(error, "failed to render metrics");
            (StatusCode::INTERNAL_SERVER_ERROR, format!("failed to render metrics: {error}\n"))
                .into_response()
        }
    }
}

#[cfg(test)]
mod tests;
