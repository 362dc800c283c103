//! Ways to wrap a data key. A new one is a variant here and an arm in `config`.

use aws_lc_rs::aead::{AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use bytes::Bytes;
use crypto_secretbox::{AeadInPlace, KeyInit, XSalsa20Poly1305};
use zeroize::Zeroizing;

use super::Error;
use crate::seal::{self, DataKey};

const ANY: &[u8] = b"k8s:enc:";
const AESGCM_NONCE: usize = 12;
const SECRETBOX_NONCE: usize = 24;

/// A way to wrap a data key.
pub(super) enum Provider {
    /// AES-GCM bound to the path of the object. Nonces are random: change the key before some 2^32 objects are created.
    AesGcm(Vec<Named<LessSafeKey>>),
    /// XSalsa20 and Poly1305. Not bound to the path; the record is, so a moved one does not open either.
    SecretBox(Vec<Named<XSalsa20Poly1305>>),
    /// No wrapping.
    Identity,
}

/// A key and the prefix that is written before what it wraps.
pub(super) struct Named<K> {
    prefix: Vec<u8>,
    key: K,
}

/// What came of the try to unwrap.
pub(super) enum Tried {
    /// Unwrapped, by the provider's first key or another.
    Opened { key: DataKey, first: bool },
    /// There is a key of the right name, and it does not open this.
    Refused,
    /// Wrapped by something else.
    NotMine,
}

impl Provider {
    /// Wraps with the first key.
    #[expect(clippy::unused_async, reason = "a provider that asks a service has to wait")]
    pub(super) async fn wrap(&self, path: &[u8], key: &DataKey) -> Result<Bytes, Error> {
        let wrapped = match self {
            Self::AesGcm(keys) => keys.first().and_then(|named| seal_aesgcm(named, path, key)),
            Self::SecretBox(keys) => keys.first().and_then(|named| seal_secretbox(named, key)),
            Self::Identity => Some(key.bytes().to_vec()),
        };
        wrapped.map(Bytes::from).ok_or(Error::Cipher)
    }

    /// Unwraps with whichever key has the right name.
    #[expect(clippy::unused_async, reason = "a provider that asks a service has to wait")]
    pub(super) async fn unwrap(&self, path: &[u8], wrapped: &[u8]) -> Tried {
        match self {
            Self::AesGcm(keys) => try_keys(keys, wrapped, |key, sealed| open_aesgcm(key, path, sealed)),
            Self::SecretBox(keys) => try_keys(keys, wrapped, open_secretbox),
            Self::Identity if wrapped.starts_with(ANY) => Tried::NotMine,
            Self::Identity => {
                DataKey::from_bytes(wrapped).map_or(Tried::Refused, |key| Tried::Opened { key, first: true })
            }
        }
    }
}

impl Named<LessSafeKey> {
    /// A key of 16, 24 or 32 bytes.
    pub(super) fn aesgcm(name: &str, secret: &[u8]) -> Option<Self> {
        let algorithm = match secret.len() {
            16 => &AES_128_GCM,
            24 => &AES_192_GCM,
            32 => &AES_256_GCM,
            _ => return None,
        };
        let key = LessSafeKey::new(UnboundKey::new(algorithm, secret).ok()?);
        Some(Self { prefix: format!("k8s:enc:aesgcm:v1:{name}:").into_bytes(), key })
    }
}

impl Named<XSalsa20Poly1305> {
    /// A key of 32 bytes.
    pub(super) fn secretbox(name: &str, secret: &[u8]) -> Option<Self> {
        let key = XSalsa20Poly1305::new_from_slice(secret).ok()?;
        Some(Self { prefix: format!("k8s:enc:secretbox:v1:{name}:").into_bytes(), key })
    }
}

fn try_keys<K>(keys: &[Named<K>], wrapped: &[u8], open: impl Fn(&K, &[u8]) -> Option<DataKey>) -> Tried {
    for (index, named) in keys.iter().enumerate() {
        if let Some(sealed) = wrapped.strip_prefix(named.prefix.as_slice()) {
            let opened = open(&named.key, sealed);
            return opened.map_or(Tried::Refused, |key| Tried::Opened { key, first: index == 0 });
        }
    }
    Tried::NotMine
}

fn seal_aesgcm(named: &Named<LessSafeKey>, path: &[u8], key: &DataKey) -> Option<Vec<u8>> {
    let nonce: [u8; AESGCM_NONCE] = seal::random().ok()?;
    let mut text = Zeroizing::new([0; 32]);
    text.copy_from_slice(key.bytes());
    let tag = named
        .key
        .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(path), text.as_mut())
        .ok()?;
    Some([&named.prefix[..], &nonce, text.as_ref(), tag.as_ref()].concat())
}

fn open_aesgcm(key: &LessSafeKey, path: &[u8], sealed: &[u8]) -> Option<DataKey> {
    let (nonce, text) = sealed.split_at_checked(AESGCM_NONCE)?;
    let mut text = Zeroizing::new(text.to_vec());
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
    let plain = key.open_in_place(nonce, Aad::from(path), &mut text).ok()?;
    DataKey::from_bytes(plain).ok()
}

fn seal_secretbox(named: &Named<XSalsa20Poly1305>, key: &DataKey) -> Option<Vec<u8>> {
    let nonce: [u8; SECRETBOX_NONCE] = seal::random().ok()?;
    let mut text = Zeroizing::new([0; 32]);
    text.copy_from_slice(key.bytes());
    let tag = named.key.encrypt_in_place_detached(&nonce.into(), &[], text.as_mut()).ok()?;
    // The order of NaCl's secretbox: nonce, tag, ciphertext.
    Some([&named.prefix[..], &nonce, tag.as_slice(), text.as_ref()].concat())
}

fn open_secretbox(key: &XSalsa20Poly1305, sealed: &[u8]) -> Option<DataKey> {
    let nonce: [u8; SECRETBOX_NONCE] = *sealed.first_chunk()?;
    let (tag, text) = sealed[SECRETBOX_NONCE..].split_at_checked(seal::TAG)?;
    let tag: [u8; seal::TAG] = tag.try_into().ok()?;
    let mut text = Zeroizing::new(text.to_vec());
    key.decrypt_in_place_detached(&nonce.into(), &[], &mut text, &tag.into()).ok()?;
    DataKey::from_bytes(&text).ok()
}
