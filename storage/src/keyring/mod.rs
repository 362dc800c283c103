//! The keys that wrap the data keys of objects, from a kube-apiserver `EncryptionConfiguration`.
//!
//! This module may not keep, show or log key material: errors name fields and files, never what is in them.
//!
//! A data key is wrapped by the first key of the first provider of the first entry that covers the resource. All keys of
//! that entry are tried for reading, found by the prefix that kube-apiserver writes too: `k8s:enc:<provider>:v1:<key name>:`,
//! and `k8s:enc:kms:v2:<provider name>:` for services. A key is rotated as there: add the new key second everywhere, move it
//! first everywhere, write all objects again (those with [`Object::stale`](crate::Object::stale)), remove the old key. Writing
//! an object again rewraps its data key; chunks stay.
//!
//! Where to look: `config` reads, `ring` is one configuration in use, `provider` its ways to wrap, `local` and `kms` those that
//! do the work, `follow` how another configuration takes the place of the one in use.

use std::{fmt, path::Path, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::sync::watch;
use zeroize::Zeroizing;

use crate::{Key, seal::DataKey};

mod config;
mod file;
mod follow;
mod kms;
mod label;
mod local;
mod metrics;
mod node;
mod provider;
mod resource;
mod ring;

pub use follow::Follow;
pub(crate) use label::label;
use metrics::Metrics;
use ring::Ring;

/// Why an encryption configuration cannot be used, or a data key cannot be wrapped or unwrapped. Holds no key material.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The configuration is not valid.
    #[error("encryption configuration: {at}: {what}")]
    Config {
        /// Path to the field.
        at: String,
        /// What is wrong, and what to write instead.
        what: String,
    },
    /// The file cannot be read or written.
    #[error("encryption configuration {path}: {what}")]
    File {
        /// Path of the file.
        path: String,
        /// What happened.
        what: String,
    },
    /// No entry of the configuration covers this resource.
    #[error("no entry of the encryption configuration covers {0}; add one, or '*.*'")]
    Uncovered(String),
    /// No provider has a key of the name under which the data key was wrapped.
    #[error("the encryption configuration has no key of the name that wrapped the data key")]
    NoKey,
    /// There is a key of that name, and it does not open the data key.
    #[error("the wrapped data key was altered or moved, or wrapped by another key of the same name")]
    Altered,
    /// As [`Error::Altered`], but this key has not decrypted anything before it refused: nothing shows that it is the right one.
    /// Not a proof of damage: the configuration may have another key under the same name.
    #[error(
        "the key of the name that wrapped the data key does not unwrap it, and has unwrapped no other since the configuration \
         was read; check that the configuration has the right secret under this name"
    )]
    WrongKey,
    /// The cipher refused to wrap.
    #[error("the cipher refused to wrap a data key")]
    Cipher,
    /// A key management service does not do its work; a later try may succeed.
    #[error("kms provider {provider} is unavailable: {why}")]
    Unavailable {
        /// Its name in the configuration.
        provider: String,
        /// What it said.
        why: String,
    },
    /// A configuration was not taken into use, because a service of it is not well.
    #[error("a service of the new encryption configuration is not well: {0}")]
    NotWell(String),
}

/// The keys of an `EncryptionConfiguration`, or of another one that took its place meanwhile.
pub struct Keyring {
    ring: ArcSwap<Ring>,
    /// Counts configurations.
    replaced: watch::Sender<u64>,
    metrics: Arc<Metrics>,
}

/// A data key that was unwrapped.
pub(crate) struct Unwrapped {
    /// The data key, ready for use.
    pub key: DataKey,
    /// Wrapped by another key than the one that wraps now.
    pub stale: bool,
}

/// What came of the try to unwrap.
enum Tried {
    /// A key of the provider unwrapped the data key.
    Opened(DataKey),
    /// There is a key of the right name, and it does not open this.
    Refused,
    /// The same, and nothing shows that the key is the right one.
    Doubted,
    /// Wrapped by something else.
    NotMine,
}

impl Keyring {
    fn new(ring: Ring, metrics: Arc<Metrics>) -> Self {
        Self { ring: ArcSwap::from_pointee(ring), replaced: watch::Sender::new(0), metrics }
    }

    /// Reads a file in the format of `EncryptionConfiguration` (`apiserver.config.k8s.io/v1`), YAML or JSON. Nothing is
    /// followed: for a configuration with services there is [`Keyring::follow`].
    ///
    /// # Errors
    /// [`Error::File`] and [`Error::Config`].
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        Self::parse(&file::read(path)?)
    }

    /// As [`Keyring::from_file`], from text.
    ///
    /// # Errors
    /// [`Error::Config`] says which field is wrong and what to write instead.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let metrics = follow::metrics("")?;
        Ok(Self::new(config::parse(text, Duration::from_secs(1), &metrics)?, metrics))
    }

    /// An `EncryptionConfiguration` as YAML, with one new random key for all resources.
    ///
    /// # Errors
    /// [`Error::Cipher`], where there are no random numbers.
    pub fn generate() -> Result<Zeroizing<String>, Error> {
        file::generate()
    }

    /// Makes a file (mode 0600) with one random 32-byte aesgcm key for all resources, unless there is a file already,
    /// which is never touched. Returns whether it was made. Durable when it returns.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn ensure_file(path: &Path) -> Result<bool, Error> {
        file::ensure(path)
    }

    /// Why a key management service is not well, if one is not; as of when it was last asked.
    pub fn failing(&self) -> Option<String> {
        self.ring.load().failing()
    }

    /// What is counted about keys, for a registry.
    pub fn collectors(&self) -> Vec<Box<dyn prometheus::core::Collector>> {
        self.metrics.collectors()
    }

    /// Changes whenever another configuration is in use.
    pub(crate) fn replaced(&self) -> watch::Receiver<u64> {
        self.replaced.subscribe()
    }

    fn replace(&self, ring: Ring) {
        self.ring.store(Arc::new(ring));
        self.replaced.send_modify(|count| *count += 1);
    }

    /// Whether the data keys of new objects of this resource are wrapped, and not left in clear.
    ///
    /// # Errors
    /// [`Error::Uncovered`].
    pub fn seals(&self, object: &Key) -> Result<bool, Error> {
        self.ring.load().seals(object)
    }

    /// Wraps a data key for the object at `path`. Async because a provider may ask a service.
    pub(crate) async fn wrap(&self, object: &Key, path: &[u8], key: &DataKey) -> Result<Bytes, Error> {
        self.ring.load_full().wrap(object, path, key).await
    }

    /// Unwraps the data key of the object at `path`.
    pub(crate) async fn unwrap(&self, object: &Key, path: &[u8], wrapped: &[u8]) -> Result<Unwrapped, Error> {
        self.ring.load_full().unwrap(object, path, wrapped).await
    }

    /// Whether an object that is written now may keep its data key as it is wrapped: not where another key wraps by now, which
    /// may have happened since the object was read.
    pub(crate) fn keeps(&self, object: &Key, wrapped: &[u8]) -> Result<bool, Error> {
        self.ring.load().keeps(object, wrapped)
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring").field("entries", &self.ring.load().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
