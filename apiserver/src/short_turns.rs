//! A connection that moves many bytes gives other connections a turn in between. Without that, its task goes on for as long as
//! there is something to read: several MiB, decrypted and copied, while the others on its thread wait for milliseconds.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of one turn, both ways: about a tenth of a millisecond's work.
const TURN: usize = 128 << 10;

/// A stream whose task yields after so many bytes.
#[derive(Debug)]
pub(crate) struct ShortTurns<S> {
    stream: S,
    /// Bytes that the task may still move in this turn.
    left: usize,
}

impl<S> ShortTurns<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, left: TURN }
    }

    /// Ends the turn when it is used up: the task is polled again after those that wait.
    fn poll_turn(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.left > 0 {
            return Poll::Ready(());
        }
        self.left = TURN;
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn moved(&mut self, moved: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &moved {
            Poll::Ready(Ok(bytes)) => self.left = self.left.saturating_sub(*bytes),
            Poll::Ready(Err(_)) => {}
            // The task waits for its client: the turn is over.
            Poll::Pending => self.left = TURN,
        }
        moved
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ShortTurns<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_turn(cx));
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        let read = read.map_ok(|()| buf.filled().len() - before);
        self.moved(read).map_ok(drop)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ShortTurns<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_turn(cx));
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.moved(written)
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
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_turn(cx));
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.moved(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use futures::poll;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn a_task_yields_after_each_turn_and_nothing_is_lost() {
        let sent: Vec<u8> = (0..3 * TURN + 7).map(|at| at as u8).collect();
        let (mut client, server) = duplex(sent.len());
        client.write_all(&sent).await.expect("room");
        drop(client);
        let (mut server, mut read) = (ShortTurns::new(server), Vec::new());
        let mut reading = Box::pin(server.read_to_end(&mut read));
        // Everything is there: the task would not yield by itself.
        for turn in 0..3 {
            assert!(poll!(&mut reading).is_pending(), "turn {turn}");
        }
        assert!(poll!(&mut reading).is_ready());
        drop(reading);
        assert!(read == sent);
    }

    #[tokio::test]
    async fn writes_yield_too_and_are_continued_by_themselves() {
        let sent = vec![7; 2 * TURN];
        let (mut client, server) = duplex(4 * TURN);
        let mut server = ShortTurns::new(server);
        for chunk in sent.chunks(TURN / 2) {
            server.write_all(chunk).await.expect("room");
        }
        let mut last = Box::pin(server.write_all(b"x"));
        assert!(poll!(&mut last).is_pending(), "the second turn is used up");
        last.await.expect("room");
        drop(server);
        let mut read = Vec::new();
        client.read_to_end(&mut read).await.expect("an end");
        assert_eq!(read.len(), 2 * TURN + 1);
    }
}
