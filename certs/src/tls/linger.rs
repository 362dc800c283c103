//! Letting go of a connection so that the last answer arrives.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf},
    runtime::Handle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

/// A client that sends nothing for this time has nothing more to send. One on a busy machine pauses for a second or two, and loses the
/// answer if it then sends to a connection that is closed.
const QUIET: Duration = Duration::from_secs(5);
/// A client that goes on sending is not listened to for longer.
const LONGEST: Duration = Duration::from_secs(30);
/// Bytes that are thrown away before other tasks have their turn.
const TURN: usize = 128 << 10;

/// A stream that is seen off when it is dropped: what was written is ended in good order, and what still comes in is taken in and
/// thrown away for a while.
///
/// A request may be answered before its body was read: with a refusal, mostly. Were the connection closed right then, with parts
/// of the body still on their way, the system would reset it, and a client that is still sending would see that and not the answer.
pub struct Lingering<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> {
    stream: Option<S>,
    end: CancellationToken,
    kept: Option<Box<dyn Send + Sync>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Lingering<S> {
    /// Takes a stream over.
    pub fn new(stream: S) -> Self {
        Self { stream: Some(stream), end: CancellationToken::new(), kept: None }
    }

    /// The same; `guard` is dropped when the stream is closed and not before: it may count the connection, which has a file
    /// descriptor until then.
    #[must_use]
    pub fn keeping(mut self, guard: impl Send + Sync + 'static) -> Self {
        self.kept = Some(Box::new(guard));
        self
    }

    /// The same; it is not seen off any more after `end`.
    #[must_use]
    pub fn until(mut self, end: CancellationToken) -> Self {
        self.end = end;
        self
    }

    fn project(self: Pin<&mut Self>) -> io::Result<Pin<&mut S>> {
        // It is there until the drop.
        self.get_mut().stream.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Drop for Lingering<S> {
    fn drop(&mut self) {
        // Without a runtime the process is about to end.
        if let (Some(stream), Ok(runtime)) = (self.stream.take(), Handle::try_current()) {
            let (end, kept) = (std::mem::take(&mut self.end), self.kept.take());
            runtime.spawn(async move {
                end.run_until_cancelled(timeout(LONGEST, see_off(stream))).await;
                drop(kept);
            });
        }
    }
}

async fn see_off(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    stream.shutdown().await?;
    let (mut thrown_away, mut left) = (vec![0; 16 << 10], TURN);
    loop {
        let read = timeout(QUIET, stream.read(&mut thrown_away)).await.map_err(io::Error::other)??;
        if read == 0 {
            return Ok(());
        }
        left = left.saturating_sub(read);
        if left == 0 {
            // Others on this thread do not wait for a client that sends without end.
            tokio::task::yield_now().await;
            left = TURN;
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> AsyncRead for Lingering<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.project()?.poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> AsyncWrite for Lingering<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.project()?.poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project()?.poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.project()?.poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn an_answer_arrives_although_the_question_is_not_over() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let mut client =
            TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a client");
        let (stream, _) = listener.accept().await.expect("a connection");
        let mut server = Lingering::new(stream);
        client.write_all(b"the beginning of a question").await.expect("sent");
        server.read_exact(&mut [0; 3]).await.expect("read");
        server.write_all(b"no").await.expect("answered");
        drop(server);
        // Without lingering, one of these meets a reset, and the answer is lost with it.
        for _ in 0..8 {
            client.write_all(&[b'x'; 64 << 10]).await.expect("sent on");
        }
        let mut answer = String::new();
        client.shutdown().await.expect("the end of the question");
        client.read_to_string(&mut answer).await.expect("the answer");
        assert_eq!(answer, "no");
    }

    #[tokio::test]
    async fn an_answer_arrives_at_a_client_that_pauses_for_seconds() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let mut client =
            TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a client");
        let (stream, _) = listener.accept().await.expect("a connection");
        let mut server = Lingering::new(stream);
        server.write_all(b"no").await.expect("answered");
        drop(server);
        tokio::time::sleep(Duration::from_secs(2)).await;
        client.write_all(b"the question").await.expect("sent");
        // A reset would have come by then, and thrown the answer away.
        tokio::time::sleep(Duration::from_millis(100)).await;
        client.write_all(b" goes on").await.expect("sent on");
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.expect("the answer");
        assert_eq!(answer, "no");
    }

    #[tokio::test]
    async fn a_connection_counts_until_it_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let mut client =
            TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a client");
        let (stream, _) = listener.accept().await.expect("a connection");
        let (counted, end) = (Arc::new(()), CancellationToken::new());
        drop(Lingering::new(stream).until(end.clone()).keeping(Arc::clone(&counted)));
        // The end of what the server says has come, and the client goes on.
        assert_eq!(client.read(&mut [0; 1]).await.expect("an end"), 0);
        client.write_all(b"x").await.expect("sent on");
        tokio::task::yield_now().await;
        assert_eq!(Arc::strong_count(&counted), 2, "the stream is there, and does not count");
        end.cancel();
        while Arc::strong_count(&counted) > 1 {
            tokio::task::yield_now().await;
        }
    }
}
