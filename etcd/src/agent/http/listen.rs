//! Connections: accepting them, TLS where there are certificates, HTTP.

use std::{sync::Arc, time::Duration};

use axum::{Extension, Router};
use http::{Request, Version};
use hyper::{
    body::Incoming,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use repot_certs::{
    clients::Peer,
    tls::{Lingering, Serving},
    unread::{Limits, RequestBody, UnreadBodies},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// A client that does not finish its handshake in this time is dropped.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// A client that does not finish the head of a request in this time is dropped.
const HEADER_DEADLINE: Duration = Duration::from_secs(10);
/// Requests on one connection at a time, over HTTP/2.
const STREAMS: u32 = 100;
/// A pause after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(50);
/// What is being answered at the end has so long.
const DRAIN: Duration = Duration::from_secs(5);

/// Serves until `stop`.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    serving: Option<Arc<Serving>>,
    stop: CancellationToken,
) {
    let connections = TaskTracker::new();
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, _)) => {
                let (router, serving, stop) = (router.clone(), serving.clone(), stop.clone());
                connections.spawn(async move { accept(stream, router, serving, stop).await });
            }
            Err(error) => {
                // Out of file descriptors, mostly: accepting again at once would spin.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    connections.close();
    let _ = tokio::time::timeout(DRAIN, connections.wait()).await;
}

async fn accept(stream: TcpStream, router: Router, serving: Option<Arc<Serving>>, stop: CancellationToken) {
    let _ = stream.set_nodelay(true);
    let Some(serving) = serving else {
        return connection(stream, Peer::new(Vec::new()), router, stop).await;
    };
    match tokio::time::timeout(HANDSHAKE_DEADLINE, serving.accept(stream)).await {
        Ok(Ok(tls)) => {
            let chain = tls.get_ref().1.peer_certificates().unwrap_or_default();
            let peer = Peer::new(chain.iter().map(|der| der.clone().into_owned()).collect());
            connection(tls, peer, router, stop).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "handshake failed"),
        Err(_) => tracing::debug!("a handshake took too long"),
    }
}

async fn connection<S>(stream: S, peer: Peer, router: Router, stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let router = TowerToHyperService::new(router.layer(Extension(Arc::new(peer))));
    let unread = UnreadBodies::new(Limits::default(), stop.clone());
    let service = service_fn(move |request: Request<Incoming>| {
        let two = request.version() == Version::HTTP_2;
        router.call(request.map(|body| if two { unread.watch(body) } else { RequestBody::http1(body) }))
    });
    let mut http = Builder::new(TokioExecutor::new());
    http.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_DEADLINE);
    http.http2().timer(TokioTimer::new()).max_concurrent_streams(STREAMS);
    let served = http.serve_connection(TokioIo::new(Lingering::new(stream)), service);
    let mut served = std::pin::pin!(served);
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = stop.cancelled() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended early");
    }
}
