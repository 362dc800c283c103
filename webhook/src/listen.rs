//! Connections: accepting them, TLS, HTTP, and ending them without dropping a review.

use std::{convert::Infallible, sync::Arc, time::Duration};

use http::{Request, Version};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use repot_certs::{
    tls::{Lingering, Serving},
    unread::{RequestBody, UnreadBodies},
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{clients::Peer, server::Server};

/// A client that does not finish its handshake in this time is dropped.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// A client that does not finish the head of a request in this time is dropped.
const HEADER_DEADLINE: Duration = Duration::from_secs(32);
/// Reviews on one connection at a time, over HTTP/2.
const STREAMS: u32 = 1000;
/// A pause after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(50);

/// How the server stops.
#[derive(Clone, Copy, Debug)]
pub struct Shutdown {
    /// How long it serves on after it has said that it is not ready any more.
    pub delay: Duration,
    /// How long reviews that are being answered have.
    pub drain: Duration,
}

/// Serves until `stop`, then as long as others may not have heard of it, then to the end of what is being answered.
pub async fn serve(
    listener: TcpListener,
    server: Arc<Server>,
    serving: Arc<Serving>,
    shutdown: Shutdown,
    stop: CancellationToken,
) {
    let end = CancellationToken::new();
    let follow = follow(server.clone(), serving.clone(), end.clone());
    let connections = TaskTracker::new();
    let late = CancellationToken::new();
    let serve = async {
        let count_down = async {
            stop.cancelled().await;
            server.set_stopping();
            tracing::info!(delay_ms = shutdown.delay.as_millis() as u64, "stopping: not ready any more");
            tokio::time::sleep(shutdown.delay).await;
            late.cancel();
        };
        tokio::join!(accept(&listener, &server, &serving, &connections, &late), count_down);
        connections.close();
        if tokio::time::timeout(shutdown.drain, connections.wait()).await.is_err() {
            tracing::warn!("reviews were still being answered at the end of the drain time");
        }
        end.cancel();
    };
    tokio::join!(serve, follow);
    tracing::info!("stopped");
}

async fn follow(server: Arc<Server>, serving: Arc<Serving>, end: CancellationToken) {
    let authorities = async {
        match server.authorities() {
            Some(authorities) => authorities.follow(end.clone()).await,
            None => end.cancelled().await,
        }
    };
    tokio::join!(serving.follow(end.clone()), authorities);
}

async fn accept(
    listener: &TcpListener,
    server: &Arc<Server>,
    serving: &Arc<Serving>,
    connections: &TaskTracker,
    leave: &CancellationToken,
) {
    while let Some(accepted) = leave.run_until_cancelled(listener.accept()).await {
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, mostly: accepting again at once would spin.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let (server, serving, leave) = (server.clone(), serving.clone(), leave.clone());
        connections.spawn(async move {
            let _ = stream.set_nodelay(true);
            match tokio::time::timeout(HANDSHAKE_DEADLINE, serving.accept(stream)).await {
                Ok(Ok(tls)) => connection(tls, server, leave).await,
                Ok(Err(error)) => tracing::debug!(%error, "handshake failed"),
                Err(_) => tracing::debug!("a handshake took too long"),
            }
        });
    }
}

async fn connection(tls: TlsStream<TcpStream>, server: Arc<Server>, leave: CancellationToken) {
    let (_, session) = tls.get_ref();
    let chain = session.peer_certificates().unwrap_or_default();
    let peer = Arc::new(Peer::new(chain.iter().map(|der| der.clone().into_owned()).collect()));
    // What was agreed on, not what comes first: a client that says nothing is then cut off in time.
    let builder = match session.alpn_protocol() {
        Some(b"h2") => http().http2_only(),
        _ => http().http1_only(),
    };
    let unread = UnreadBodies::new(server.unread(), leave.clone());
    let service = service_fn(move |request: Request<Incoming>| {
        let (server, peer) = (server.clone(), peer.clone());
        let two = request.version() == Version::HTTP_2;
        let request = request.map(|body| if two { unread.watch(body) } else { RequestBody::http1(body) });
        async move { Ok::<_, Infallible>(server.serve(request, &peer).await) }
    });
    let mut served = std::pin::pin!(builder.serve_connection(TokioIo::new(Lingering::new(tls)), service));
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = leave.cancelled() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        // Clients leave in many ways; none of them is this server's failure.
        tracing::debug!(%error, "connection ended early");
    }
}

fn http() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_DEADLINE);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(STREAMS).adaptive_window(true);
    builder
}
