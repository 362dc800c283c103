//! What a key management service wraps, in the form in which kube-apiserver keeps it: protobuf `EncryptedObject`, with a data key
//! in the place of the data.

use std::collections::BTreeMap;

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey},
    hkdf::{HKDF_SHA256, Prk},
};
use bytes::Bytes;
use prost::Message;
use zeroize::Zeroizing;

use crate::seal::{self, DataKey};

/// Bytes of an id of a key.
pub(super) const MAX_KEY_ID: usize = 1 << 10;
/// Bytes of an encrypted seed.
const MAX_SOURCE: usize = 1 << 10;
/// Bytes of all annotations.
const MAX_ANNOTATIONS: usize = 32 << 10;
/// `encryptedDEKSourceType` of what is derived from a seed; nothing else is written here.
const FROM_SEED: i32 = 1;
/// Random bytes before the nonce, from which and the seed a key is derived that is used once.
const INFO: usize = 32;
const NONCE: usize = 12;

/// A wrapped data key as it rests, after the prefix of the provider.
#[derive(Clone, PartialEq, Message)]
pub(super) struct EncryptedObject {
    #[prost(bytes = "vec", tag = "1")]
    encrypted_data: Vec<u8>,
    #[prost(string, tag = "2")]
    key_id: String,
    #[prost(bytes = "bytes", tag = "3")]
    encrypted_dek_source: Bytes,
    #[prost(btree_map = "string, bytes", tag = "4")]
    annotations: BTreeMap<String, Vec<u8>>,
    #[prost(int32, tag = "5")]
    encrypted_dek_source_type: i32,
}

/// An encrypted seed and all that the service needs to decrypt it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Source {
    /// The key of the service that encrypted it.
    pub key_id: String,
    /// The seed as the service encrypted it.
    pub encrypted: Bytes,
    /// What the service wants to see again.
    pub annotations: BTreeMap<String, Vec<u8>>,
}

/// Names a [`Source`].
pub(super) type Digest = [u8; 32];

/// A random seed. Wiped from memory when dropped, never shown.
pub(super) struct Seed(Zeroizing<[u8; 32]>);

impl Source {
    /// Whether a service may answer with this; if not, what is wrong.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        check_key_id(&self.key_id)?;
        match self.encrypted.len() {
            0 => return Err("the ciphertext is empty"),
            1..=MAX_SOURCE => {}
            _ => return Err("the ciphertext has more than 1024 bytes"),
        }
        if !self.annotations.keys().all(|name| is_domain(name)) {
            return Err("a name of an annotation is no fully qualified domain name");
        }
        let bytes: usize = self.annotations.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > MAX_ANNOTATIONS { Err("the annotations have more than 32768 bytes") } else { Ok(()) }
    }

    /// A name for caches.
    pub(super) fn digest(&self) -> Digest {
        let mut hash = blake3::Hasher::new();
        let mut part = |bytes: &[u8]| {
            hash.update(&(bytes.len() as u64).to_be_bytes()).update(bytes);
        };
        part(self.key_id.as_bytes());
        part(&self.encrypted);
        for (name, value) in &self.annotations {
            part(name.as_bytes());
            part(value);
        }
        *hash.finalize().as_bytes()
    }

    /// A wrapped data key with this source.
    pub(super) fn encode(&self, encrypted_data: Vec<u8>) -> Vec<u8> {
        let object = EncryptedObject {
            encrypted_data,
            key_id: self.key_id.clone(),
            encrypted_dek_source: self.encrypted.clone(),
            annotations: self.annotations.clone(),
            encrypted_dek_source_type: FROM_SEED,
        };
        object.encode_to_vec()
    }

    /// The parts of a wrapped data key; `None` where it is not one.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, Vec<u8>)> {
        let object = EncryptedObject::decode(bytes).ok()?;
        let (key_id, encrypted) = (object.key_id, object.encrypted_dek_source);
        let source = Self { key_id, encrypted, annotations: object.annotations };
        source.check().ok()?;
        (object.encrypted_dek_source_type == FROM_SEED).then_some((source, object.encrypted_data))
    }
}

/// Whether a service may name a key so.
pub(super) fn check_key_id(id: &str) -> Result<(), &'static str> {
    match id.len() {
        0 => Err("the id of the key is empty"),
        1..=MAX_KEY_ID => Ok(()),
        _ => Err("the id of the key has more than 1024 bytes"),
    }
}

/// Two labels or more, as DNS has them.
fn is_domain(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let label = |label: &str| match label.as_bytes() {
        [] => false,
        bytes @ [first, .., last] => {
            bytes.len() <= 63
                && inner(*first)
                && inner(*last)
                && bytes.iter().all(|c| inner(*c) || *c == b'-')
        }
        [only] => inner(*only),
    };
    name.len() <= 253 && name.contains('.') && name.split('.').all(label)
}

/// A hash of an id, to be shown instead of it.
pub(super) fn hash(id: &str) -> String {
    super::super::file::hash(id)
}

impl Seed {
    /// A fresh one.
    pub(super) fn random() -> Option<Self> {
        let mut bytes = Zeroizing::new([0; 32]);
        aws_lc_rs::rand::fill(bytes.as_mut()).ok()?;
        Some(Self(bytes))
    }

    /// From what a service decrypted.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(Self(Zeroizing::new(bytes.try_into().ok()?)))
    }

    /// To be encrypted by a service.
    pub(super) fn bytes(&self) -> &[u8] {
        self.0.as_ref()
    }

    /// Wraps a data key for the object at `path`.
    pub(super) fn seal(&self, path: &[u8], key: &DataKey) -> Option<Vec<u8>> {
        let (info, nonce): ([u8; INFO], [u8; NONCE]) = (seal::random().ok()?, seal::random().ok()?);
        let mut text = Zeroizing::new([0; 32]);
        text.copy_from_slice(key.bytes());
        let at = Nonce::assume_unique_for_key(nonce);
        let tag = self.derive(&info)?.seal_in_place_separate_tag(at, Aad::from(path), text.as_mut()).ok()?;
        Some([&info[..], &nonce, text.as_ref(), tag.as_ref()].concat())
    }

    /// Unwraps what [`Seed::seal`] made for this path.
    pub(super) fn open(&self, path: &[u8], sealed: &[u8]) -> Option<DataKey> {
        let (info, rest) = sealed.split_at_checked(INFO)?;
        let (nonce, text) = rest.split_at_checked(NONCE)?;
        let mut text = Zeroizing::new(text.to_vec());
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let plain = self.derive(info)?.open_in_place(nonce, Aad::from(path), &mut text).ok()?;
        DataKey::from_bytes(plain).ok()
    }

    fn derive(&self, info: &[u8]) -> Option<LessSafeKey> {
        let mut key = Zeroizing::new([0; 32]);
        // The seed is the pseudo-random key of HKDF already: there is no step of extraction.
        Prk::new_less_safe(HKDF_SHA256, self.bytes())
            .expand(&[info], HKDF_SHA256)
            .and_then(|okm| okm.fill(key.as_mut()))
            .ok()?;
        UnboundKey::new(&AES_256_GCM, key.as_ref()).ok().map(LessSafeKey::new)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn mk_source() -> Source {
        let annotations = [("a.b".to_owned(), vec![1, 2])].into();
        Source { key_id: "key".into(), encrypted: Bytes::from_static(b"seed"), annotations }
    }

    #[test]
    fn opens_only_at_its_place_and_unaltered() {
        let (seed, key) = (Seed::random().unwrap(), DataKey::random().unwrap());
        let sealed = seed.seal(b"/a", &key).unwrap();
        assert_eq!(seed.open(b"/a", &sealed).unwrap().bytes(), key.bytes());
        assert!(seed.open(b"/b", &sealed).is_none());
        assert!(Seed::random().unwrap().open(b"/a", &sealed).is_none());
        for at in 0..sealed.len() {
            let mut bad = sealed.clone();
            bad[at] ^= 1;
            assert!(seed.open(b"/a", &bad).is_none(), "byte {at}");
        }
    }

    #[test]
    fn seals_under_another_key_each_time() {
        let (seed, key) = (Seed::random().unwrap(), DataKey::random().unwrap());
        let mut infos = std::collections::HashSet::new();
        assert!((0..200).all(|_| infos.insert(seed.seal(b"/a", &key).unwrap()[..INFO].to_vec())));
    }

    #[test]
    fn comes_back_as_it_was_encoded() {
        let bytes = mk_source().encode(vec![7; 9]);
        assert_eq!(Source::decode(&bytes), Some((mk_source(), vec![7; 9])));
        assert_eq!(Source::decode(&bytes[..bytes.len() - 2]), None, "without its type");
        assert_eq!(Source::decode(b"nonsense"), None);
    }

    #[test]
    fn holds_a_service_to_the_sizes_of_the_protocol() {
        let with = |change: fn(&mut Source)| {
            let mut source = mk_source();
            change(&mut source);
            source.check()
        };
        assert_eq!(with(|_| {}), Ok(()));
        assert_eq!(with(|s| s.key_id = "k".repeat(1024)), Ok(()));
        assert_eq!(with(|s| s.encrypted = vec![0; 1024].into()), Ok(()));
        assert!(with(|s| s.key_id = String::new()).is_err());
        assert!(with(|s| s.key_id = "k".repeat(1025)).is_err());
        assert!(with(|s| s.encrypted = Bytes::new()).is_err());
        assert!(with(|s| s.encrypted = vec![0; 1025].into()).is_err());
        assert_eq!(with(|s| s.annotations = [("a.b".into(), vec![0; 32_765])].into()), Ok(()));
        assert!(with(|s| s.annotations = [("a.b".into(), vec![0; 32_766])].into()).is_err());
        for (name, good) in [("a.b.", true), ("a", false), ("A.b", false), ("a..b", false), ("-a.b", false)] {
            let mut source = mk_source();
            source.annotations = [(name.to_owned(), Vec::new())].into();
            assert_eq!(source.check().is_ok(), good, "{name}");
        }
    }

    #[test]
    fn tells_sources_apart() {
        let mut other = mk_source();
        other.annotations.clear();
        assert_ne!(mk_source().digest(), other.digest());
        assert_eq!(mk_source().digest(), mk_source().digest());
    }
}
