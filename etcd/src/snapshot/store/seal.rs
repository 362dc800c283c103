//! Sealing snapshots: as objects of a Repot store are, by the keys of an `EncryptionConfiguration`.
//!
//! The configuration is a file, read again for each snapshot: a mounted Secret may get another key while a store is open.

use std::{
    io::{self, BufRead, Read},
    path::{Path as FilePath, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::{Buf, Bytes};
use repot_etcd_core::snapshot::SnapshotName;
use repot_storage::{
    Key, Keyring,
    keyring::{self, Follow},
    stream::{self, Opener, Sealer, Wrapped},
};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::{Environment, Error, Result};
use crate::snapshot::codec;

/// Key of a Secret that holds an `EncryptionConfiguration`.
pub const CONFIGURATION: &str = "encryptionConfiguration";
/// Variable that names the file of one, and that of the directory in which a Secret is mounted.
const FILE: &str = "STORE_ENCRYPTION_PROVIDER_CONFIG";
const SECRET: &str = "STORE_SECRET";
/// What snapshots are called in an `EncryptionConfiguration`: `snapshots.migration.gardener.cloud`.
const GROUP: &str = "migration.gardener.cloud";
const RESOURCE: &str = "snapshots";

/// The keys of a store.
#[derive(Clone, Debug)]
pub(super) struct Seal(PathBuf);

fn key(name: &str) -> Key {
    let (group, resource) = (GROUP.to_owned(), RESOURCE.to_owned());
    Key { group, resource, namespace: String::new(), name: name.to_owned() }
}

impl Seal {
    /// Looks for a configuration: what a variable names, else in a Secret. One that would leave snapshots in clear is refused.
    pub(super) fn find(
        url: &str,
        environment: &Environment,
        secret: Option<&FilePath>,
    ) -> Result<Option<Self>> {
        let named = |name: &str| environment.get(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        let path = match (named(FILE), secret.map(FilePath::to_owned).or_else(|| named(SECRET))) {
            (Some(file), _) => file,
            (None, None) => return Ok(None),
            (None, Some(directory)) => {
                let file = directory.join(CONFIGURATION);
                let there = file.try_exists();
                if !there.map_err(|source| Error::Credentials { path: file.clone(), source })? {
                    return Ok(None);
                }
                file
            }
        };
        let refused = |source| Error::Keys { url: url.to_owned(), source };
        let keys = Keyring::from_file(&path).map_err(refused)?;
        if !keys.seals(&key("")).map_err(refused)? {
            let at = path.display().to_string();
            let what = format!(
                "the first provider for {RESOURCE}.{GROUP} is identity, which seals nothing; put another one first"
            );
            return Err(refused(keyring::Error::Config { at, what }));
        }
        Ok(Some(Self(path)))
    }

    async fn keys(&self, url: &str) -> Result<Arc<Keyring>> {
        let second = Duration::from_secs(1);
        let follow = Follow { path: self.0.clone(), reload: false, server: String::new(), second };
        // Services are asked how they are until the keyring is dropped.
        let keys = Keyring::follow(follow, CancellationToken::new()).await;
        keys.map_err(|source| Error::Keys { url: url.to_owned(), source })
    }

    /// Begins to seal a snapshot.
    pub(super) async fn begin(&self, url: &str, name: &SnapshotName, place: String) -> Result<Sealing> {
        let keys = self.keys(url).await?;
        match Sealer::begin(&keys, &key(&name.to_string())).await {
            Ok((sealer, header)) => Ok(Sealing { sealer, header, place }),
            Err(source) => Err(Error::Sealing { place, source }),
        }
    }

    /// Gets ready to open one.
    pub(super) async fn opening(&self, url: &str, name: &SnapshotName) -> Result<SnapshotDecryption> {
        Ok(SnapshotDecryption {
            keys: self.keys(url).await?,
            key: key(&name.to_string()),
            runtime: Handle::current(),
        })
    }
}

/// A snapshot that is being sealed.
#[derive(Debug)]
pub(super) struct Sealing {
    sealer: Sealer,
    /// What it begins with.
    pub(super) header: Bytes,
    place: String,
}

impl Sealing {
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Bytes> {
        self.sealer.push(bytes).map_err(|source| Error::Sealing { place: self.place.clone(), source })
    }

    pub(super) fn finish(self) -> Result<Bytes> {
        let Self { sealer, place, .. } = self;
        sealer.finish().map_err(|source| Error::Sealing { place, source })
    }
}

/// What opens a snapshot.
pub(in crate::snapshot) struct SnapshotDecryption {
    keys: Arc<Keyring>,
    key: Key,
    runtime: Handle,
}

impl SnapshotDecryption {
    /// Reads on in clear; the thread is blocked meanwhile.
    pub(in crate::snapshot) fn open<R: BufRead>(self, mut from: R) -> Result<Plain<R>, codec::Error> {
        let Self { keys, key, runtime } = self;
        let opener = Wrapped::read(&mut from)
            // A key management service may have to be asked.
            .and_then(|wrapped| runtime.block_on(wrapped.open(&keys, &key)));
        Ok(Plain { opener: opener.map_err(of)?, from, bytes: Bytes::new() })
    }
}

/// Where the bytes did not come, whoever sent them says why.
fn of(error: stream::Error) -> codec::Error {
    match error {
        stream::Error::Read(error) => codec::Error::of(error),
        other => codec::Error::Sealed(other),
    }
}

/// A sealed snapshot, in clear.
pub(in crate::snapshot) struct Plain<R> {
    opener: Opener,
    from: R,
    bytes: Bytes,
}

impl<R: BufRead> BufRead for Plain<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        // A frame may be empty.
        while self.bytes.is_empty() {
            match self.opener.frame(&mut self.from).map_err(|error| of(error).into_io())? {
                Some(bytes) => self.bytes = bytes,
                None => break,
            }
        }
        Ok(&self.bytes)
    }

    fn consume(&mut self, amount: usize) {
        self.bytes.advance(amount.min(self.bytes.len()));
    }
}

impl<R: BufRead> Read for Plain<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(out)?;
        self.consume(count);
        Ok(count)
    }
}
