//! A connection that moves many bytes gives other connections a turn in between. Without that, its task goes on for as long as
//! there is something to read: several MiB, decrypted and copied, while the others on its thread wait for milliseconds.
//!
//! A turn is one poll of the task, however often the task tries again within it. Reads and writes have a budget each, so that a
//! client that sends without end does not keep its own responses from being written.

use std::{
    io::{self, IoSlice},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of one turn, each way: about a tenth of a millisecond's work.
const TURN: usize = 128 << 10;

/// Serves a connection on this stream. Each poll reads and writes up to [`TURN`] bytes each, and one operation more than that at
/// most. The stream is polled by the future that `serve` makes, and nowhere else.
pub(crate) async fn in_short_turns<S, F: Future>(
    stream: S,
    serve: impl FnOnce(ShortTurns<S>) -> F,
) -> F::Output {
    let turn = Arc::new(Turn::default());
    let mut served = pin!(serve(ShortTurns { stream, turn: Arc::clone(&turn) }));
    std::future::poll_fn(|cx| {
        turn.begin();
        served.as_mut().poll(cx)
    })
    .await
}

/// Bytes that a task may still move in this turn.
#[derive(Debug, Default)]
struct Turn {
    read: AtomicUsize,
    written: AtomicUsize,
}

impl Turn {
    fn begin(&self) {
        self.read.store(TURN, Relaxed);
        self.written.store(TURN, Relaxed);
    }
}

/// Ends the turn when it is used up: the task is polled again after those that wait.
fn poll_left(left: &AtomicUsize, cx: &Context<'_>) -> Poll<()> {
    if left.load(Relaxed) > 0 {
        return Poll::Ready(());
    }
    cx.waker().wake_by_ref();
    Poll::Pending
}

fn moved(left: &AtomicUsize, moved: &Poll<io::Result<usize>>) {
    if let Poll::Ready(Ok(bytes)) = moved {
        // Nobody else changes it meanwhile: one task has the stream.
        left.store(left.load(Relaxed).saturating_sub(*bytes), Relaxed);
    }
}

/// A stream whose task yields after so many bytes: see [`in_short_turns`].
#[derive(Debug)]
pub(crate) struct ShortTurns<S> {
    stream: S,
    turn: Arc<Turn>,
}

impl<S: AsyncRead + Unpin> AsyncRead for ShortTurns<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(poll_left(&self.turn.read, cx));
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        let read = read.map_ok(|()| buf.filled().len() - before);
        moved(&self.turn.read, &read);
        read.map_ok(drop)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ShortTurns<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(poll_left(&self.turn.written, cx));
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        moved(&self.turn.written, &written);
        written
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
        ready!(poll_left(&self.turn.written, cx));
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        moved(&self.turn.written, &written);
        written
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
        let mut reading = Box::pin(in_short_turns(server, async |mut server| {
            let mut read = Vec::new();
            server.read_to_end(&mut read).await.map(|_| read)
        }));
        // Everything is there: the task would not yield by itself.
        for turn in 0..3 {
            assert!(poll!(&mut reading).is_pending(), "turn {turn}");
        }
        let Poll::Ready(read) = poll!(&mut reading) else { panic!("it is not over") };
        assert!(read.expect("an end") == sent);
    }

    #[tokio::test]
    async fn a_task_that_tries_again_at_once_moves_no_more_than_one_turn() {
        let (mut client, server) = duplex(8 * TURN);
        client.write_all(&vec![7; 8 * TURN]).await.expect("room");
        let (mut moved, mut text) = (0, vec![0; TURN / 8]);
        let mut serving = Box::pin(in_short_turns(server, async |mut server| {
            let again = std::future::poll_fn(|cx| {
                for _ in 0..100 {
                    let mut buf = ReadBuf::new(&mut text);
                    let _ = Pin::new(&mut server).poll_read(cx, &mut buf);
                    moved += buf.filled().len();
                }
                Poll::<()>::Pending
            });
            again.await;
        }));
        assert!(poll!(&mut serving).is_pending());
        assert!(poll!(&mut serving).is_pending());
        drop(serving);
        assert_eq!(moved, 2 * TURN);
    }

    #[tokio::test]
    async fn reads_without_end_leave_writes_their_turn() {
        let (mut client, server) = duplex(4 * TURN);
        client.write_all(&vec![7; 4 * TURN]).await.expect("room");
        let mut serving = Box::pin(in_short_turns(server, async |mut server| {
            let mut text = vec![0; TURN];
            server.read_exact(&mut text).await?;
            assert!(poll!(Box::pin(server.read_u8())).is_pending(), "the turn is used up");
            server.write_all(b"a response").await
        }));
        assert!(matches!(poll!(&mut serving), Poll::Ready(Ok(()))));
    }

    #[tokio::test]
    async fn writes_yield_too_and_are_continued_by_themselves() {
        let (mut client, server) = duplex(4 * TURN);
        let mut serving = Box::pin(in_short_turns(server, async |mut server| {
            for chunk in vec![7; 2 * TURN].chunks(TURN / 2) {
                server.write_all(chunk).await?;
            }
            server.write_all(b"x").await
        }));
        for turn in 0..2 {
            assert!(poll!(&mut serving).is_pending(), "turn {turn}");
        }
        serving.await.expect("room");
        let mut read = Vec::new();
        client.read_to_end(&mut read).await.expect("an end");
        assert_eq!(read.len(), 2 * TURN + 1);
    }
}
