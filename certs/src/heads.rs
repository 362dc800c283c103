//! A time limit on the heads of requests over HTTP/1.1.
//!
//! The limit of hyper counts from the end of the last answer, so it ends idle connections too. A client in Go keeps an idle connection
//! for 90 seconds, and does not repeat a POST whose connection ends while it is sent: kube-apiserver then reports a failed webhook.
//! This limit counts from the first byte of a head, as in the server of Go.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, sleep, sleep_until},
};

/// The heads of one HTTP/1.1 connection. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Heads(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Requests that are being answered: what arrives meanwhile is the body of one.
    answering: usize,
    /// When the first byte of a head arrived whose end has not.
    began: Option<Instant>,
    /// The last request had a body, of which a rest may arrive when it is answered. So it is not known which byte begins a head.
    had_body: bool,
}

/// A request whose head is complete is being answered for as long as this lives.
#[derive(Debug)]
pub struct Answering(Heads);

/// The body of a response; its request is being answered until it is sent.
#[derive(Debug)]
pub struct Answer<B> {
    body: B,
    _answering: Answering,
}

/// A stream whose reads are seen by [`Heads`].
#[derive(Debug)]
pub struct Watched<S> {
    stream: S,
    heads: Heads,
}

impl Heads {
    /// The stream from which the heads are read.
    pub fn watch<S>(&self, stream: S) -> Watched<S> {
        Watched { stream, heads: self.clone() }
    }

    /// The head of a request is complete, and this is its body. Where it is not empty, the limit does not apply to the next head: a rest
    /// of the body that arrives late is no head.
    #[must_use]
    pub fn complete(&self, body: &impl Body) -> Answering {
        let mut state = self.0.lock();
        state.answering += 1;
        (state.began, state.had_body) = (None, !body.is_end_stream());
        Answering(self.clone())
    }

    /// Until a head has begun and has not ended for so long.
    pub async fn until_late(&self, limit: Duration) {
        loop {
            let began = self.0.lock().began;
            match began.map(|began| began + limit) {
                Some(due) if due <= Instant::now() => return,
                Some(due) => sleep_until(due).await,
                // One that begins meanwhile is due after that.
                None => sleep(limit).await,
            }
        }
    }

    fn arrived(&self) {
        let mut state = self.0.lock();
        if state.answering == 0 && !state.had_body && state.began.is_none() {
            state.began = Some(Instant::now());
        }
    }
}

impl Answering {
    /// Lasts until this body of the response is sent.
    pub fn until_sent<B>(self, body: B) -> Answer<B> {
        Answer { body, _answering: self }
    }
}

impl<B: Body + Unpin> Body for Answer<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.0.lock().answering -= 1;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        if buffer.filled().len() > before {
            self.heads.arrived();
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buffer)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
        time::timeout,
    };

    use super::*;

    const LIMIT: Duration = Duration::from_millis(200);
    const LONG: Duration = Duration::from_millis(600);
    const DEADLINE: Duration = Duration::from_secs(60);

    async fn pass(from: &mut DuplexStream, to: &mut Watched<DuplexStream>) {
        from.write_all(b"G").await.expect("written");
        to.read_exact(&mut [0]).await.expect("read");
    }

    #[tokio::test]
    async fn silence_is_no_head_and_a_head_that_does_not_end_is_late() {
        let heads = Heads::default();
        let (mut client, server) = duplex(16);
        let mut server = heads.watch(server);
        assert!(timeout(LONG, heads.until_late(LIMIT)).await.is_err(), "nothing was sent");
        let began = Instant::now();
        let trickle = async {
            loop {
                pass(&mut client, &mut server).await;
                sleep(LIMIT / 10).await;
            }
        };
        // More bytes do not make the time longer.
        let late = timeout(DEADLINE, heads.until_late(LIMIT));
        tokio::select! { () = trickle => {}, late = late => late.expect("the head is late") }
        assert!(began.elapsed() >= LIMIT, "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn bodies_and_idle_time_after_an_answer_are_no_head() {
        let heads = Heads::default();
        let (mut client, server) = duplex(16);
        let mut server = heads.watch(server);
        pass(&mut client, &mut server).await;
        let answer = heads.complete(&"body".to_owned()).until_sent(String::new());
        pass(&mut client, &mut server).await;
        assert!(timeout(LONG, heads.until_late(LIMIT)).await.is_err(), "a body was arriving");
        drop(answer);
        pass(&mut client, &mut server).await;
        assert!(timeout(LONG, heads.until_late(LIMIT)).await.is_err(), "the rest of the body was arriving");
        let answer = heads.complete(&String::new()).until_sent(String::new());
        pass(&mut client, &mut server).await;
        assert!(timeout(LONG, heads.until_late(LIMIT)).await.is_err(), "the answer was being sent");
        drop(answer);
        assert!(timeout(LONG, heads.until_late(LIMIT)).await.is_err(), "the connection was idle");
        pass(&mut client, &mut server).await;
        timeout(DEADLINE, heads.until_late(LIMIT)).await.expect("the next head is late");
    }
}
