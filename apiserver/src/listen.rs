//! Connections: accepting them, TLS, HTTP, and ending them without dropping a request.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::body::Body;
use http::{Request, Version};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use repot_certs::unread::{self, RequestBody, UnreadBodies};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    chain,
    filters::client_certificate::Peer,
    metrics,
    server::Server,
    tls::{Lingering, Serving},
};

/// A client that does not finish its handshake in this time is dropped.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// A client that does not finish the head of a request in this time is dropped.
const HEADER_DEADLINE: Duration = Duration::from_secs(32);
/// Every watch of every user holds a stream of the one connection that the front server keeps.
const STREAMS_PER_CONNECTION: u32 = 2000;
/// A window that a body of megabytes does not stall in.
const STREAM_WINDOW: u32 = 512 << 10;
/// Room for a full window of every stream: bodies that wait for their turn must not stop those that are being read.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * STREAMS_PER_CONNECTION;
const FRAME: u32 = 256 << 10;
const SEND_BUFFER: usize = 1 << 20;
/// Streams that a client opened and reset before they were looked at; more end the connection, since opening is cheap for
/// the client only.
const RESET_STREAMS: usize = 100;
/// A connection on which nothing was asked for so long is ended.
const IDLE: Duration = Duration::from_secs(90);
/// Facts about a user come in headers and can be many.
const HEADER_BYTES: u32 = 1 << 20;

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
    let end = CancellationToken::new();
    let reload = tokio::spawn({
        let (serving, end) = (serving.clone(), end.clone());
        async move { serving.follow(end).await }
    });
    let listening = Listening { listener, server, serving, connections: TaskTracker::new() };
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
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of file descriptors, mostly: accepting again at once would spin.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let (server, serving, leave) = (self.server.clone(), self.serving.clone(), leave.clone());
            self.connections.spawn(async move {
                let _ = stream.set_nodelay(true);
                let _ =
                    SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(TCP_KEEPALIVE));
                // The handshake is the client's time, not the accept loop's.
                match tokio::time::timeout(HANDSHAKE_DEADLINE, serving.accept(stream)).await {
                    Ok(Ok(tls)) => connection(tls, server, leave).await,
                    Ok(Err(error)) => {
                        tracing::debug!(%error, "handshake failed");
                        metrics::HANDSHAKE_ERRORS.inc();
                    }
                    Err(_) => metrics::HANDSHAKE_ERRORS.inc(),
                }
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

async fn connection(tls: TlsStream<TcpStream>, server: Arc<Server>, leave: CancellationToken) {
    let (stream, session) = tls.get_ref();
    let chain = session.peer_certificates().unwrap_or_default();
    let chain = chain.iter().map(|der| der.clone().into_owned()).collect();
    let peer = Arc::new(Peer::at(stream.peer_addr().map(|address| address.ip()).ok(), chain));
    let done = peer.connection.done(IDLE);
    // What was agreed on, not what comes first: a client that says nothing is then cut off in time.
    let builder = match session.alpn_protocol() {
        Some(b"h2") => http().http2_only(),
        _ => http().http1_only(),
    };
    let peer_of_requests = peer.clone();
    let limits = unread::Limits { request: server.limits.request_timeout, ..unread::Limits::default() };
    let unread = UnreadBodies::new(limits, server.watches_end.clone());
    let service = service_fn(move |request: Request<Incoming>| {
        let (server, peer) = (server.clone(), peer_of_requests.clone());
        let two = request.version() == Version::HTTP_2;
        let request =
            request.map(|body| Body::new(if two { unread.watch(body) } else { RequestBody::http1(body) }));
        async move { Ok::<_, std::convert::Infallible>(chain::serve(server, peer, request).await) }
    });
    let mut served = std::pin::pin!(builder.serve_connection(TokioIo::new(Lingering::new(tls)), service));
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        // The server stops; the client shall go elsewhere; nothing happens here any more.
        () = async { tokio::select! { () = leave.cancelled() => {}, () = done => {} } } => {
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
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_DEADLINE)
        .max_buf_size(HEADER_BYTES as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_pending_accept_reset_streams(RESET_STREAMS)
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(HEADER_BYTES)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(15));
    builder
}
