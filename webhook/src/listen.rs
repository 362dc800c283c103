//! Connections: accepting them, TLS, HTTP, and ending them without dropping a review.

use std::{io, sync::Arc, time::Duration};

use http::Method;
use repot_certs::{
    clients::Peer,
    connections::{Connections, Counted, Limits},
    http::{ACCEPT_PAUSE, HANDSHAKE_DEADLINE, Protocol},
    tls::Serving,
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::server::Server;

/// As many connections, as long idle, as kube-apiserver and its neighbours need.
const LIMITS: Limits =
    Limits { all: 512, of_address: 128, idle: Duration::from_secs(120), failed: Duration::from_secs(32) };

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
    server.count_certificate(&serving);
    let end = CancellationToken::new();
    let follow = follow(server.clone(), serving.clone(), end.clone());
    let (connections, counts) = (TaskTracker::new(), Connections::new(LIMITS));
    let late = CancellationToken::new();
    let serve = async {
        let count_down = async {
            stop.cancelled().await;
            server.set_stopping();
            tracing::info!(delay_ms = shutdown.delay.as_millis() as u64, "stopping: not ready any more");
            tokio::time::sleep(shutdown.delay).await;
            late.cancel();
        };
        tokio::join!(accept(&listener, &server, &serving, (&connections, &counts), &late), count_down);
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
    (connections, counts): (&TaskTracker, &Arc<Connections>),
    leave: &CancellationToken,
) {
    while let Some(accepted) = leave.run_until_cancelled(listener.accept()).await {
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, mostly: accepting again at once would spin.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (server, serving, leave) = (server.clone(), serving.clone(), leave.clone());
        // Counted before the handshake, which takes memory and time already.
        let counted = counts.count(address.ip());
        connections.spawn(async move {
            let _ = stream.set_nodelay(true);
            let handshake = async {
                tokio::select! {
                    tls = serving.accept(stream) => tls,
                    () = counted.connection().until_end() => Err(io::ErrorKind::ConnectionAborted.into()),
                }
            };
            match tokio::time::timeout(HANDSHAKE_DEADLINE, handshake).await {
                Ok(Ok(tls)) => connection(tls, server, &counted, leave).await,
                Ok(Err(error)) => tracing::debug!(%error, "handshake failed"),
                Err(_) => tracing::debug!("a handshake took too long"),
            }
        });
    }
}

async fn connection(
    tls: TlsStream<TcpStream>,
    server: Arc<Server>,
    counted: &Counted,
    leave: CancellationToken,
) {
    let (_, session) = tls.get_ref();
    let chain = session.peer_certificates().unwrap_or_default();
    let peer = Arc::new(Peer::new(chain.iter().map(|der| der.clone().into_owned()).collect()));
    let protocol = Protocol::of_alpn(session.alpn_protocol());
    let unread = server.unread();
    repot_certs::http::serve(tls, protocol, counted, unread, &leave, |request, answering| {
        let (server, peer) = (server.clone(), peer.clone());
        async move {
            let is_post = request.method() == Method::POST;
            let answer = server.serve(request, &peer).await;
            if is_post && answer.status().is_success() {
                answering.succeeded();
            }
            answer
        }
    })
    .await;
}
