//! Files that hold secrets.

use std::{fs, io::Write, os::unix::fs::OpenOptionsExt, path::Path};

use crate::{Error, Result};

/// Writes a file that only its owner may read, whole or not at all: a reader never sees a part of it.
///
/// # Errors
/// [`Error::File`].
pub fn write_private(path: &Path, contents: &[u8]) -> Result<()> {
    let failed = |source| Error::File { path: path.to_owned(), source };
    let fresh = path.with_extension(format!("{}.new", std::process::id()));
    let write = || {
        // A file left by a killed run may have been made with other permissions.
        let _ = fs::remove_file(&fresh);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        file.write_all(contents)?;
        file.sync_all()?;
        fs::rename(&fresh, path)
    };
    write().map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn private_files_are_private_and_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("key.pem");
        write_private(&path, b"one").expect("written");
        write_private(&path, b"two").expect("replaced");
        assert_eq!(fs::read(&path).expect("readable"), b"two");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).expect("listable").count(), 1);
    }
}
