//! Connections: accepting them, TLS where there are certificates, HTTP.

use std::{io, sync::Arc, time::Duration};

use axum::{Extension, Router};
use repot_certs::{
    clients::Peer,
    connections::{Connections, Counted, Limits},
    http::{self, ACCEPT_PAUSE, HANDSHAKE_DEADLINE, Protocol},
    tls::Serving,
    unread,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt;

/// The operator, the other agents, a kubelet and a Prometheus are few clients.
const LIMITS: Limits =
    Limits { all: 256, of_address: 64, idle: Duration::from_secs(120), failed: Duration::from_secs(32) };
/// What is being answered at the end has so long.
const DRAIN: Duration = Duration::from_secs(5);

/// Serves until `stop`.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    serving: Option<Arc<Serving>>,
    stop: CancellationToken,
) {
    let (connections, counts) = (TaskTracker::new(), Connections::new(LIMITS));
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, address)) => {
                // Counted before the handshake, which takes memory and time already.
                let counted = counts.count(address.ip());
                let (router, serving, stop) = (router.clone(), serving.clone(), stop.clone());
                connections.spawn(async move { accept(stream, router, serving, &counted, &stop).await });
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

async fn accept(
    stream: TcpStream,
    router: Router,
    serving: Option<Arc<Serving>>,
    counted: &Counted,
    stop: &CancellationToken,
) {
    let _ = stream.set_nodelay(true);
    let Some(serving) = serving else {
        return connection(stream, Protocol::Either, Peer::new(Vec::new()), router, counted, stop).await;
    };
    let handshake = async {
        tokio::select! {
            tls = serving.accept(stream) => tls,
            () = counted.connection().until_end() => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    };
    match tokio::time::timeout(HANDSHAKE_DEADLINE, handshake).await {
        Ok(Ok(tls)) => {
            let (_, session) = tls.get_ref();
            let chain = session.peer_certificates().unwrap_or_default();
            let peer = Peer::new(chain.iter().map(|der| der.clone().into_owned()).collect());
            let protocol = Protocol::of_alpn(session.alpn_protocol());
            connection(tls, protocol, peer, router, counted, stop).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "handshake failed"),
        Err(_) => tracing::debug!("a handshake took too long"),
    }
}

async fn connection<S>(
    stream: S,
    protocol: Protocol,
    peer: Peer,
    router: Router,
    counted: &Counted,
    stop: &CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let router = router.layer(Extension(Arc::new(peer)));
    http::serve(stream, protocol, counted, unread::Limits::default(), stop, |request, answering| {
        let is_probe = super::OPEN.contains(&request.uri().path());
        let answered = router.clone().oneshot(request);
        async move {
            let Ok(answer) = answered.await;
            // Anybody may probe.
            if answer.status().is_success() && !is_probe {
                answering.succeeded();
            }
            answer
        }
    })
    .await;
}
