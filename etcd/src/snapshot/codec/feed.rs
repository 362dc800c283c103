//! The joint between streams and readers that block: bytes go over a short channel, in both directions.

use std::io::{self, BufRead, Read, Write};

use bytes::{Buf, Bytes, BytesMut};
use tokio::sync::mpsc;

/// How many pieces may wait.
const PIECES: usize = 4;
/// How much is written before it is sent on.
const PIECE_BYTES: usize = 256 << 10;

/// The end that sends bytes to a reader; dropping it without [`Feed::end`] is an error for the reader.
pub struct Feed(mpsc::Sender<Option<Bytes>>);

/// The end that reads.
pub struct Fed {
    pieces: mpsc::Receiver<Option<Bytes>>,
    piece: Bytes,
    ended: bool,
}

/// A feed and its reader.
#[must_use]
pub fn feed() -> (Feed, Fed) {
    let (sender, pieces) = mpsc::channel(PIECES);
    (Feed(sender), Fed { pieces, piece: Bytes::new(), ended: false })
}

impl Feed {
    /// Sends bytes; false when nobody reads any more, which whoever reads explains.
    pub async fn send(&self, bytes: Bytes) -> bool {
        bytes.is_empty() || self.0.send(Some(bytes)).await.is_ok()
    }

    /// Says that this was all.
    pub async fn end(self) {
        // A reader that is gone has its own reason.
        let _ = self.0.send(None).await;
    }
}

impl BufRead for Fed {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.piece.is_empty() && !self.ended {
            match self.pieces.blocking_recv() {
                Some(Some(piece)) => self.piece = piece,
                Some(None) => self.ended = true,
                None => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the bytes stopped coming")),
            }
        }
        Ok(&self.piece)
    }

    fn consume(&mut self, amount: usize) {
        self.piece.advance(amount.min(self.piece.len()));
    }
}

impl Read for Fed {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(out)?;
        self.consume(count);
        Ok(count)
    }
}

/// The end that writes, on a thread that may block.
pub struct Writer {
    pieces: mpsc::Sender<Bytes>,
    piece: BytesMut,
}

/// A writer and the receiver of what it writes. The receiver ends when the writer is dropped, finished or not.
#[must_use]
pub fn writer() -> (Writer, mpsc::Receiver<Bytes>) {
    let (pieces, receiver) = mpsc::channel(PIECES);
    (Writer { pieces, piece: BytesMut::new() }, receiver)
}

impl Writer {
    fn send(&mut self) -> io::Result<()> {
        let piece = self.piece.split().freeze();
        if piece.is_empty() {
            return Ok(());
        }
        self.pieces.blocking_send(piece).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE_BYTES {
            self.send()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}
