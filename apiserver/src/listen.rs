//! Connections: accepting them, TLS, HTTP, and ending them without dropping a request.

use std::{convert::Infallible, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use axum::body::Body;
use http::Request;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use repot_certs::{
    heads::Heads,
    unread::{self, UnreadBodies},
};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    chain,
    filters::{
        client_certificate::Peer,
        connection::{Closes, Connection},
    },
    http2::{self, Settings},
    metrics,
    server::Server,
    short_turns::{ShortTurns, in_short_turns},
    tls::{Lingering, Serving},
    unauthenticated::Unauthenticated,
    write_timeout::WriteTimeout,
};

/// What requests are read from.
type Io = ShortTurns<Lingering<WriteTimeout<TlsStream<TcpStream>>>>;

/// A client that does not finish its handshake in this time is dropped.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// A client that does not finish the head of a request in this time is dropped, over HTTP/1.1.
const HEADER_DEADLINE: Duration = Duration::from_secs(32);
/// A connection on which nothing was asked for so long is ended. Clients in Go do so after 90 seconds; they do not repeat a POST that
/// they send over HTTP/1.1 while the server ends the connection.
const IDLE: Duration = Duration::from_secs(120);
/// A client that takes fewer than [`LEAST_WRITTEN`] bytes of what is written to it in this time is dropped. The same holds for the
/// client's kernel: bytes that it does not acknowledge, or has no room for, wait no longer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// About half a KiB a second. In bytes.
const LEAST_WRITTEN: usize = 16 << 10;
/// What is read ahead over HTTP/1.1: facts about a user come in headers and can be many; for who has not shown a certificate,
/// what a token may need.
const HTTP1_BUFFER: usize = 1 << 20;
const HTTP1_UNAUTHENTICATED_BUFFER: usize = 64 << 10;

/// A peer that vanished without a word is noticed after this much silence, by the system.
const TCP_KEEPALIVE: Duration = Duration::from_secs(60);

/// What the last watches need after the end of their grace period.
const WATCHES_LAST_WORDS: Duration = Duration::from_secs(2);

/// How a server stops.
#[derive(Clone, Copy, Debug)]
pub struct Shutdown {
    /// How long it serves on after it has said that it is not ready any more.
    pub delay: Duration,
    /// How long requests that are being answered have.
    pub drain: Duration,
    /// Whether the port stays open meanwhile, to answer 429 instead of refusing connections.
    pub send_retry_after: bool,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { delay: Duration::ZERO, drain: Duration::from_secs(60), send_retry_after: false }
    }
}

/// Binds the port.
///
/// # Errors
/// When it is taken.
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// What connections share.
struct Listening {
    listener: TcpListener,
    server: Arc<Server>,
    serving: Arc<Serving>,
    connections: TaskTracker,
    unauthenticated: Unauthenticated,
}

/// Serves connections until `stop`, then lets them end: not ready at once, and GOAWAY on connections that are there, so that
/// whoever keeps one looks for another server; new connections for the time of the delay, since some learn late; then
/// no new ones, no new requests, and an end of watches and of what is being answered.
pub async fn serve(
    listener: TcpListener,
    server: Arc<Server>,
    serving: Arc<Serving>,
    shutdown: Shutdown,
    stop: CancellationToken,
) {
    server.metrics.count_certificate(serving.clone());
    let end = CancellationToken::new();
    let reload = tokio::spawn({
        let (serving, end) = (serving.clone(), end.clone());
        async move { serving.follow(end).await }
    });
    let unauthenticated = Unauthenticated::new(server.limits.connections.unauthenticated);
    let connections = TaskTracker::new();
    let listening = Listening { listener, server, serving, connections, unauthenticated };
    listening.accept(&stop).await;
    listening.server.health.set_stopping();
    tracing::info!(delay_ms = shutdown.delay.as_millis() as u64, "stopping: not ready any more");
    let late = CancellationToken::new();
    let end_of_delay = async {
        tokio::time::sleep(shutdown.delay).await;
        late.cancel();
    };
    tokio::join!(listening.accept(&late), end_of_delay);
    let began = tokio::time::Instant::now();
    listening.server.health.set_draining(shutdown.send_retry_after);
    listening.server.watches_end.cancel();
    if shutdown.send_retry_after {
        listening.turn_away(shutdown.drain).await;
    }
    let Listening { listener, server, connections, .. } = listening;
    drop(listener);
    connections.close();
    // Watches may have been given more time than requests.
    let most = shutdown.drain.max(server.limits.watch_grace + WATCHES_LAST_WORDS);
    if tokio::time::timeout_at(began + most, connections.wait()).await.is_err() {
        tracing::warn!("requests were still being answered at the end of the drain time");
    }
    end.cancel();
    let _ = reload.await;
    tracing::info!("stopped");
}

impl Listening {
    /// Accepts connections until `leave`; those are then asked to end when they have answered.
    async fn accept(&self, leave: &CancellationToken) {
        while let Some(accepted) = leave.run_until_cancelled(self.listener.accept()).await {
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, mostly: accepting again at once would spin.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let (server, serving, leave) = (self.server.clone(), self.serving.clone(), leave.clone());
            // Counted before the handshake, which takes memory and time already.
            let shared = Connection::default();
            shared.count(self.unauthenticated.count(shared.end(), address.ip()));
            let closes = shared.closes();
            self.connections.spawn(async move {
                let end = shared.end();
                let served = accepted_one(stream, server, serving, shared, closes, leave);
                end.run_until_cancelled(served).await
            });
        }
    }

    /// Answers on new connections, with refusals, until no request is being answered any more.
    async fn turn_away(&self, most: Duration) {
        let answered = CancellationToken::new();
        let wait = async {
            self.server.requests.close();
            let _ = tokio::time::timeout(most, self.server.requests.wait()).await;
            answered.cancel();
        };
        tokio::join!(self.accept(&answered), wait);
    }
}

async fn accepted_one(
    stream: TcpStream,
    server: Arc<Server>,
    serving: Arc<Serving>,
    shared: Connection,
    closes: Closes,
    leave: CancellationToken,
) {
    set_options(&stream);
    // The handshake is the client's time, not the accept loop's.
    match tokio::time::timeout(HANDSHAKE_DEADLINE, serving.accept(stream)).await {
        Ok(Ok(tls)) => connection(tls, server, shared, closes, leave).await,
        Ok(Err(error)) => {
            tracing::debug!(%error, "handshake failed");
            metrics::HANDSHAKE_ERRORS.inc();
        }
        Err(_) => metrics::HANDSHAKE_ERRORS.inc(),
    }
}

/// Where the system refuses one of them, the connection works all the same.
fn set_options(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let socket = SockRef::from(stream);
    let _ = socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(TCP_KEEPALIVE));
    // Also for a client whose window stays closed: see tcp(7), and tcp_probe_timer of Linux.
    let _ = socket.set_tcp_user_timeout(Some(WRITE_TIMEOUT));
}

async fn connection(
    tls: TlsStream<TcpStream>,
    server: Arc<Server>,
    shared: Connection,
    closes: Closes,
    leave: CancellationToken,
) {
    let (stream, session) = tls.get_ref();
    let chain = session.peer_certificates().unwrap_or_default();
    let chain = chain.iter().map(|der| der.clone().into_owned()).collect();
    let address = stream.peer_addr().map(|address| address.ip()).ok();
    // What was agreed on, not what comes first: a client that says nothing is then cut off in time.
    let http2 = session.alpn_protocol() == Some(b"h2");
    let peer = Arc::new(Peer::at(address, chain).on(shared));
    if let Some(owner) = server.authenticator.owner(&peer) {
        // Who has its share is told so by its first request.
        let _ = server.connections.admit(&peer.connection, &owner);
    }
    // The connection counts for as long as its file descriptor is there.
    let stream = WriteTimeout::new(tls, WRITE_TIMEOUT, LEAST_WRITTEN);
    let stream = Lingering::new(stream).until(peer.connection.end()).keeping(closes);
    let done = peer.connection.done(IDLE);
    let leave = async move {
        // The server stops; the client shall go elsewhere; nothing happens here any more.
        tokio::select! { () = leave.cancelled() => {}, () = done => {} }
    };
    in_short_turns(stream, async |stream| match http2 {
        true => serve_http2(stream, server, &peer, leave).await,
        false => serve_http1(stream, server, &peer, leave).await,
    })
    .await;
}

async fn serve_http2(stream: Io, server: Arc<Server>, peer: &Arc<Peer>, leave: impl Future<Output = ()>) {
    let authenticated = Settings::authenticated(server.limits.writers);
    let first = if peer.connection.is_authenticated() { authenticated } else { Settings::UNAUTHENTICATED };
    let limits = unread::Limits { request: server.limits.request_timeout, ..unread::Limits::default() };
    let unread = UnreadBodies::new(limits, server.watches_end.clone());
    let service = |request: Request<Body>| {
        let (server, peer) = (server.clone(), peer.clone());
        let request = request.map(|body| Body::new(unread.watch(body)));
        async move { Ok(chain::serve(server, peer, request).await) }
    };
    if let Err(error) = http2::serve(stream, first, authenticated, &peer.connection, leave, service).await {
        // Clients leave in many ways; none of them is this server's failure.
        tracing::debug!(%error, "connection ended early");
    }
}

async fn serve_http1(stream: Io, server: Arc<Server>, peer: &Arc<Peer>, leave: impl Future<Output = ()>) {
    let heads = Heads::default();
    let service = service_fn(|request: Request<Incoming>| {
        let (server, peer) = (server.clone(), peer.clone());
        let complete = heads.complete(request.body());
        async move {
            let response = chain::serve(server, peer.clone(), request.map(Body::new)).await;
            // A connection has one answer at a time: it ends with one that is not taken.
            let end = peer.connection.end();
            let response = response.map(|body| body.with_timer(move || end.cancel()));
            Ok::<_, Infallible>(response.map(|body| complete.until_sent(body)))
        }
    });
    let buffer = if peer.connection.is_authenticated() { HTTP1_BUFFER } else { HTTP1_UNAUTHENTICATED_BUFFER };
    let mut builder = hyper::server::conn::http1::Builder::new();
    // The limit of hyper on heads would end idle connections: see `heads`.
    builder.timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(buffer);
    let mut served = pin!(builder.serve_connection(TokioIo::new(heads.watch(stream)), service));
    let served = async {
        tokio::select! {
            ended = served.as_mut() => ended,
            () = leave => {
                served.as_mut().graceful_shutdown();
                served.await
            }
        }
    };
    // Also a head that begins when the server stops.
    let ended = tokio::select! { ended = served => ended, () = heads.until_late(HEADER_DEADLINE) => return };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended early");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bytes_that_are_not_acknowledged_end_a_connection_in_time() {
        let listener = bind(([127, 0, 0, 1], 0).into()).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (stream, _) = accepted.expect("a connection");
        set_options(&stream);
        let timeout = SockRef::from(&stream).tcp_user_timeout().expect("an option");
        assert_eq!(timeout, Some(WRITE_TIMEOUT));
        drop(client);
    }
}
