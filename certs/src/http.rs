//! HTTP on one connection of a small server, within limits: HTTP/1.1 or HTTP/2, as the client asks.

use std::{convert::Infallible, error::Error as StdError, future::pending, pin::pin, time::Duration};

use http::{Request, Response, Version};
use http_body::Body;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::{
    connections::{Answering, Counted},
    heads::Heads,
    tls::Lingering,
    unread::{Limits, RequestBody, UnreadBodies},
};

/// A client that does not finish its TLS handshake in this time is dropped.
pub const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// A pause after a connection that could not be accepted, mostly since there are no more file descriptors.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// A client that does not finish the head of a request in this time is dropped, over HTTP/1.1.
const HEADER_DEADLINE: Duration = Duration::from_secs(32);
/// Requests on one connection at a time, over HTTP/2. A client that has more opens another connection.
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

/// Which version of HTTP a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TLS agreed on it: a client that says nothing is then cut off in time.
    One,
    /// TLS agreed on it.
    Two,
    /// Without TLS, the first bytes tell.
    Either,
}

impl Protocol {
    /// What TLS agreed on.
    #[must_use]
    pub fn of_alpn(alpn: Option<&[u8]>) -> Self {
        if alpn == Some(b"h2") { Self::Two } else { Self::One }
    }
}

/// Serves one connection until its client leaves, until its place is needed, or until `leave` and then until what was asked is answered.
///
/// `answer` gets each request, and the count of it while it is answered.
pub async fn serve<IO, F, B>(
    io: IO,
    protocol: Protocol,
    counted: &Counted,
    unread: Limits,
    leave: &CancellationToken,
    answer: impl Fn(Request<RequestBody<Incoming>>, Answering) -> F,
) where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    let unread = UnreadBodies::new(unread, leave.clone());
    let connection = counted.connection();
    let heads = Heads::default();
    let service = service_fn(|request: Request<Incoming>| {
        let two = request.version() == Version::HTTP_2;
        let complete = heads.complete(request.body());
        let request = request.map(|body| if two { unread.watch(body) } else { RequestBody::http1(body) });
        let answered = answer(request, connection.answer());
        async move { Ok::<_, Infallible>(answered.await.map(|body| complete.until_sent(body))) }
    });
    let builder = http();
    let builder = match protocol {
        Protocol::One => builder.http1_only(),
        Protocol::Two => builder.http2_only(),
        Protocol::Either => builder,
    };
    let io = heads.watch(Lingering::new(io));
    let late = async {
        match protocol {
            Protocol::One => heads.until_late(HEADER_DEADLINE).await,
            // What arrives over HTTP/2 is not only heads.
            Protocol::Two | Protocol::Either => pending().await,
        }
    };
    let mut served = pin!(builder.serve_connection(TokioIo::new(io), service));
    let served = async {
        tokio::select! {
            ended = served.as_mut() => Some(ended),
            () = leave.cancelled() => {
                served.as_mut().graceful_shutdown();
                Some(served.await)
            }
            () = connection.until_end() => {
                // A client that does not take its answers would keep the connection for ever.
                served.as_mut().graceful_shutdown();
                let most = if connection.is_proven() { LAST_ANSWERS } else { Duration::ZERO };
                tokio::time::timeout(most, served).await.ok()
            }
        }
    };
    let ended = tokio::select! { ended = served => ended, () = late => None };
    if let Some(Err(error)) = ended {
        // Clients leave in many ways; none of them is this server's failure.
        tracing::debug!(%error, "connection ended early");
    }
}

fn http() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    let header_bytes = usize::try_from(HEADER_BYTES).unwrap_or(usize::MAX);
    // The limit of hyper on heads would end idle connections: see `heads`.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(header_bytes);
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
