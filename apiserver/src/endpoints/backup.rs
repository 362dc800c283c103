//! `/backup`: all objects in one archive while the server goes on, sealed as they rest. What to do with it: `repot storage import`.
//!
//! Like `/metrics` it is a path, so whoever may `get` it is said by `nonResourceURLs` of a ClusterRole.

use std::{
    io::{self, Write},
    time::Duration,
};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures::{executor::block_on, stream};
use http::{HeaderValue, Response, header};
use tokio::{runtime::Handle, sync::mpsc, task::spawn_blocking, time::timeout};

use super::Answer;
use crate::{call::Call, server::Server};

/// How much is sent on at once, and how many of these may wait for a slow client.
const PIECE_BYTES: usize = 256 << 10;
const PIECES: usize = 4;
/// A client that takes nothing for so long is given up: it would keep others from theirs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Every object as it is at some moment of the answer. An answer that breaks off is no archive, which an import sees before it
/// writes anything.
pub(super) fn backup(server: &Server, call: &mut Call) -> Answer {
    call.held.push(server.overload.backup()?);
    let (store, runtime) = (server.store.clone(), Handle::current());
    let (sender, mut pieces) = mpsc::channel(PIECES);
    let audit_id = call.audit_id.clone();
    spawn_blocking(move || {
        let mut out = Pieces { sender: sender.clone(), piece: BytesMut::new(), patience: PATIENCE };
        match runtime.block_on(store.export(&mut out, |_| {})) {
            Ok(moved) => tracing::info!(audit_id, objects = moved.objects, "objects were backed up"),
            Err(error) => {
                tracing::error!(audit_id, %error, "a backup was broken off");
                let told = io::Error::other("broken off; see the log of the server");
                // A client that is gone does not want to know, and one that reads nothing finds the answer cut off.
                let _ = sender.try_send(Err(told));
            }
        }
    });
    let body = Body::from_stream(stream::poll_fn(move |context| pieces.poll_recv(context)));
    let mut response = Response::new(body);
    let kind = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// A writer whose bytes become the body of an answer, as fast as the client takes them.
struct Pieces {
    sender: mpsc::Sender<io::Result<Bytes>>,
    piece: BytesMut,
    patience: Duration,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = self.piece.split().freeze();
        if piece.is_empty() {
            return Ok(());
        }
        // The thread is one that may block, and nothing but this client waits for it.
        match block_on(timeout(self.patience, self.sender.send(Ok(piece)))) {
            Ok(sent) => sent.map_err(|_| io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "its client takes nothing any more")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_client_that_takes_nothing_is_given_up() {
        let (sender, mut taken) = mpsc::channel(1);
        let patience = Duration::from_millis(20);
        let writing = spawn_blocking(move || {
            let mut out = Pieces { sender, piece: BytesMut::new(), patience };
            let written = [out.write_all(&[7; PIECE_BYTES]), out.write_all(&[8; PIECE_BYTES])];
            written.map(|outcome| outcome.map_err(|error| error.kind()))
        });
        assert_eq!(writing.await.expect("no panic"), [Ok(()), Err(io::ErrorKind::TimedOut)]);
        assert_eq!(taken.recv().await.and_then(Result::ok).map(|piece| piece.len()), Some(PIECE_BYTES));
        assert!(taken.recv().await.is_none());
    }
}
