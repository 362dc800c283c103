//! A connection whose client reads nothing, or next to nothing, is ended. TCP keeps such a connection for ever: the client's
//! kernel goes on to acknowledge that its window is closed, and a client that reads a byte now and then opens it again.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

/// A stream whose writes fail when, from one on that has to wait, fewer than so many bytes are taken in the given time. What is
/// flushed before does not count against the client.
#[derive(Debug)]
pub(crate) struct WriteTimeout<S> {
    stream: S,
    most: Duration,
    /// Bytes that a client takes at least in that time.
    least: usize,
    /// Runs from when a write has to wait.
    blocked: Option<Pin<Box<Sleep>>>,
    /// Bytes that were taken since then.
    taken: usize,
}

impl<S> WriteTimeout<S> {
    pub(crate) fn new(stream: S, most: Duration, least: usize) -> Self {
        Self { stream, most, least, blocked: None, taken: 0 }
    }

    /// After a write.
    fn written(&mut self, written: Poll<io::Result<usize>>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Poll::Ready(Ok(bytes)) = written else { return self.watch(written, cx) };
        self.taken = self.taken.saturating_add(bytes);
        if self.taken >= self.least {
            self.blocked = None;
        }
        written
    }

    /// After a flush, or the end: when it is done, the client has taken all there was.
    fn watch<T>(&mut self, done: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.blocked = None;
            return done;
        }
        if self.blocked.is_none() {
            self.blocked = Some(Box::pin(sleep_until(Instant::now() + self.most)));
            self.taken = 0;
        }
        match self.blocked.as_mut().map(|blocked| blocked.as_mut().poll(cx)) {
            Some(Poll::Ready(())) => {
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads too little")))
            }
            _ => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.written(written, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.watch(flushed, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.watch(ended, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.written(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn writes_fail_when_nothing_is_read_for_the_whole_time_and_not_earlier() {
        const MOST: Duration = Duration::from_millis(50);
        let (mut client, server) = duplex(4);
        let mut server = WriteTimeout::new(server, MOST, 1);
        server.write_all(b"full").await.expect("room");
        let began = Instant::now();
        assert!(futures::poll!(Box::pin(server.write_all(b"x"))).is_pending());
        let first = server.blocked.as_ref().expect("a timer").deadline();
        // One byte is read: the next write has all of the time again.
        client.read_u8().await.expect("a byte");
        server.write_all(b"x").await.expect("room");
        assert!(futures::poll!(Box::pin(server.write_all(b"x"))).is_pending());
        assert!(server.blocked.as_ref().expect("a timer").deadline() > first);
        let error = server.write_all(b"x").await.expect_err("nobody reads");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= MOST, "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn a_client_that_reads_a_byte_now_and_then_has_no_more_time() {
        let (mut client, server) = duplex(4);
        let mut server = WriteTimeout::new(server, Duration::from_secs(30), 3);
        let deadline = |server: &WriteTimeout<_>| server.blocked.as_ref().map(|blocked| blocked.deadline());
        server.write_all(b"full").await.expect("room");
        assert!(futures::poll!(Box::pin(server.write_all(b"x"))).is_pending());
        let first = deadline(&server).expect("a timer");
        for taken in 1..=3 {
            assert_eq!(deadline(&server), Some(first), "after {taken} bytes");
            client.read_u8().await.expect("a byte");
            server.write_all(b"x").await.expect("room");
            assert!(futures::poll!(Box::pin(server.write_all(b"x"))).is_pending());
        }
        assert!(deadline(&server) > Some(first), "it has taken enough");
        // Nothing is left that the client could take.
        server.flush().await.expect("flushed");
        assert_eq!(deadline(&server), None);
    }
}
