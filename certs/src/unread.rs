//! Request bodies that a server leaves unread because it answers early.
//!
//! RFC 9113, section 8.1: a server that answers before the request is complete sends the complete response, and then may reset the
//! stream with `NO_ERROR`. Several clients lose the response to that reset while they are still sending: curl 7.88 ends with
//! "Stream error in the HTTP/2 framing layer", httpx with `LocalProtocolError`. So a server keeps reading for a while, discards what
//! comes, and resets the stream only when a limit is reached.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit},
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

/// Bodies of all connections of a process that are discarded at a time. Each costs a task of about a kilobyte and what the window
/// of one stream lets in.
pub const STREAMS: usize = 1000;
static ALL: Semaphore = Semaphore::const_new(STREAMS);

/// How much of unread bodies is discarded. Beyond a limit, the stream is reset right behind the response.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one body.
    pub bytes: u64,
    /// Time for one body, from when the server stops to read it.
    pub time: Duration,
    /// Bodies of one connection at a time.
    pub streams: usize,
    /// Time from the arrival of a request, after which its body is discarded for [`Limits::last`] at most.
    pub request: Duration,
    /// Time for a body of a request that is older than [`Limits::request`].
    pub last: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 64 << 20,
            time: Duration::from_secs(30),
            streams: 32,
            request: Duration::from_secs(60),
            last: Duration::from_secs(5),
        }
    }
}

/// The unread bodies of one HTTP/2 connection.
#[derive(Clone, Debug)]
pub struct UnreadBodies {
    limits: Limits,
    streams: Arc<Semaphore>,
    stop: CancellationToken,
}

impl UnreadBodies {
    /// Discards bodies within `limits`, and none any more after `stop`.
    #[must_use]
    pub fn new(limits: Limits, stop: CancellationToken) -> Self {
        Self { limits, streams: Arc::new(Semaphore::new(limits.streams)), stop }
    }

    /// A body that just began to arrive. What is unread of it when it is dropped is discarded.
    pub fn watch<B>(&self, body: B) -> RequestBody<B>
    where
        B: Body + Send + Unpin + 'static,
        B::Data: Send,
    {
        RequestBody { body: Some(body), arrived: Instant::now(), unread: Some(self.clone()) }
    }

    fn discard<B>(&self, body: B, arrived: Instant)
    where
        B: Body + Send + Unpin + 'static,
        B::Data: Send,
    {
        let permits = (self.streams.clone().try_acquire_owned(), ALL.try_acquire(), Handle::try_current());
        let (Ok(stream), Ok(of_all), Ok(runtime)) = permits else { return };
        let now = Instant::now();
        let Limits { bytes, time, request, last, .. } = self.limits;
        let deadline = (now + time).min((arrived + request).max(now + last));
        let stop = self.stop.clone();
        let permits: (OwnedSemaphorePermit, SemaphorePermit<'static>) = (stream, of_all);
        runtime.spawn(async move {
            let _permits = permits;
            let _ = timeout_at(deadline, stop.run_until_cancelled(read_to_end(body, bytes))).await;
        });
    }
}

/// Ends with the body, at its first error, or after `bytes`.
async fn read_to_end<B: Body + Unpin>(mut body: B, bytes: u64) {
    let mut left = bytes;
    while !body.is_end_stream() {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        let Some(Ok(frame)) = frame else { return };
        let length = frame.data_ref().map_or(0, |data| data.remaining() as u64);
        match left.checked_sub(length) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}

/// The body of a request. When one over HTTP/2 is dropped before its end, the rest is read and discarded in the background.
#[derive(Debug)]
pub struct RequestBody<B>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
{
    /// `None` behind the end.
    body: Option<B>,
    arrived: Instant,
    unread: Option<UnreadBodies>,
}

impl<B> RequestBody<B>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
{
    /// A body over HTTP/1.1: there the whole connection ends with an early answer, see [`Lingering`](crate::tls::Lingering).
    pub fn http1(body: B) -> Self {
        Self { body: Some(body), arrived: Instant::now(), unread: None }
    }
}

impl<B> Body for RequestBody<B>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let Some(body) = self.body.as_mut() else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.body = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(B::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), B::size_hint)
    }
}

impl<B> Drop for RequestBody<B>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
{
    fn drop(&mut self) {
        let rest = self.body.take().filter(|body| !body.is_end_stream());
        if let (Some(body), Some(unread)) = (rest, &self.unread) {
            unread.discard(body, self.arrived);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tokio::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    struct Pieces(Receiver<&'static [u8]>);

    impl Body for Pieces {
        type Data = &'static [u8];
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<&'static [u8]>, Infallible>>> {
            self.0.poll_recv(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
        }
    }

    fn pieces() -> (Sender<&'static [u8]>, Pieces) {
        let (send, receive) = channel(1);
        (send, Pieces(receive))
    }

    fn limits() -> Limits {
        Limits { bytes: 10, streams: 1, ..Limits::default() }
    }

    #[tokio::test]
    async fn the_rest_of_a_dropped_body_is_read_up_to_the_limit() {
        let unread = UnreadBodies::new(limits(), CancellationToken::new());
        let (send, body) = pieces();
        drop(unread.watch(body));
        for _ in 0..2 {
            send.send(b"12345").await.expect("it is still read");
        }
        send.send(b"6").await.expect("the piece that exceeds the limit");
        send.closed().await;
        assert_eq!(unread.streams.available_permits(), 1);
    }

    #[tokio::test]
    async fn beyond_the_streams_of_a_connection_a_body_is_dropped_at_once() {
        let unread = UnreadBodies::new(limits(), CancellationToken::new());
        let (first, body) = pieces();
        drop(unread.watch(body));
        let (second, body) = pieces();
        drop(unread.watch(body));
        assert!(second.is_closed() && !first.is_closed());
        drop(first);
    }

    #[tokio::test]
    async fn a_body_is_dropped_when_its_time_is_up_and_when_the_server_stops() {
        let time = Duration::from_millis(50);
        let short = Limits { time, ..limits() };
        let (send, body) = pieces();
        let began = Instant::now();
        drop(UnreadBodies::new(short, CancellationToken::new()).watch(body));
        send.closed().await;
        assert!(began.elapsed() >= time, "dropped after {:?}", began.elapsed());
        // A request that has used up its own time has the last moment only.
        let late = Limits { request: Duration::ZERO, last: time, ..limits() };
        let (send, body) = pieces();
        drop(UnreadBodies::new(late, CancellationToken::new()).watch(body));
        tokio::time::timeout(Limits::default().time / 2, send.closed()).await.expect("dropped early");
        let stop = CancellationToken::new();
        let (send, body) = pieces();
        drop(UnreadBodies::new(limits(), stop.clone()).watch(body));
        assert!(!send.is_closed());
        stop.cancel();
        send.closed().await;
    }

    #[tokio::test]
    async fn nothing_is_left_of_a_body_that_was_read() {
        let unread = UnreadBodies::new(limits(), CancellationToken::new());
        let (send, body) = pieces();
        let mut body = unread.watch(body);
        drop(send);
        assert!(std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await.is_none());
        assert!(body.is_end_stream());
        drop(body);
        assert_eq!(unread.streams.available_permits(), 1);
    }
}
