//! The file of an encryption configuration.

use std::{
    fs::{File, OpenOptions},
    io::{self, ErrorKind, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use aws_lc_rs::digest;
use base64::{Engine, engine::general_purpose::STANDARD};
use zeroize::Zeroizing;

use super::Error;
use crate::seal;

/// Reads the file; warns where others than the owner may read it too.
pub(super) fn read(path: &Path) -> Result<Zeroizing<String>, Error> {
    let failed = |error: io::Error| failure(path, &format!("cannot be read: {error}"));
    let mode = std::fs::metadata(path).map_err(failed)?.permissions().mode();
    // Its group may read it: that is how a Pod without root reads a mounted Secret.
    if mode & 0o037 != 0 {
        tracing::warn!(path = %path.display(), "encryption configuration can be read by others; set its mode to 0640 or 0600");
    }
    std::fs::read_to_string(path).map(Zeroizing::new).map_err(failed)
}

/// A hash of what is in a file, to see that it changed without keeping its keys.
pub(super) fn hash(text: &str) -> String {
    let hash = digest::digest(&digest::SHA256, text.as_bytes());
    let hex: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// Makes the file if there is none. It appears whole or not at all: two starts at once, or a crash in between, must not
/// leave two keys or half of one.
pub(super) fn ensure(path: &Path) -> Result<bool, Error> {
    if path.try_exists().map_err(|error| failure(path, &format!("cannot be looked at: {error}")))? {
        return Ok(false);
    }
    let suffix: [u8; 8] = seal::random().map_err(|_| Error::Cipher)?;
    let draft = draft_path(path, u64::from_be_bytes(suffix));
    let made = write(&draft, path);
    let removed = std::fs::remove_file(&draft);
    let made = made.map_err(|error| failure(path, &format!("cannot be made: {error}")))?;
    removed.map_err(|error| failure(&draft, &format!("cannot be removed, and holds a key: {error}")))?;
    Ok(made)
}

fn draft_path(path: &Path, suffix: u64) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{suffix:016x}"));
    path.with_file_name(name)
}

fn write(draft: &Path, path: &Path) -> io::Result<bool> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
    let text = generate().map_err(|_| io::Error::other("no random numbers"))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    let made = match std::fs::hard_link(draft, path) {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
        Err(error) => return Err(error),
    };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(made)
}

/// A configuration with one new key.
pub(super) fn generate() -> Result<Zeroizing<String>, Error> {
    let secret: [u8; 32] = seal::random().map_err(|_| Error::Cipher)?;
    let secret = Zeroizing::new(STANDARD.encode(*Zeroizing::new(secret)));
    Ok(Zeroizing::new(format!(
        "# Made by repot. Whoever has this text can read the store; without it nobody can.\n\
         apiVersion: apiserver.config.k8s.io/v1\n\
         kind: EncryptionConfiguration\n\
         resources:\n\
         - resources: ['*.*']\n  \
           providers:\n  \
           - aesgcm:\n      \
               keys:\n      \
               - name: key1\n        \
                 secret: {}\n",
        secret.as_str()
    )))
}

fn failure(path: &Path, what: &str) -> Error {
    Error::File { path: path.display().to_string(), what: what.into() }
}
