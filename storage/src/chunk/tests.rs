use super::*;
use crate::seal::DataKey;

const UID: Uuid = Uuid::from_u128(42);

fn mk_chunk(key: &DataKey, id: Id, plain: &[u8]) -> (ChunkRef, Bytes) {
    let value = seal(&key.cipher().unwrap(), UID, &id, plain, Worth::Tenth).unwrap();
    (ChunkRef { id, len: plain.len() as u32 }, value)
}

/// A copy, as a backend gives: opening in place must not change what the test holds.
fn copy(value: &Bytes) -> Bytes {
    Bytes::copy_from_slice(value)
}

#[test]
fn opens_only_as_what_it_was_sealed_as() {
    let key = DataKey::random().unwrap();
    let cipher = key.cipher().unwrap();
    let id = name([7; 16], 1, 2);
    for plain in [&b"short and plain"[..], &[b'a'; 5000], b""] {
        let (chunk, value) = mk_chunk(&key, id, plain);
        assert_eq!(open(&cipher, UID, &chunk, copy(&value)).unwrap(), plain);
        let mut room = vec![0; plain.len()];
        open_into(&cipher, UID, &chunk, copy(&value), &mut room).unwrap();
        assert_eq!(room, plain);
        let elsewhere = ChunkRef { id: name([7; 16], 1, 3), ..chunk };
        assert!(open(&cipher, UID, &elsewhere, copy(&value)).is_err());
        assert!(open(&cipher, Uuid::nil(), &chunk, copy(&value)).is_err());
        for len in [chunk.len + 1, chunk.len.wrapping_sub(1) & 0xffff] {
            let other = ChunkRef { len, ..chunk };
            assert!(open(&cipher, UID, &other, copy(&value)).is_err(), "length {len}");
            assert!(open_into(&cipher, UID, &other, copy(&value), &mut vec![0; len as usize]).is_err());
        }
    }
}

#[test]
fn every_altered_byte_is_noticed() {
    let key = DataKey::random().unwrap();
    let cipher = key.cipher().unwrap();
    for plain in [vec![b'x'; 3000], blake3::hash(b"noise").as_bytes().to_vec()] {
        let (chunk, value) = mk_chunk(&key, name([1; 16], 1, 1), &plain);
        for at in 0..value.len() {
            for bit in 0..8 {
                let mut bad = value.to_vec();
                bad[at] ^= 1 << bit;
                assert!(open(&cipher, UID, &chunk, bad.into()).is_err(), "byte {at} bit {bit}");
            }
        }
        for len in 0..value.len() {
            assert!(open(&cipher, UID, &chunk, value.slice(..len)).is_err(), "cut to {len}");
        }
    }
}

#[test]
fn names_tell_content_only_to_who_has_the_key() {
    assert_eq!(hash(&[1; 32], b"one piece"), hash(&[1; 32], b"one piece"));
    assert_ne!(hash(&[1; 32], b"one piece"), hash(&[1; 32], b"a piece"));
    assert_ne!(hash(&[1; 32], b"one piece"), hash(&[2; 32], b"one piece"));
    assert_eq!(intent_of(&name([0; 16], u64::MAX - 1, 7)), u64::MAX - 1);
    let chunk = ChunkRef { id: name([5; 16], 1, 1), len: 3 };
    assert_eq!(chunk.content(), ([5; 16], 3));
}
