//! What the answer to a read shows: some heads, how long they are, and how they are sent.

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use http::StatusCode;
use repot_storage::Object;

use super::{
    Answer, Request,
    heads::{Heads, Listed},
    options::Selectors,
};
use crate::{memory, pretty, protobuf, status::Status, trimmed, wire};

/// What a response shows, and how long that is.
pub(super) struct Shown {
    pub(super) lengths: HeadLengths,
    /// Of the items of a list of whole objects, in bytes.
    pub(super) items: u64,
    pub(super) count: usize,
    /// The object with the longest payload that is shown, where it is not in its record. Without its head, which is not kept.
    probe: Option<Object>,
    pub(super) heads: Heads,
}

impl Shown {
    /// One object, with its payload or without.
    pub(super) fn one(request: &Request<'_>, object: Object, with_payload: bool) -> Self {
        let listed = Listed {
            scope: request.scope(),
            at: object.version,
            after: None,
            selectors: Selectors::default(),
            with_payload,
        };
        Self::new(request, listed, vec![object])
    }

    pub(super) fn new(request: &Request<'_>, listed: Listed, objects: Vec<Object>) -> Self {
        let resource = request.resource;
        let whole = || objects.iter().filter(|_| listed.with_payload);
        let read = whole().filter(|object| !trimmed::is(resource, object));
        let largest = read.max_by_key(|object| object.payload_len);
        let largest = largest.filter(|object| object.payload_len >= IN_RECORD);
        Self {
            lengths: HeadLengths::of(&objects),
            items: whole().map(|object| trimmed::shown_len(resource, object)).sum(),
            count: objects.len(),
            probe: largest.map(|object| {
                let mut probe = object.clone();
                (probe.meta, probe.summary) = (Bytes::new(), Bytes::new());
                probe
            }),
            heads: Heads::new(&request.server.store, listed, objects),
        }
    }

    /// Reads the first piece of the longest payload: a store of payloads that is away is answered with a status, while a response
    /// that has begun can only be cut off.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(super) async fn probe(&mut self, request: &Request<'_>) -> Result<(), Status> {
        let Some(object) = self.probe.take() else { return Ok(()) };
        let first = request.server.store.payload(&object).next().await;
        first.transpose().map(drop).map_err(|error| request.failed(&error))
    }
}

/// A payload that is shorter may be in the record of its object, and its head is enough to read it. In bytes.
const IN_RECORD: u64 = 64 << 10;

/// About how long the items of a list or the rows of a table are that have no payload, in bytes.
#[derive(Clone, Copy)]
pub(super) struct HeadLengths {
    all: u64,
    longest: u64,
}

impl HeadLengths {
    pub(super) fn of(objects: &[Object]) -> Self {
        const BESIDE: usize = 256;
        let lengths = || objects.iter().map(|object| (object.meta.len() + BESIDE) as u64);
        Self { all: lengths().sum(), longest: lengths().max().unwrap_or(0) }
    }

    pub(super) fn longest(self) -> u64 {
        self.longest
    }
}

/// A list of metadata up to this length is sent in protobuf where the client prefers that, in bytes. It is in memory as a whole,
/// since the length of all items comes before the first; longer lists are in JSON, which is streamed.
const PROTOBUF: u64 = 12 << 20;
/// Items are gathered into pieces of about this length, in bytes.
const PIECE: usize = 64 << 10;

/// Answers with items that have no payload. Many of them are encoded as the client takes them.
///
/// # Errors
/// 429 where there is no memory for the answer.
pub(super) async fn send(
    request: &Request<'_>,
    before: BytesMut,
    shown: Shown,
    item: impl Fn(&Object) -> BytesMut + Send + 'static,
) -> Answer {
    let (memory, flow, lengths) = (&request.server.memory, request.flow(), shown.lengths);
    let copies = protobuf::copies(request.call);
    let whole = if copies > 1 { PROTOBUF } else { memory::SHORT };
    let pieces = Pieces { text: before, heads: shown.heads, item, first: true, ended: false };
    if lengths.all <= whole {
        request.keep(memory.to_send(&flow, copies * lengths.all).await)?;
        let text = pieces.stream().try_fold(BytesMut::new(), async |mut text, piece| {
            text.extend_from_slice(&piece);
            Ok(text)
        });
        let text = text.await.map_err(|error| request.failed(&error))?;
        return Ok(wire::whole(StatusCode::OK, text.freeze()));
    }
    let held = lengths.all + pretty::held(request.call);
    request.keep(memory.to_stream_pieces(&flow, held, lengths.longest + PIECE as u64).await)?;
    let pieces = pieces.stream().map_ok(BytesMut::freeze);
    Ok(wire::json_response(StatusCode::OK, wire::body_of(wire::ahead(pieces), None)))
}

/// The text of a list, in pieces.
struct Pieces<F> {
    text: BytesMut,
    heads: Heads,
    item: F,
    first: bool,
    ended: bool,
}

impl<F: Fn(&Object) -> BytesMut + Send> Pieces<F> {
    async fn next(&mut self) -> Result<Option<BytesMut>, repot_storage::Error> {
        while !self.ended && self.text.len() < PIECE {
            match self.heads.next().await.transpose()? {
                Some(object) => {
                    wire::put(&mut self.text, if self.first { "" } else { "," });
                    self.text.extend_from_slice(&(self.item)(&object));
                    self.first = false;
                }
                None => {
                    wire::put(&mut self.text, "]}");
                    self.ended = true;
                }
            }
        }
        Ok(Some(std::mem::take(&mut self.text)).filter(|text| !text.is_empty()))
    }

    fn stream(self) -> impl Stream<Item = Result<BytesMut, repot_storage::Error>> + Send {
        stream::try_unfold(self, async |mut pieces| Ok(pieces.next().await?.map(|piece| (piece, pieces))))
    }
}
