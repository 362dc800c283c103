//! Connections: accepting them, TLS, HTTP, and ending them without dropping a request.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::body::Body;
use http::Request;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto::Builder, graceful::GracefulShutdown},
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::CancellationToken;

use crate::{chain, filters::client_certificate::Peer, server::Server, tls::Serving};

/// A client that does not finish its handshake in this time is dropped.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// A client that does not finish the head of a request in this time is dropped.
const HEADER_DEADLINE: Duration = Duration::from_secs(32);
/// Every watch of every user holds a stream of the one connection that the front server keeps.
const STREAMS_PER_CONNECTION: u32 = 2000;
/// Windows that a body of megabytes does not stall in.
const STREAM_WINDOW: u32 = 2 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;
const FRAME: u32 = 256 << 10;
const SEND_BUFFER: usize = 1 << 20;
/// Facts about a user come in headers and can be many.
const HEADER_BYTES: u32 = 1 << 20;

/// How a server stops.
#[derive(Clone, Copy, Debug)]
pub struct Shutdown {
    /// How long it serves on after it has said that it is not ready any more.
    pub delay: Duration,
    /// How long requests that are being answered have.
    pub drain: Duration,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { delay: Duration::ZERO, drain: Duration::from_secs(60) }
    }
}

/// Binds the port.
///
/// # Errors
/// When it is taken.
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Serves connections until `stop`, then lets them end.
pub async fn serve(
    listener: TcpListener,
    server: Arc<Server>,
    serving: Arc<Serving>,
    shutdown: Shutdown,
    stop: CancellationToken,
) {
    let reload = tokio::spawn({
        let (serving, stop) = (serving.clone(), stop.clone());
        async move { serving.follow(stop).await }
    });
    let graceful = GracefulShutdown::new();
    accept(&listener, &server, &serving, &graceful, stop.clone()).await;
    server.health.set_stopping();
    tracing::info!(delay_ms = shutdown.delay.as_millis() as u64, "stopping: not ready any more");
    // New connections are still answered: who routes to this server learns only now that it should not.
    let late = CancellationToken::new();
    let end_of_delay = async {
        tokio::time::sleep(shutdown.delay).await;
        late.cancel();
    };
    tokio::join!(accept(&listener, &server, &serving, &graceful, late.clone()), end_of_delay);
    drop(listener);
    server.watches_end.cancel();
    if tokio::time::timeout(shutdown.drain, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests were still being answered at the end of the drain time");
    }
    let _ = reload.await;
    tracing::info!("stopped");
}

async fn accept(
    listener: &TcpListener,
    server: &Arc<Server>,
    serving: &Arc<Serving>,
    graceful: &GracefulShutdown,
    stop: CancellationToken,
) {
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, mostly: accepting again at once would spin.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let (server, acceptor) = (server.clone(), TlsAcceptor::from(serving.current()));
        let watcher = graceful.watcher();
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            // The handshake is the client's time, not the accept loop's.
            let Ok(Ok(tls)) = tokio::time::timeout(HANDSHAKE_DEADLINE, acceptor.accept(stream)).await else {
                return;
            };
            connection(tls, server, watcher).await;
        });
    }
}

async fn connection(
    tls: TlsStream<TcpStream>,
    server: Arc<Server>,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let chain = tls.get_ref().1.peer_certificates().unwrap_or_default();
    let peer = Arc::new(Peer::new(chain.iter().map(|der| der.clone().into_owned()).collect()));
    let service = service_fn(move |request: Request<Incoming>| {
        let (server, peer) = (server.clone(), peer.clone());
        async move { Ok::<_, std::convert::Infallible>(chain::serve(server, peer, request.map(Body::new)).await) }
    });
    let builder = http();
    let served = watcher.watch(builder.serve_connection(TokioIo::new(tls), service).into_owned());
    if let Err(error) = served.await {
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
