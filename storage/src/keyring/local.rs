//! Wrapping by keys that stand in the configuration itself.
//!
//! What is wrapped is bound to the path of its object by all of them: AES-GCM by its associated data; secretbox, which has
//! none, by a hash of the path inside; AES-CBC, which authenticates nothing, by a code over path and ciphertext that is checked
//! before anything is decrypted, so that no answer tells an attacker about the padding.

use aws_lc_rs::{
    aead::{AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey},
    cipher::{
        AES_128, AES_192, AES_256, DecryptionContext, PaddedBlockDecryptingKey, PaddedBlockEncryptingKey,
        UnboundCipherKey,
    },
    constant_time, hmac,
    iv::FixedLength,
};
use crypto_secretbox::{AeadInPlace, KeyInit, XSalsa20Poly1305};
use zeroize::Zeroizing;

use crate::seal::{self, DataKey};

const AESGCM_NONCE: usize = 12;
const SECRETBOX_NONCE: usize = 24;
const CBC_IV: usize = 16;
const PLACE: usize = 32;
const CODE: usize = 32;

/// Wraps and unwraps data keys for the object at a path.
pub(super) trait Wrap {
    /// `None`: the cipher refused.
    fn wrap(&self, path: &[u8], key: &DataKey) -> Option<Vec<u8>>;
    /// `None`: not wrapped by this key for this path. It never says which.
    fn unwrap(&self, path: &[u8], wrapped: &[u8]) -> Option<DataKey>;
}

/// A key of `aesgcm`.
pub(super) struct AesGcm(LessSafeKey);

/// A key of `secretbox`.
pub(super) struct SecretBox(XSalsa20Poly1305);

/// A key of `aescbc`, and the one derived from it that authenticates.
pub(super) struct AesCbc {
    encrypt: PaddedBlockEncryptingKey,
    decrypt: PaddedBlockDecryptingKey,
    authenticate: hmac::Key,
}

impl AesGcm {
    /// A key of 16, 24 or 32 bytes.
    pub(super) fn new(secret: &[u8]) -> Option<Self> {
        let algorithm = match secret.len() {
            16 => &AES_128_GCM,
            24 => &AES_192_GCM,
            32 => &AES_256_GCM,
            _ => return None,
        };
        UnboundKey::new(algorithm, secret).ok().map(LessSafeKey::new).map(Self)
    }
}

impl Wrap for AesGcm {
    fn wrap(&self, path: &[u8], key: &DataKey) -> Option<Vec<u8>> {
        let nonce: [u8; AESGCM_NONCE] = seal::random().ok()?;
        let mut text = Zeroizing::new([0; 32]);
        text.copy_from_slice(key.bytes());
        let at = Nonce::assume_unique_for_key(nonce);
        let tag = self.0.seal_in_place_separate_tag(at, Aad::from(path), text.as_mut()).ok()?;
        Some([&nonce, text.as_ref(), tag.as_ref()].concat())
    }

    fn unwrap(&self, path: &[u8], wrapped: &[u8]) -> Option<DataKey> {
        let (nonce, text) = wrapped.split_at_checked(AESGCM_NONCE)?;
        let mut text = Zeroizing::new(text.to_vec());
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let plain = self.0.open_in_place(nonce, Aad::from(path), &mut text).ok()?;
        DataKey::from_bytes(plain).ok()
    }
}

impl SecretBox {
    /// A key of 32 bytes.
    pub(super) fn new(secret: &[u8]) -> Option<Self> {
        XSalsa20Poly1305::new_from_slice(secret).ok().map(Self)
    }
}

impl Wrap for SecretBox {
    fn wrap(&self, path: &[u8], key: &DataKey) -> Option<Vec<u8>> {
        let nonce: [u8; SECRETBOX_NONCE] = seal::random().ok()?;
        let mut text = Zeroizing::new([key.bytes(), &place(path)].concat());
        let tag = self.0.encrypt_in_place_detached(&nonce.into(), &[], text.as_mut()).ok()?;
        // The order of NaCl's secretbox: nonce, tag, ciphertext.
        Some([&nonce, tag.as_slice(), text.as_ref()].concat())
    }

    fn unwrap(&self, path: &[u8], wrapped: &[u8]) -> Option<DataKey> {
        let nonce: [u8; SECRETBOX_NONCE] = *wrapped.first_chunk()?;
        let (tag, text) = wrapped[SECRETBOX_NONCE..].split_at_checked(seal::TAG)?;
        let tag: [u8; seal::TAG] = tag.try_into().ok()?;
        let mut text = Zeroizing::new(text.to_vec());
        self.0.decrypt_in_place_detached(&nonce.into(), &[], &mut text, &tag.into()).ok()?;
        let (key, bound) = text.split_at_checked(text.len().checked_sub(PLACE)?)?;
        constant_time::verify_slices_are_equal(bound, &place(path)).ok()?;
        DataKey::from_bytes(key).ok()
    }
}

/// A hash of the path, kept beside a wrapped key where the cipher has no associated data.
fn place(path: &[u8]) -> [u8; PLACE] {
    blake3::derive_key("repot storage v1: place of a wrapped key", path)
}

impl AesCbc {
    /// A key of 16, 24 or 32 bytes.
    pub(super) fn new(secret: &[u8]) -> Option<Self> {
        let algorithm = match secret.len() {
            16 => &AES_128,
            24 => &AES_192,
            32 => &AES_256,
            _ => return None,
        };
        let key = || UnboundCipherKey::new(algorithm, secret).ok();
        let derived =
            Zeroizing::new(blake3::derive_key("repot storage v1: authenticate what aescbc wraps", secret));
        Some(Self {
            encrypt: PaddedBlockEncryptingKey::cbc_pkcs7(key()?).ok()?,
            decrypt: PaddedBlockDecryptingKey::cbc_pkcs7(key()?).ok()?,
            authenticate: hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()),
        })
    }

    /// The length is part of it, so that no byte can pass from the path to the ciphertext.
    fn authenticated(path: &[u8], text: &[u8]) -> Vec<u8> {
        [&(path.len() as u64).to_be_bytes(), path, text].concat()
    }
}

impl Wrap for AesCbc {
    fn wrap(&self, path: &[u8], key: &DataKey) -> Option<Vec<u8>> {
        let mut text = key.bytes().to_vec();
        let context = self.encrypt.encrypt(&mut text).ok()?;
        let DecryptionContext::Iv128(iv) = &context else { return None };
        let mut wrapped = [iv.as_ref().as_slice(), &text].concat();
        let code = hmac::sign(&self.authenticate, &Self::authenticated(path, &wrapped));
        wrapped.extend_from_slice(code.as_ref());
        Some(wrapped)
    }

    fn unwrap(&self, path: &[u8], wrapped: &[u8]) -> Option<DataKey> {
        let (text, code) = wrapped.split_at_checked(wrapped.len().checked_sub(CODE)?)?;
        hmac::verify(&self.authenticate, &Self::authenticated(path, text), code).ok()?;
        let (iv, text) = text.split_first_chunk::<CBC_IV>()?;
        let mut text = Zeroizing::new(text.to_vec());
        let context = DecryptionContext::Iv128(FixedLength::from(iv));
        DataKey::from_bytes(self.decrypt.decrypt(&mut text, context).ok()?).ok()
    }
}
