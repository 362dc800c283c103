//! Connections: accepting them, TLS, HTTP, and ending them without dropping a review.

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use http::{Method, Request, Version};
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

use crate::{
    clients::Peer,
    connections::{Connections, Counted, Limits},
    server::Server,
};

/// A client that does not finish its handshake in this time is dropped.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// A client that does not finish the head of a request in this time is dropped.
const HEADER_DEADLINE: Duration = Duration::from_secs(32);
/// Reviews on one connection at a time, over HTTP/2. A client that has more opens another connection.
const STREAMS: u32 = 250;
/// What a client may make this program keep for one connection, in bytes: of one body and of all bodies before they are read, of the
/// headers of a request, and of answers that the client does not take.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 512 << 10;
const HEADER_BYTES: u32 = 64 << 10;
const SEND_BUFFER: usize = 64 << 10;
/// Streams that a client opened and reset before they were looked at; more end the connection.
const RESET_STREAMS: usize = 100;
/// How often a client is asked over HTTP/2 whether it is there, and how long it has to answer.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// What is being answered on a connection that has to end has this time.
const LAST_ANSWERS: Duration = Duration::from_secs(5);
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
    let (connections, counts) = (TaskTracker::new(), Connections::new(Limits::default()));
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
                tokio::time::sleep(PAUSE).await;
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
    // What was agreed on, not what comes first: a client that says nothing is then cut off in time.
    let builder = match session.alpn_protocol() {
        Some(b"h2") => http().http2_only(),
        _ => http().http1_only(),
    };
    let unread = UnreadBodies::new(server.unread(), leave.clone());
    let connection = counted.connection();
    let service = service_fn(|request: Request<Incoming>| {
        let (server, peer, answering) = (server.clone(), peer.clone(), connection.answer());
        let two = request.version() == Version::HTTP_2;
        let request = request.map(|body| if two { unread.watch(body) } else { RequestBody::http1(body) });
        async move {
            let is_post = request.method() == Method::POST;
            let answer = server.serve(request, &peer).await;
            if is_post && answer.status().is_success() {
                answering.was_review();
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let mut served = std::pin::pin!(builder.serve_connection(TokioIo::new(Lingering::new(tls)), service));
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = leave.cancelled() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
        () = connection.until_end() => {
            // A client that does not take its answers would keep the connection for ever.
            served.as_mut().graceful_shutdown();
            let most = if connection.is_proven() { LAST_ANSWERS } else { Duration::ZERO };
            let Ok(ended) = tokio::time::timeout(most, served).await else { return };
            ended
        }
    };
    if let Err(error) = ended {
        // Clients leave in many ways; none of them is this server's failure.
        tracing::debug!(%error, "connection ended early");
    }
}

fn http() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    let header_bytes = usize::try_from(HEADER_BYTES).unwrap_or(usize::MAX);
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_DEADLINE).max_buf_size(header_bytes);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(HEADER_BYTES)
        .max_send_buf_size(SEND_BUFFER)
        .max_pending_accept_reset_streams(RESET_STREAMS)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}
