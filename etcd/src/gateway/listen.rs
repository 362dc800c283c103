//! Connections of clients.

use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use repot_certs::{
    clients::{Authorities, Peer},
    connections::{Connections, Counted, Limits},
    http::{ACCEPT_PAUSE, HANDSHAKE_DEADLINE},
    tls::Serving,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use tokio_rustls::server::TlsStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{CONNECTION_WINDOW, SEND_BUFFER, STREAM_WINDOW, Shared, client::Client};

/// Each API server has about a hundred connections.
const CONNECTIONS: usize = 8192;
/// Connections of one IP address.
const CONNECTIONS_OF_ADDRESS: usize = CONNECTIONS / 4;
/// No connection ends because it is idle: pings tell whether its client is there.
const NEVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// A client that is silent for so long is asked whether it is there: its watches would live for ever.
const PING: Duration = Duration::from_secs(30);
/// How long it has for that.
const PONG: Duration = Duration::from_secs(10);
/// How long calls that are being answered have when the gateway ends. An election may come in between.
const DRAIN: Duration = Duration::from_secs(15);
/// How long a client takes to hear that it is to call elsewhere.
const NOTICE: Duration = Duration::from_secs(1);
/// How long the last answer takes to be sent.
const FLUSH: Duration = Duration::from_millis(200);
/// Headers carry a token at most.
const HEADER_BYTES: u32 = 64 << 10;

/// What makes a TLS server of it.
pub(super) struct Tls {
    pub serving: Serving,
    pub clients: Option<Authorities>,
}

/// Serves until `stop`.
pub(super) async fn serve(
    listener: TcpListener,
    tls: Option<Tls>,
    shared: Arc<Shared>,
    stop: CancellationToken,
) {
    let (tls, connections) = (tls.map(Arc::new), TaskTracker::new());
    let (all, of_address) = (CONNECTIONS, CONNECTIONS_OF_ADDRESS);
    let counts = Connections::new(Limits { all, of_address, idle: NEVER, failed: NEVER });
    if let Some(tls) = tls.clone() {
        let stop = stop.clone();
        connections.spawn(async move { tls.follow(stop).await });
    }
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, address)) => {
                let counted = counts.count(address.ip());
                let connection = connect(stream, counted, tls.clone(), shared.clone(), stop.clone());
                connections.spawn(connection);
            }
            Err(error) => {
                // Out of file descriptors, mostly: accepting again at once would spin.
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    connections.close();
    connections.wait().await;
}

async fn connect(
    stream: TcpStream,
    counted: Counted,
    tls: Option<Arc<Tls>>,
    shared: Arc<Shared>,
    stop: CancellationToken,
) {
    let _ = stream.set_nodelay(true);
    let work = async {
        let Some(tls) = tls else { return speak(stream, shared, stop).await };
        match timeout(HANDSHAKE_DEADLINE, tls.serving.accept(stream)).await {
            Ok(Ok(stream)) if tls.admits(&stream) => {
                // A client that shows a certificate keeps its place before one that does not.
                counted.connection().answer().succeeded();
                speak(stream, shared, stop).await;
            }
            Ok(Ok(_)) => {
                tracing::warn!("a client without a certificate of the right authority was turned away")
            }
            Ok(Err(error)) => tracing::debug!(%error, "handshake failed"),
            Err(_) => tracing::debug!("handshake took too long"),
        }
    };
    tokio::select! {
        () = work => {}
        () = counted.connection().until_end() => {}
    }
}

impl Tls {
    /// Whether the client may speak at all: as with etcd itself, once a connection.
    fn admits(&self, stream: &TlsStream<TcpStream>) -> bool {
        let Some(authorities) = &self.clients else { return true };
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        Peer::new(chain.iter().map(|der| der.clone().into_owned()).collect()).is_trusted(authorities)
    }

    /// Takes up files that change.
    async fn follow(&self, stop: CancellationToken) {
        let authorities = async {
            if let Some(authorities) = &self.clients {
                authorities.follow(stop.clone()).await;
            }
        };
        tokio::join!(self.serving.follow(stop.clone()), authorities);
    }
}

async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    shared: Arc<Shared>,
    stop: CancellationToken,
) {
    let turn = shared.connections.fetch_add(1, Ordering::Relaxed);
    let streams = shared.limits.streams;
    let authentication = shared.auth.turned_on();
    let client = Arc::new(Client::new(shared, turn));
    let of_client = client.clone();
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let client = client.clone();
        async move { client.answer(request).await }
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .max_concurrent_streams(streams)
        .max_header_list_size(HEADER_BYTES)
        .max_send_buf_size(SEND_BUFFER)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PONG)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
        // Its streams were opened when no user was asked for.
        () = authentication => connection.as_mut().graceful_shutdown(),
    }
    // Watches do not end by themselves, so only calls of one message are waited for.
    let calls_end = async {
        sleep(NOTICE).await;
        of_client.calls.until_none().await;
        sleep(FLUSH).await;
    };
    tokio::select! {
        _ = connection => {}
        _ = timeout(DRAIN, calls_end) => {}
    }
}
