//! The body of a record as bytes: protobuf, so that fields can be added.

use bytes::Bytes;
use prost::Message;

use super::{MAX_HEAD, Packed, Payload, Record};
use crate::{
    chunk::{ChunkRef, INLINE_LIMIT, MAX_CHUNK},
    seal::Defect,
};

#[derive(Clone, PartialEq, Message)]
struct Body {
    /// A packed [`Head`].
    #[prost(message, optional, tag = "1")]
    head: Option<Piece>,
    /// The payload, where it is small.
    #[prost(message, optional, tag = "2")]
    inline: Option<Piece>,
    /// The payload, where it is not.
    #[prost(message, repeated, tag = "3")]
    chunks: Vec<Chunk>,
    /// Bytes of payload.
    #[prost(uint64, tag = "4")]
    payload_len: u64,
    #[prost(bytes = "bytes", tag = "5")]
    token: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct Head {
    #[prost(bytes = "bytes", tag = "1")]
    meta: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    summary: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct Piece {
    #[prost(bytes = "bytes", tag = "1")]
    data: Bytes,
    /// Bytes before compression.
    #[prost(uint64, tag = "2")]
    len: u64,
    #[prost(bool, tag = "3")]
    zstd: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Chunk {
    #[prost(bytes = "bytes", tag = "1")]
    id: Bytes,
    /// Bytes before compression.
    #[prost(uint32, tag = "2")]
    len: u32,
}

pub(crate) fn encode(record: &Record) -> Vec<u8> {
    let head = Head { meta: record.meta.clone(), summary: record.summary.clone() };
    let inline = match &record.payload {
        Payload::Inline(packed) => Some(Piece::from(packed)),
        Payload::InRecord | Payload::Chunks(_) => None,
    };
    let chunks = record.payload.chunks().iter();
    let body = Body {
        head: Some(Piece::from(&Packed::new(&head.encode_to_vec()))),
        inline,
        chunks: chunks.map(|c| Chunk { id: Bytes::copy_from_slice(&c.id), len: c.len }).collect(),
        payload_len: record.payload_len,
        token: Bytes::copy_from_slice(&record.token),
    };
    body.encode_to_vec()
}

pub(crate) fn decode(bytes: Bytes) -> Result<Record, Defect> {
    let body = Body::decode(bytes).map_err(|_| "record is not a record")?;
    let (meta, summary) = head(body.head)?;
    let payload = payload(body.inline, &body.chunks, body.payload_len)?;
    let token = body.token.as_ref().try_into().map_err(|_| "record has no token")?;
    Ok(Record { meta, summary, payload_len: body.payload_len, token, payload })
}

fn head(piece: Option<Piece>) -> Result<(Bytes, Bytes), Defect> {
    let packed = packed(piece.ok_or("record has no head")?, MAX_HEAD)?;
    let head = Head::decode(packed.unpack()?).map_err(|_| "head of record is not a head")?;
    if packed.zstd {
        return Ok((head.meta, head.summary));
    }
    // Copies: slices would hold on to the whole record.
    Ok((Bytes::copy_from_slice(&head.meta), Bytes::copy_from_slice(&head.summary)))
}

fn payload(inline: Option<Piece>, chunks: &[Chunk], len: u64) -> Result<Payload, Defect> {
    match (inline, chunks.is_empty()) {
        (Some(piece), true) if piece.len == len => Ok(Payload::Inline(packed(piece, INLINE_LIMIT)?)),
        (None, false) => {
            let chunks = chunks.iter().map(chunk).collect::<Result<Vec<_>, _>>()?;
            let sum: u64 = chunks.iter().map(|c| u64::from(c.len)).sum();
            if sum == len { Ok(Payload::Chunks(chunks.into())) } else { Err("chunk map has gaps") }
        }
        (Some(_) | None, _) => Err("record has no payload map"),
    }
}

fn chunk(chunk: &Chunk) -> Result<ChunkRef, Defect> {
    let id = chunk.id.as_ref().try_into().map_err(|_| "chunk map names no chunk")?;
    if chunk.len as usize > MAX_CHUNK {
        return Err("chunk map names a chunk that is too large");
    }
    Ok(ChunkRef { id, len: chunk.len })
}

fn packed(piece: Piece, limit: usize) -> Result<Packed, Defect> {
    let len = usize::try_from(piece.len).map_err(|_| "length in record is too large")?;
    if len > limit {
        return Err("length in record is too large");
    }
    Ok(Packed { data: piece.data, len, zstd: piece.zstd })
}

impl From<&Packed> for Piece {
    fn from(packed: &Packed) -> Self {
        Self { data: packed.data.clone(), len: packed.len as u64, zstd: packed.zstd }
    }
}
