//! What stands where a value was.

use bytes::Bytes;
use uuid::Uuid;

use super::KeyValue;

const MAGIC: &[u8; 4] = b"RPTR";
const FORMAT: u8 = 1;
const LEN: usize = 4 + 1 + 16 + 8;

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pointer {
    /// Name of the object.
    pub name: Uuid,
    /// Length of the object, in bytes.
    pub len: u64,
}

/// Whether a value could be taken for a pointer, so that it has to be behind one whatever its size.
pub(crate) fn is_like(value: &[u8]) -> bool {
    value.starts_with(MAGIC)
}

impl Pointer {
    /// The stored form, which [`Pointer::read`] reads.
    pub fn bytes(self) -> Bytes {
        [&MAGIC[..], &[FORMAT], self.name.as_bytes(), &self.len.to_be_bytes()].concat().into()
    }

    /// What rests, where that is a pointer.
    pub fn read(value: &[u8]) -> Option<Self> {
        if value.len() != LEN || !is_like(value) || value[4] != FORMAT {
            return None;
        }
        let name = Uuid::from_slice(&value[5..21]).ok()?;
        Some(Self { name, len: u64::from_be_bytes(*value[21..].first_chunk()?) })
    }
}

/// How many of these values fill a page of `most` bytes, with what their pointers stand for; `None` where there is no limit.
pub(super) fn filled(kvs: &[KeyValue], most: usize, moves: impl Fn(&[u8]) -> bool) -> Option<usize> {
    let mut bytes = 0;
    let whole = kvs.iter().position(|kv| {
        let pointer = Pointer::read(&kv.value).filter(|_| moves(&kv.key));
        bytes += pointer.map_or(kv.value.len() as u64, |pointer| pointer.len);
        bytes >= most as u64
    });
    (most > 0).then(|| whole.map_or(kvs.len(), |last| last + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_come_back_and_nothing_else_is_one() {
        let pointer = Pointer { name: Uuid::from_u128(0xfeed), len: 262_144 };
        let bytes = pointer.bytes();
        assert_eq!(Pointer::read(&bytes), Some(pointer));
        assert!(is_like(&bytes));
        for other in [&bytes[1..], &bytes[..LEN - 1], b"", b"RPTR"] {
            assert_eq!(Pointer::read(other), None);
        }
        let newer = [b"RPTR\x02", &bytes[5..]].concat();
        assert_eq!(Pointer::read(&newer), None);
    }
}
