//! The providers of an entry. A new one is a variant here and an arm in `config`.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU8, Ordering},
};

use bytes::Bytes;
use prometheus::IntCounter;

use super::{
    Error, Tried,
    kms::Kms,
    local::{AesCbc, AesGcm, SecretBox, Wrap},
};
use crate::seal::DataKey;

/// What every prefix of a provider begins with.
pub(super) const ANY: &[u8] = b"k8s:enc:";

/// A way to wrap a data key.
pub(super) enum Provider {
    /// AES-GCM. Nonces are random: a key has to be replaced before it has wrapped some 2^32 data keys ([`MOST_WRAPS`]).
    AesGcm(Keys<AesGcm>),
    /// XSalsa20 and Poly1305.
    SecretBox(Keys<SecretBox>),
    /// AES-CBC, for those who have it from former days.
    AesCbc(Keys<AesCbc>),
    /// A key management service.
    Kms(Arc<Kms>),
    /// No wrapping.
    Identity,
}

/// Keys of one provider; the first one wraps. There is at least one.
pub(super) struct Keys<K>(pub Vec<Named<K>>);

/// A key and the prefix that is written before what it wraps.
pub(super) struct Named<K> {
    prefix: Vec<u8>,
    key: K,
    trust: Trust,
    wraps: Wraps,
}

/// What a key of `aesgcm` may wrap at most: with random nonces of 96 bits, the chance that one is taken twice comes to 2^-32 there
/// (NIST SP 800-38D, section 8.3).
const MOST_WRAPS: u64 = 1 << 32;
/// From here on a server warns: at a constant rate, as much time is left as has passed.
const MANY_WRAPS: u64 = MOST_WRAPS / 2;

/// Counts what one key wraps in this process.
struct Wraps {
    count: IntCounter,
    warned: AtomicBool,
}

impl Wraps {
    fn new(count: IntCounter) -> Self {
        Self { count, warned: AtomicBool::new(false) }
    }

    /// Counts one. Whether there are many now, once.
    fn count(&self) -> bool {
        self.count.inc();
        self.count.get() >= MANY_WRAPS && !self.warned.swap(true, Ordering::Relaxed)
    }
}

/// Whether a key is the one that its name stands for: its first use decides. An operator who puts another secret under a name
/// that is in use makes every older object refuse to open. That must not be taken for damage of all of them, also not once new
/// objects open.
#[derive(Default)]
struct Trust(AtomicU8);

const UNTRIED: u8 = 0;
const TRUSTED: u8 = 1;
const DOUBTED: u8 = 2;

impl Trust {
    /// Notes what came of a use. Whether the key is known to be the right one.
    fn tried(&self, opened: bool) -> bool {
        let first = if opened { TRUSTED } else { DOUBTED };
        let set = self.0.compare_exchange(UNTRIED, first, Ordering::Relaxed, Ordering::Relaxed);
        set.map_or_else(|before| before, |_| first) == TRUSTED
    }
}

impl Provider {
    /// Wraps with the first key.
    pub(super) async fn wrap(&self, path: &[u8], key: &DataKey) -> Result<Bytes, Error> {
        let wrapped = match self {
            Self::AesGcm(keys) => {
                if keys.count() {
                    tracing::warn!(
                        key = keys.first_name(),
                        wraps = MANY_WRAPS,
                        most = MOST_WRAPS,
                        "a key of aesgcm has wrapped many data keys, and its nonces are random: replace it, or use secretbox or kms"
                    );
                }
                keys.wrap(path, key)
            }
            Self::SecretBox(keys) => {
                keys.count();
                keys.wrap(path, key)
            }
            Self::AesCbc(keys) => {
                keys.count();
                keys.wrap(path, key)
            }
            Self::Kms(kms) => return kms.wrap(path, key),
            Self::Identity => Some(key.bytes().to_vec()),
        };
        wrapped.map(Bytes::from).ok_or(Error::Cipher)
    }

    /// Unwraps with whichever key has the right name.
    pub(super) async fn unwrap(&self, path: &[u8], wrapped: &[u8]) -> Result<Tried, Error> {
        Ok(match self {
            Self::AesGcm(keys) => keys.unwrap(path, wrapped),
            Self::SecretBox(keys) => keys.unwrap(path, wrapped),
            Self::AesCbc(keys) => keys.unwrap(path, wrapped),
            Self::Kms(kms) => return kms.unwrap(path, wrapped).await,
            Self::Identity if wrapped.starts_with(ANY) => Tried::NotMine,
            Self::Identity => DataKey::from_bytes(wrapped).map_or(Tried::Refused, Tried::Opened),
        })
    }

    /// Whether the key that wraps now has wrapped this.
    pub(super) fn is_current(&self, wrapped: &[u8]) -> bool {
        match self {
            Self::AesGcm(keys) => keys.is_current(wrapped),
            Self::SecretBox(keys) => keys.is_current(wrapped),
            Self::AesCbc(keys) => keys.is_current(wrapped),
            Self::Kms(kms) => kms.is_current(wrapped),
            Self::Identity => !wrapped.starts_with(ANY),
        }
    }

    /// Whether anything may be written now; a service may have been silent for too long.
    pub(super) fn may_write(&self) -> Result<(), Error> {
        match self {
            Self::Kms(kms) => kms.writing().map(drop),
            Self::AesGcm(_) | Self::SecretBox(_) | Self::AesCbc(_) | Self::Identity => Ok(()),
        }
    }
}

impl<K> Named<K> {
    /// A key of a provider of this kind.
    pub(super) fn new(kind: &str, name: &str, key: K, wraps: IntCounter) -> Self {
        let prefix = format!("k8s:enc:{kind}:v1:{name}:").into_bytes();
        Self { prefix, key, trust: Trust::default(), wraps: Wraps::new(wraps) }
    }
}

impl<K: Wrap> Keys<K> {
    /// Counts a use of the key that wraps. Whether it has wrapped many, once.
    fn count(&self) -> bool {
        self.0.first().is_some_and(|first| first.wraps.count())
    }

    /// What its key is called, for messages.
    fn first_name(&self) -> String {
        let prefix = self.0.first().map(|first| String::from_utf8_lossy(&first.prefix).into_owned());
        prefix.unwrap_or_default().trim_end_matches(':').rsplit(':').next().unwrap_or_default().to_owned()
    }

    fn wrap(&self, path: &[u8], key: &DataKey) -> Option<Vec<u8>> {
        let first = self.0.first()?;
        Some([first.prefix.as_slice(), &first.key.wrap(path, key)?].concat())
    }

    fn unwrap(&self, path: &[u8], wrapped: &[u8]) -> Tried {
        for named in &self.0 {
            if let Some(sealed) = wrapped.strip_prefix(named.prefix.as_slice()) {
                let key = named.key.unwrap(path, sealed);
                let trusted = named.trust.tried(key.is_some());
                let refused = if trusted { Tried::Refused } else { Tried::Doubted };
                return key.map_or(refused, Tried::Opened);
            }
        }
        Tried::NotMine
    }

    fn is_current(&self, wrapped: &[u8]) -> bool {
        self.0.first().is_some_and(|first| wrapped.starts_with(&first.prefix))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn warns_once_when_half_of_what_a_key_may_wrap_is_used_up() {
        let wraps = Wraps::new(IntCounter::new("wraps", "of a test").unwrap());
        assert!(!wraps.count());
        wraps.count.inc_by(MANY_WRAPS - 3);
        assert!(!wraps.count());
        assert!(wraps.count(), "2^31");
        assert!(!wraps.count(), "once");
        // A key that is read again has a counter that goes on.
        assert!(Wraps::new(wraps.count.clone()).count());
    }
}
