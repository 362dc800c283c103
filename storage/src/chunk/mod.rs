//! A chunk: a piece of the payload of one object, sealed under a name that is never used twice.
//!
//! ```text
//! format (1) ++ flags (1)                            clear
//! ++ nonce (12) ++ AES-256-GCM of piece ++ tag (16)  sealed
//! ```
//!
//! The associated data is format, flags, uid and name. The name is `keyed hash of the plaintext (16) ++ number of the write
//! intent (8) ++ number of the write under that intent (4)`: the hash lets a later write of the same object find that a
//! piece is there already, the rest makes the name fresh, so that a name is put once and means one thing for ever.

use bytes::{Buf, Bytes, BytesMut};
use uuid::Uuid;

use crate::{
    compress::{self, Worth},
    seal::{self, Cipher, Defect, Refused},
};

mod split;
pub(crate) use split::{INLINE_LIMIT, MAX_CHUNK, split};

const FORMAT: u8 = 1;
const HEADER: usize = 2;
const ZSTD: u8 = 1;
/// Bytes of a name.
pub(crate) const ID: usize = 28;

/// The name of a chunk.
pub(crate) type Id = [u8; ID];
/// The part of a name that tells the content.
pub(crate) type Hash = [u8; 16];

/// A chunk as the chunk map names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkRef {
    /// Name under which the chunk is sealed, never used twice.
    pub id: Id,
    /// Length of the plaintext, in bytes.
    pub len: u32,
}

impl ChunkRef {
    /// What tells that two chunks of one object hold the same bytes.
    pub fn content(&self) -> (Hash, u32) {
        let mut hash = [0; 16];
        hash.copy_from_slice(&self.id[..16]);
        (hash, self.len)
    }
}

/// Makes a name.
pub(crate) fn name(hash: Hash, intent: u64, write: u32) -> Id {
    let mut id = [0; ID];
    id[..16].copy_from_slice(&hash);
    id[16..24].copy_from_slice(&intent.to_be_bytes());
    id[24..].copy_from_slice(&write.to_be_bytes());
    id
}

/// The number of the intent under which a chunk of this name was written.
pub(crate) fn intent_of(id: &Id) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&id[16..24]);
    u64::from_be_bytes(number)
}

/// Hashes a piece for its name.
pub(crate) fn hash(key: &[u8; 32], piece: &[u8]) -> Hash {
    let mut hash = [0; 16];
    hash.copy_from_slice(&blake3::keyed_hash(key, piece).as_bytes()[..16]);
    hash
}

/// Seals a piece under its name.
pub(crate) fn seal(
    cipher: &Cipher,
    uid: Uuid,
    id: &Id,
    plain: &[u8],
    worth: Worth,
) -> Result<Bytes, Refused> {
    // A value takes no more than it needs: many of them wait in queues.
    let mut value = vec![FORMAT, 0];
    value.resize(HEADER + seal::NONCE, 0);
    value[1] = if compress::append(&mut value, plain, worth, seal::TAG) { ZSTD } else { 0 };
    let associated = associated([value[0], value[1]], uid, id);
    cipher.seal(HEADER, &associated, &mut value)?;
    Ok(value.into())
}

/// Seals bytes as they are, whatever the flags say of them.
#[cfg(feature = "fuzzing")]
pub(crate) fn sealed_raw(
    cipher: &Cipher,
    uid: Uuid,
    id: &Id,
    flags: u8,
    content: &[u8],
) -> Result<Bytes, Refused> {
    let mut value = vec![FORMAT, flags];
    value.extend_from_slice(&[0; seal::NONCE]);
    value.extend_from_slice(content);
    cipher.seal(HEADER, &associated([FORMAT, flags], uid, id), &mut value)?;
    Ok(value.into())
}

/// Opens a chunk into a buffer of its own.
pub(crate) fn open(cipher: &Cipher, uid: Uuid, chunk: &ChunkRef, value: Bytes) -> Result<Bytes, Defect> {
    let (flags, text) = unseal(cipher, uid, &chunk.id, value)?;
    let len = chunk.len as usize;
    if flags & ZSTD != 0 {
        return compress::inflated(&text, len).map(Bytes::from).map_err(|_| "a chunk does not inflate");
    }
    if text.len() == len { Ok(text) } else { Err("a chunk has the wrong length") }
}

/// Opens a chunk into `room`, which has exactly its length.
pub(crate) fn open_into(
    cipher: &Cipher,
    uid: Uuid,
    chunk: &ChunkRef,
    value: Bytes,
    room: &mut [u8],
) -> Result<(), Defect> {
    let (flags, text) = unseal(cipher, uid, &chunk.id, value)?;
    if flags & ZSTD != 0 {
        return compress::inflate(&text, room).map_err(|_| "a chunk does not inflate");
    }
    if text.len() != room.len() {
        return Err("a chunk has the wrong length");
    }
    room.copy_from_slice(&text);
    Ok(())
}

fn unseal(cipher: &Cipher, uid: Uuid, id: &Id, mut value: Bytes) -> Result<(u8, Bytes), Defect> {
    let header = *value.first_chunk::<HEADER>().ok_or("a chunk has no header")?;
    if header[0] != FORMAT || header[1] & !ZSTD != 0 {
        return Err("a chunk is of an unknown format");
    }
    value.advance(HEADER); // Not a slice beside it: the value has to stay the only owner to be opened in place.
    let mut sealed = owned(value);
    let range = cipher
        .open(&associated(header, uid, id), &mut sealed)
        .map_err(|_| "a chunk does not open under its key, uid and name")?;
    Ok((header[1], sealed.freeze().slice(range)))
}

/// All of fixed length, hence unambiguous.
fn associated(header: [u8; HEADER], uid: Uuid, id: &Id) -> [u8; 1 + HEADER + 16 + ID] {
    let mut bytes = [0; 1 + HEADER + 16 + ID];
    bytes[0] = b'c';
    bytes[1..3].copy_from_slice(&header);
    bytes[3..19].copy_from_slice(uid.as_bytes());
    bytes[19..].copy_from_slice(id);
    bytes
}

/// A buffer that may be written to; a copy only where somebody else holds the bytes too.
pub(crate) fn owned(bytes: Bytes) -> BytesMut {
    bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
