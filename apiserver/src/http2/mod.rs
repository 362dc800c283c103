//! HTTP/2 connections, on the crate `h2` itself. hyper's server cannot end a response whose client grants no window: it waits
//! for capacity without a timer, hands a whole chunk over for one byte of it, and forgets the stream then
//! (`PipeToSendStream` of hyper 1.12; h2 keeps the chunk for as long as the connection lives). Here a response is sent as its
//! window allows, and reset when its time is up; see [`stream`].

mod request;
mod stream;

use std::{convert::Infallible, pin::pin, time::Duration};

use axum::body::Body;
use h2::{
    Ping, PingPong,
    server::{Builder, Connection as Wire, SendResponse},
};
use http::{Request, Response};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, sleep, timeout},
};

use crate::{
    answer::{Followed, Piece},
    filters::connection::Connection,
};

/// What a client may make this program keep in memory for one connection, in bytes but for the streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Requests at once.
    pub(crate) streams: u32,
    /// What comes of one body before it is read.
    pub(crate) stream_window: u32,
    /// What comes of all bodies together before they are read.
    pub(crate) connection_window: u32,
    /// One frame.
    pub(crate) frame: u32,
    /// The headers of one request.
    pub(crate) header_bytes: u32,
}

/// Every watch of every user holds a stream of the one connection that the front server keeps.
const STREAMS: u32 = 2000;
/// A window that a body of megabytes does not stall in.
const STREAM_WINDOW: u32 = 512 << 10;
/// Facts about a user come in headers and can be many.
const HEADER_BYTES: u32 = 1 << 20;
const FRAME: u32 = 256 << 10;
/// What one stream may have in the connection's queue, within its window. What is there is counted: see [`crate::answer`].
const SEND_BUFFER: usize = 256 << 10;
/// Streams that a client opened and reset before they were looked at; more end the connection, since opening is cheap for
/// the client only.
const RESET_STREAMS: usize = 100;
/// A client that has not said hello in this time is dropped.
const PREFACE: Duration = Duration::from_secs(32);
/// How long after a change of the windows that came too early it is tried again.
const RAISE_AGAIN: Duration = Duration::from_millis(20);
/// How often a client is asked whether it is there, and how long it has to answer.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

impl Settings {
    /// Before a client has shown who it is. 100 streams are the least that RFC 9113, 6.5.2 recommends; window and frame of a stream are
    /// its defaults.
    pub(crate) const UNAUTHENTICATED: Self = Self {
        streams: 100,
        stream_window: 65_535,
        connection_window: 128 << 10,
        frame: 16 << 10,
        header_bytes: 64 << 10,
    };

    /// For a client with credentials. `writers`: how many requests with bodies are served at once; those that are served read
    /// their bodies, and those that are not give up what came of theirs.
    pub(crate) fn authenticated(writers: usize) -> Self {
        let writers = match u32::try_from(writers) {
            Ok(writers @ 1..=STREAMS) => writers,
            _ => STREAMS,
        };
        Self {
            streams: STREAMS,
            stream_window: STREAM_WINDOW,
            connection_window: STREAM_WINDOW * writers.max(2),
            frame: FRAME,
            header_bytes: HEADER_BYTES,
        }
    }
}

/// Serves a connection until its client leaves, or until `leave` and then until what was asked is answered. When the client shows
/// who it is on a connection with the settings for those who have not, its windows rise to `authenticated`.
///
/// # Errors
/// Why the connection ended early.
pub(crate) async fn serve<IO, S, F>(
    io: IO,
    first: Settings,
    authenticated: Settings,
    connection: &Connection,
    leave: impl Future<Output = ()>,
    service: S,
) -> Result<(), h2::Error>
where
    IO: AsyncRead + AsyncWrite + Unpin,
    S: Fn(Request<Body>) -> F,
    F: Future<Output = Result<Response<Followed>, Infallible>> + Send + 'static,
{
    let mut builder = Builder::new();
    builder
        .max_pending_accept_reset_streams(RESET_STREAMS)
        .max_concurrent_streams(first.streams)
        .initial_window_size(first.stream_window)
        .initial_connection_window_size(first.connection_window)
        .max_frame_size(first.frame)
        .max_send_buffer_size(SEND_BUFFER)
        .max_header_list_size(first.header_bytes);
    let Ok(wire) = timeout(PREFACE, builder.handshake::<IO, Piece>(io)).await else { return Ok(()) };
    let mut wire: Wire<IO, Piece> = wire?;
    let mut gone = pin!(until_gone(wire.ping_pong()));
    let mut leave = pin!(leave);
    let (mut leaving, mut raised) = (false, first == authenticated);
    let mut again = pin!(sleep(Duration::ZERO));
    loop {
        tokio::select! {
            accepted = wire.accept() => match accepted {
                Some(accepted) => {
                    let (request, respond) = accepted?;
                    answer(&service, request, respond);
                }
                None => return Ok(()),
            },
            () = &mut gone => return Ok(()),
            () = &mut leave, if !leaving => {
                leaving = true;
                wire.graceful_shutdown();
            }
            () = async {
                connection.authenticated().await;
                again.as_mut().await;
            }, if !raised => {
                wire.set_target_window_size(authenticated.connection_window);
                // It fails while the client has not acknowledged the settings of the handshake, which its first request may
                // overtake.
                raised = wire.set_initial_window_size(authenticated.stream_window).is_ok();
                again.as_mut().reset(Instant::now() + RAISE_AGAIN);
            }
        }
    }
}

/// Answers one request beside the others.
fn answer<S, F>(service: &S, request: Request<h2::RecvStream>, respond: SendResponse<Piece>)
where
    S: Fn(Request<Body>) -> F,
    F: Future<Output = Result<Response<Followed>, Infallible>> + Send + 'static,
{
    let method = request.method().clone();
    // In a box of its own: the work on a request takes tens of KiB, which must not be kept while its answer waits to be taken.
    let answered = Box::pin(service(request::from_wire(request)));
    tokio::spawn(stream::answer(method, answered, respond));
}

/// Until the client does not answer a ping in time.
async fn until_gone(pings: Option<PingPong>) {
    let Some(mut pings) = pings else { return std::future::pending().await };
    loop {
        sleep(PING_INTERVAL).await;
        let asked = Instant::now();
        match timeout(PING_TIMEOUT, pings.ping(Ping::opaque())).await {
            Ok(Ok(_)) => {}
            // The connection says itself how it ended.
            Ok(Err(_)) => return std::future::pending().await,
            Err(_) => {
                tracing::debug!(waited_ms = asked.elapsed().as_millis() as u64, "no answer to a ping");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
