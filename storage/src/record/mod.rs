//! The record of an object: what rests under its key.
//!
//! ```text
//! magic (4) ++ format (1) ++ uid (16) ++ length of wrapped key (2, big endian) ++ wrapped data key   clear
//! ++ nonce (12) ++ AES-256-GCM of body ++ tag (16)                                                   sealed
//! ```
//!
//! What is bound to what: the associated data of the record is its format, uid and whole path, so a record opens only where
//! it was written. The wrapped data key is not part of it, so that a change of the wrapping key need not touch the body;
//! another data key in its place does not open the body. The body holds the chunk map: order, names and lengths of the
//! chunks. A chunk opens only as the chunk of that name of that uid (see `chunk`), and its name is a keyed hash of what is
//! in it. So no chunk can be moved, swapped, cut, repeated or taken from another object unnoticed.

use std::{fmt, sync::Arc};

use bytes::{Buf, Bytes};
use uuid::Uuid;

use crate::{
    chunk::{self, ChunkRef},
    compress::{self, Worth},
    seal::{self, Cipher, DataKey, Defect, Refused},
};

mod wire;
#[cfg(feature = "fuzzing")]
pub(crate) use wire::{decode, encode};

const MAGIC: &[u8; 4] = b"RPOT";
/// The one format there is.
const FORMAT: u8 = 1;
const HEADER: usize = 4 + 1 + 16 + 2;
/// No head is larger, whatever a record says.
const MAX_HEAD: usize = 64 << 20;
/// An inline payload that is kept compressed in memory is not larger; others are read again when needed.
const MAX_KEPT_INLINE: usize = 4 << 10;

/// A name of one write, to recognise it when its outcome is unknown.
pub(crate) type Token = [u8; 16];

/// What of a record is not shown to callers.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    /// The key of the object.
    pub key: DataKey,
    /// The same key in its wrapped form.
    pub wrapped: Bytes,
    /// Which write made this record.
    pub token: Token,
    /// Where the payload is.
    pub payload: Payload,
}

/// Where a payload is.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    /// In the record, and at hand.
    Inline(Packed),
    /// In the record, which has to be read again.
    InRecord,
    /// In these chunks, in this order.
    Chunks(Arc<[ChunkRef]>),
}

impl Payload {
    /// The chunks that hold the payload.
    pub fn chunks(&self) -> &[ChunkRef] {
        match self {
            Self::Chunks(chunks) => chunks,
            Self::Inline(_) | Self::InRecord => &[],
        }
    }
}

/// Bytes that are compressed where that pays.
#[derive(Clone, Default)]
pub(crate) struct Packed {
    data: Bytes,
    len: usize,
    zstd: bool,
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packed({} bytes)", self.len)
    }
}

impl Packed {
    /// Copies the bytes, compressed where that pays.
    pub fn new(plain: &[u8]) -> Self {
        let mut data = Vec::new();
        let zstd = compress::append(&mut data, plain, Worth::Tenth, 0);
        Self { data: data.into(), len: plain.len(), zstd }
    }

    /// The bytes as they were before packing; an error where what is stored does not give their recorded length.
    pub fn unpack(&self) -> Result<Bytes, Defect> {
        if self.zstd {
            let plain = compress::inflated(&self.data, self.len).map_err(|_| "record does not inflate")?;
            return Ok(plain.into());
        }
        if self.data.len() == self.len { Ok(self.data.clone()) } else { Err("length in record is wrong") }
    }
}

/// A record before it is sealed, and after it is opened.
#[derive(Clone)]
pub(crate) struct Record {
    /// Small data of the object, as in [`crate::Draft::meta`].
    pub meta: Bytes,
    /// Facts derived from the payload, as in [`crate::Draft::summary`].
    pub summary: Bytes,
    /// Length of the payload, in bytes.
    pub payload_len: u64,
    /// Names the write that made this record.
    pub token: Token,
    /// Where the payload is; never [`Payload::InRecord`] here.
    pub payload: Payload,
}

/// A record whose clear part is read and whose body is still sealed.
#[derive(Debug)]
pub(crate) struct Sealed {
    /// The uid it claims; true if the body opens.
    pub uid: Uuid,
    /// The wrapped data key.
    pub wrapped: Bytes,
    body: Bytes,
}

impl Sealed {
    /// Reads the clear part.
    pub fn parse(mut value: Bytes) -> Result<Self, Defect> {
        if value.len() < HEADER || &value[..4] != MAGIC {
            return Err("record has no header");
        }
        if value[4] != FORMAT {
            return Err("record is of an unknown format");
        }
        let uid = Uuid::from_slice(&value[5..21]).map_err(|_| "record has no uid")?;
        let end = HEADER + usize::from(u16::from_be_bytes([value[21], value[22]]));
        if value.len() < end {
            return Err("record is cut off");
        }
        // A copy: the wrapped key outlives the value in the watch cache.
        let wrapped = Bytes::copy_from_slice(&value[HEADER..end]);
        value.advance(end); // Where it is the only owner, the body is opened in place.
        Ok(Self { uid, wrapped, body: value })
    }

    /// Opens the body of the record that was read at `path`.
    pub fn open(self, path: &[u8], key: &DataKey) -> Result<Record, Defect> {
        let cipher = key.cipher().map_err(|_| "cipher refused")?;
        let mut body = chunk::owned(self.body);
        let range = cipher
            .open(&associated(self.uid, path), &mut body)
            .map_err(|_| "record does not open under its key, uid and path")?;
        wire::decode(body.freeze().slice(range))
    }
}

impl Record {
    /// Seals the record for `path`.
    pub fn seal(&self, path: &[u8], uid: Uuid, cipher: &Cipher, wrapped: &[u8]) -> Result<Bytes, Refused> {
        let body = wire::encode(self);
        let wrapped_len = u16::try_from(wrapped.len()).map_err(|_| Refused)?;
        let clear = HEADER + wrapped.len();
        let mut value = Vec::with_capacity(clear + seal::NONCE + body.len() + seal::TAG);
        value.extend_from_slice(MAGIC);
        value.push(FORMAT);
        value.extend_from_slice(uid.as_bytes());
        value.extend_from_slice(&wrapped_len.to_be_bytes());
        value.extend_from_slice(wrapped);
        value.extend_from_slice(&[0; seal::NONCE]);
        value.extend_from_slice(&body);
        cipher.seal(clear, &associated(uid, path), &mut value)?;
        Ok(value.into())
    }
}

impl Opened {
    /// The same with nothing large kept: what the watch cache holds on to.
    pub fn slim(&self) -> Self {
        let payload = match &self.payload {
            Payload::Inline(packed) if packed.data.len() > MAX_KEPT_INLINE => Payload::InRecord,
            Payload::Inline(packed) => Payload::Inline(Packed {
                // A copy: the slice at hand holds on to the whole record.
                data: Bytes::copy_from_slice(&packed.data),
                ..*packed
            }),
            Payload::InRecord => Payload::InRecord,
            Payload::Chunks(chunks) => Payload::Chunks(chunks.clone()),
        };
        Self { key: self.key.clone(), wrapped: self.wrapped.clone(), token: self.token, payload }
    }
}

/// Unambiguous: everything before the path has a fixed length.
fn associated(uid: Uuid, path: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(2 + 16 + path.len());
    bytes.extend_from_slice(&[b'r', FORMAT]);
    bytes.extend_from_slice(uid.as_bytes());
    bytes.extend_from_slice(path);
    bytes
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
