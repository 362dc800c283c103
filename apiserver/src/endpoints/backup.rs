//! `/backup`: all objects in one archive while the server goes on, sealed as they rest. What to do with it: `repot storage import`.
//!
//! Like `/metrics` it is a path, so whoever may `get` it is said by `nonResourceURLs` of a ClusterRole.

use std::io::{self, Write};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures::{executor::block_on, stream};
use http::{HeaderValue, Response, header};
use tokio::{runtime::Handle, sync::mpsc, task::spawn_blocking};

use super::Answer;
use crate::{call::Call, server::Server};

/// The path.
pub const PATH: &str = "/backup";
/// How much is sent on at once, and how many of these may wait for a slow client.
const PIECE_BYTES: usize = 256 << 10;
const PIECES: usize = 4;

/// Every object as it is at some moment of the answer. An answer that breaks off is no archive, which an import sees before it
/// writes anything.
pub(super) fn backup(server: &Server, call: &mut Call) -> Answer {
    call.held.push(server.overload.backup()?);
    let (store, runtime) = (server.store.clone(), Handle::current());
    let (sender, mut pieces) = mpsc::channel(PIECES);
    let audit_id = call.audit_id.clone();
    spawn_blocking(move || {
        let mut out = Pieces { sender: sender.clone(), piece: BytesMut::new() };
        match runtime.block_on(store.export(&mut out, |_| {})) {
            Ok(moved) => tracing::info!(audit_id, objects = moved.objects, "objects were backed up"),
            Err(error) => {
                tracing::error!(audit_id, %error, "a backup was broken off");
                // A client that is gone does not want to know.
                let _ = block_on(sender.send(Err(io::Error::other("broken off; see the log of the server"))));
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
        block_on(self.sender.send(Ok(piece))).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
