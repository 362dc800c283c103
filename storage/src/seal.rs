//! Sealing: AES-256-GCM under keys that are derived from the data key of one object.
//!
//! Layout of everything sealed: `nonce (12 bytes) ++ ciphertext ++ tag (16 bytes)`. Nonces are random; one object would
//! have to be written some 2^32 times before that matters.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use zeroize::Zeroizing;

/// Bytes of a nonce.
pub(crate) const NONCE: usize = 12;
/// Bytes of a tag.
pub(crate) const TAG: usize = 16;

/// The cipher refused: wrong key, altered bytes, or other associated data than at sealing. It never says which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused;

/// What is wrong with a record or a chunk. Says nothing of what is in it.
pub(crate) type Defect = &'static str;

/// The random key of one object. Wiped from memory when dropped, never shown.
pub(crate) struct DataKey(Zeroizing<[u8; 32]>);

impl DataKey {
    /// A fresh random key.
    pub(crate) fn random() -> Result<Self, Refused> {
        let mut bytes = Zeroizing::new([0; 32]);
        aws_lc_rs::rand::fill(bytes.as_mut()).map_err(|_| Refused)?;
        Ok(Self(bytes))
    }

    /// A key from its bytes; there must be 32.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, Refused> {
        Ok(Self(Zeroizing::new(bytes.try_into().map_err(|_| Refused)?)))
    }

    /// The bytes, to be wrapped.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_ref()
    }

    /// The key that seals this object's record and chunks.
    pub(crate) fn cipher(&self) -> Result<Cipher, Refused> {
        let key = self.derive("repot storage v1: seal records and chunks");
        RandomizedNonceKey::new(&AES_256_GCM, key.as_ref()).map(Cipher).map_err(|_| Refused)
    }

    /// The key that seals the frames of a stream.
    pub(crate) fn streaming(&self) -> Result<Cipher, Refused> {
        let key = self.derive("repot storage v1: seal streams");
        RandomizedNonceKey::new(&AES_256_GCM, key.as_ref()).map(Cipher).map_err(|_| Refused)
    }

    /// The key of the hash that names chunks by content. Nobody without it can tell whether two chunks are equal.
    pub(crate) fn naming(&self) -> Zeroizing<[u8; 32]> {
        self.derive("repot storage v1: name chunks")
    }

    /// The key that decides where a payload is cut, so that the lengths of chunks tell little about what is in them.
    pub(crate) fn cutting(&self) -> Zeroizing<[u8; 32]> {
        self.derive("repot storage v1: cut payloads")
    }

    fn derive(&self, purpose: &'static str) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(blake3::derive_key(purpose, self.0.as_ref()))
    }
}

impl Clone for DataKey {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataKey")
    }
}

/// A key that is ready to seal and open.
#[derive(Debug)]
pub(crate) struct Cipher(RandomizedNonceKey);

impl Cipher {
    /// Seals, in place, everything in `buffer` after its first `clear` bytes, which must be followed by [`NONCE`] bytes
    /// of room for the nonce and then the plaintext. Appends the tag.
    pub(crate) fn seal(&self, clear: usize, associated: &[u8], buffer: &mut Vec<u8>) -> Result<(), Refused> {
        let text = buffer.get_mut(clear + NONCE..).ok_or(Refused)?;
        let (nonce, tag) =
            self.0.seal_in_place_separate_tag(Aad::from(associated), text).map_err(|_| Refused)?;
        buffer[clear..clear + NONCE].copy_from_slice(nonce.as_ref());
        buffer.extend_from_slice(tag.as_ref());
        Ok(())
    }

    /// Opens what [`Cipher::seal`] made, given without its clear part, in place. The plaintext lies in the range that
    /// is returned.
    pub(crate) fn open(
        &self,
        associated: &[u8],
        sealed: &mut [u8],
    ) -> Result<std::ops::Range<usize>, Refused> {
        let (nonce, text) = sealed.split_at_mut_checked(NONCE).ok_or(Refused)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| Refused)?;
        let plain = self.0.open_in_place(nonce, Aad::from(associated), text).map_err(|_| Refused)?;
        Ok(NONCE..NONCE + plain.len())
    }
}

/// Random bytes for names and tokens.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Refused> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| Refused)?;
    Ok(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn sealed(key: &DataKey, associated: &[u8], text: &[u8]) -> Vec<u8> {
        let mut buffer = vec![0; NONCE];
        buffer.extend_from_slice(text);
        key.cipher().unwrap().seal(0, associated, &mut buffer).unwrap();
        buffer
    }

    #[test]
    fn opens_what_it_sealed_and_nothing_else() {
        let key = DataKey::random().unwrap();
        let cipher = key.cipher().unwrap();
        let good = sealed(&key, b"here", b"secret words");
        let mut copy = good.clone();
        let range = cipher.open(b"here", &mut copy).unwrap();
        assert_eq!(&copy[range], b"secret words");
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert_eq!(cipher.open(b"here", &mut bad), Err(Refused), "byte {at}");
        }
        assert_eq!(cipher.open(b"there", &mut good.clone()), Err(Refused));
        assert_eq!(cipher.open(b"here", &mut good[..good.len() - 1].to_vec()), Err(Refused));
        assert_eq!(cipher.open(b"here", &mut [0; 5]), Err(Refused));
        let other = DataKey::random().unwrap().cipher().unwrap();
        assert_eq!(other.open(b"here", &mut good.clone()), Err(Refused));
    }

    #[test]
    fn takes_no_nonce_twice() {
        let key = DataKey::random().unwrap();
        let mut nonces = std::collections::HashSet::new();
        assert!((0..200).all(|_| nonces.insert(sealed(&key, b"here", b"the same")[..NONCE].to_vec())));
    }

    #[test]
    fn never_shows_a_key() {
        let key = DataKey::from_bytes(&[0x41; 32]).unwrap();
        let shown = format!("{key:?} {:?}", key.cipher().unwrap());
        assert!(!shown.contains("AAAA") && !shown.contains("65, 65"), "{shown}");
    }

    #[test]
    fn derives_keys_that_differ_by_purpose() {
        let key = DataKey::from_bytes(&[7; 32]).unwrap();
        assert_ne!(key.naming(), key.cutting());
        assert_ne!(&key.naming()[..], key.bytes());
        assert!(DataKey::from_bytes(&[7; 31]).is_err());
    }
}
