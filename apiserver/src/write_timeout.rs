//! A connection whose client reads nothing is ended. TCP keeps such a connection for ever: the client's kernel goes on to
//! acknowledge that its window is closed.

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

/// A stream whose writes fail when none has made progress for the given time.
#[derive(Debug)]
pub(crate) struct WriteTimeout<S> {
    stream: S,
    most: Duration,
    /// Runs while a write waits.
    blocked: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    pub(crate) fn new(stream: S, most: Duration) -> Self {
        Self { stream, most, blocked: None }
    }

    fn watch<T>(&mut self, written: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.blocked = None;
            return written;
        }
        let until = Instant::now() + self.most;
        let blocked = self.blocked.get_or_insert_with(|| Box::pin(sleep_until(until)));
        match blocked.as_mut().poll(cx) {
            Poll::Ready(()) => {
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads nothing")))
            }
            Poll::Pending => Poll::Pending,
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
        self.watch(written, cx)
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
        self.watch(written, cx)
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
        let mut server = WriteTimeout::new(server, MOST);
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
}
