//! The keys that wrap the data keys of objects, from a kube-apiserver `EncryptionConfiguration`.
//!
//! This module may not keep, show or log key material: errors name fields and files, never what is in them.
//!
//! A data key is wrapped by the first key of the first provider of the first entry that covers the resource. All keys of
//! that entry are tried for reading, found by the prefix that kube-apiserver writes too: `k8s:enc:<provider>:v1:<key name>:`.
//! A key is rotated as there: add the new key second everywhere, move it first everywhere, write all objects again (those
//! with [`Object::stale`](crate::Object::stale)), remove the old key. Writing an object again rewraps its data key; chunks stay.

use std::{fmt, path::Path};

use bytes::Bytes;

use crate::{Key, seal::DataKey};

mod config;
mod file;
mod node;
mod provider;
mod resource;

use provider::{Provider, Tried};
use resource::Pattern;

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
    /// The cipher refused to wrap.
    #[error("the cipher refused to wrap a data key")]
    Cipher,
}

/// The keys of an `EncryptionConfiguration`.
pub struct Keyring {
    entries: Vec<Entry>,
}

/// Some resources and how their data keys are wrapped.
struct Entry {
    patterns: Vec<Pattern>,
    providers: Vec<Provider>,
}

/// A data key that was unwrapped.
pub(crate) struct Unwrapped {
    /// The key.
    pub key: DataKey,
    /// Wrapped by another key than the one that wraps now.
    pub stale: bool,
}

impl Keyring {
    /// Reads a file in the format of `EncryptionConfiguration` (`apiserver.config.k8s.io/v1`), YAML or JSON.
    ///
    /// # Errors
    /// [`Error::File`] and [`Error::Config`].
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        Self::parse(&file::read(path)?)
    }

    /// Reads an `EncryptionConfiguration` from YAML or JSON.
    ///
    /// # Errors
    /// [`Error::Config`] says which field is wrong and what to write instead.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Ok(Self { entries: config::parse(text)? })
    }

    /// Makes a file (mode 0600) with one random 32-byte aesgcm key for all resources, unless there is a file already,
    /// which is never touched. Returns whether it was made. Durable when it returns.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn ensure_file(path: &Path) -> Result<bool, Error> {
        file::ensure(path)
    }

    /// Wraps a data key for the object at `path`. Async because a provider may ask a service.
    pub(crate) async fn wrap(&self, object: &Key, path: &[u8], key: &DataKey) -> Result<Bytes, Error> {
        let provider = self.providers(object)?.first().ok_or(Error::Cipher)?;
        provider.wrap(path, key).await
    }

    /// Unwraps the data key of the object at `path`.
    pub(crate) async fn unwrap(&self, object: &Key, path: &[u8], wrapped: &[u8]) -> Result<Unwrapped, Error> {
        let mut result = Err(Error::NoKey);
        for (index, provider) in self.providers(object)?.iter().enumerate() {
            match provider.unwrap(path, wrapped).await {
                Tried::Opened { key, first } => return Ok(Unwrapped { key, stale: index > 0 || !first }),
                Tried::Refused => result = Err(Error::Altered),
                Tried::NotMine => {}
            }
        }
        result
    }

    fn providers(&self, object: &Key) -> Result<&[Provider], Error> {
        let covers =
            |entry: &&Entry| entry.patterns.iter().any(|p| p.covers(&object.group, &object.resource));
        let entry = self.entries.iter().find(covers);
        entry
            .map(|entry| entry.providers.as_slice())
            .ok_or_else(|| Error::Uncovered(format!("{}.{}", object.resource, object.group)))
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring").field("entries", &self.entries.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
