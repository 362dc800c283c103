//! Connections of browsers on this machine.

use std::{sync::Arc, time::Duration};

use axum::{Extension, Router};
use repot_certs::{
    connections::{Connections, Counted, Limits},
    http::{self, ACCEPT_PAUSE, Protocol},
    unread,
};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt;

/// A browser opens six connections to a server, and one for each page that is open.
const LIMITS: Limits =
    Limits { all: 64, of_address: 64, idle: Duration::from_secs(120), failed: Duration::from_secs(10) };
/// What is being answered at the end has so long.
const DRAIN: Duration = Duration::from_secs(2);

/// Ends the connection of a request, also while its client takes nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Hangup(pub(super) CancellationToken);

/// Serves until `stop`.
pub(super) async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    let (connections, counts) = (TaskTracker::new(), Connections::new(LIMITS));
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, address)) => {
                let counted = counts.count(address.ip());
                let (router, stop) = (router.clone(), stop.clone());
                connections.spawn(async move { connection(stream, router, &counted, &stop).await });
            }
            Err(error) => {
                // Out of file descriptors, mostly: accepting again at once would spin.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    connections.close();
    let _ = tokio::time::timeout(DRAIN, connections.wait()).await;
}

async fn connection(stream: TcpStream, router: Router, counted: &Counted, stop: &CancellationToken) {
    let _ = stream.set_nodelay(true);
    let hangup = Hangup::default();
    let router = router.layer(Extension(Arc::new(hangup.clone())));
    let limits = unread::Limits::default();
    let served = http::serve(stream, Protocol::One, counted, limits, stop, |request, answering| {
        let answered = router.clone().oneshot(request);
        async move {
            let Ok(answer) = answered.await;
            if answer.status().is_success() {
                answering.succeeded();
            }
            answer
        }
    });
    tokio::select! { () = served => {}, () = hangup.0.cancelled() => {} }
}
