//! The archive as a file.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use flate2::{Compression, write::GzEncoder};
use jiff::{Timestamp, tz::TimeZone};

use super::Bundle;

/// The file cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is a file of this name already.
    #[error("{0} exists already; --force replaces it")]
    Exists(PathBuf),
    /// The file system refuses.
    #[error("failed to write {path}")]
    Io {
        /// The file that was to be written.
        path: PathBuf,
        /// Why it was not written.
        #[source]
        source: io::Error,
    },
}

/// Writes the bundle as a tar file in gzip, which only its owner may read: whole, or not at all. A file that is there stays, unless
/// `force`.
///
/// # Errors
/// [`Error`].
pub fn save(bundle: &Bundle, path: &Path, force: bool, now: Timestamp) -> Result<(), Error> {
    let failed = |source| Error::Io { path: path.to_owned(), source };
    check(path, force)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let fresh = path.with_file_name(name);
    // One that a killed run has left may have other permissions.
    let _ = fs::remove_file(&fresh);
    let written = create(&fresh).and_then(|file| pack(bundle, file, now)).and_then(|file| file.sync_all());
    let moved = written.map_err(failed).and_then(|()| replace(&fresh, path, force));
    if moved.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    moved
}

/// Whether the file may be written, before anything is collected.
///
/// # Errors
/// [`Error::Exists`].
pub fn check(path: &Path, force: bool) -> Result<(), Error> {
    match fs::symlink_metadata(path) {
        Ok(_) if !force => Err(Error::Exists(path.to_owned())),
        _ => Ok(()),
    }
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Somebody may have made a file of that name meanwhile: without `force` the name is taken first, which fails then.
fn replace(fresh: &Path, path: &Path, force: bool) -> Result<(), Error> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => Error::Exists(path.to_owned()),
        _ => Error::Io { path: path.to_owned(), source },
    };
    if !force {
        create(path).map_err(failed)?;
    }
    let moved = fs::rename(fresh, path).map_err(failed);
    if moved.is_err() && !force {
        // It is the empty file from above.
        let _ = fs::remove_file(path);
    }
    moved
}

/// Writes all files below one directory.
fn pack<W: Write>(bundle: &Bundle, out: W, now: Timestamp) -> io::Result<W> {
    let directory = format!("repot-doctor-{}", now.to_zoned(TimeZone::UTC).strftime("%Y%m%d-%H%M%S"));
    let mut archive = tar::Builder::new(GzEncoder::new(out, Compression::default()));
    for (path, content) in bundle.files() {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(u64::try_from(now.as_second()).unwrap_or_default());
        archive.append_data(&mut header, format!("{directory}/{path}"), content.as_slice())?;
    }
    archive.into_inner()?.finish()
}

#[cfg(test)]
mod tests {
    use std::{io::Read as _, os::unix::fs::PermissionsExt as _};

    use super::*;

    fn bundle() -> Bundle {
        let mut bundle = Bundle::default();
        bundle.add_text("findings.txt", "all is well\n");
        bundle.add_text(&format!("logs/{}/{}/c.log", "n".repeat(63), "p".repeat(120)), "a log\n");
        bundle
    }

    fn directory() -> tempfile::TempDir {
        tempfile::tempdir().expect("a directory")
    }

    #[test]
    fn archive_is_private_and_can_be_read() {
        let dir = directory();
        let path = dir.path().join("bundle.tar.gz");
        save(&bundle(), &path, false, Timestamp::now()).expect("written");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).expect("listable").count(), 1);
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(File::open(&path).expect("a file")));
        let mut found = Vec::new();
        for entry in archive.entries().expect("entries") {
            let mut entry = entry.expect("an entry");
            let mut text = String::new();
            entry.read_to_string(&mut text).expect("a text");
            found.push((entry.path().expect("a path").display().to_string(), text));
        }
        assert_eq!(found.len(), 2);
        assert!(found[0].0.ends_with("/findings.txt") && found[0].1 == "all is well\n", "{found:?}");
        assert!(found[1].0.ends_with(&format!("{}/c.log", "p".repeat(120))), "{found:?}");
    }

    #[test]
    fn file_that_is_there_stays_without_force() {
        let dir = directory();
        let path = dir.path().join("b");
        fs::write(&path, "mine").expect("written");
        assert!(matches!(save(&bundle(), &path, false, Timestamp::now()), Err(Error::Exists(_))));
        assert!(matches!(replace(&dir.path().join("fresh"), &path, false), Err(Error::Exists(_))));
        assert_eq!(fs::read_to_string(&path).expect("there"), "mine");
        save(&bundle(), &path, true, Timestamp::now()).expect("replaced");
        assert_ne!(fs::read(&path).expect("there"), b"mine");
        assert_eq!(fs::read_dir(dir.path()).expect("listable").count(), 1);
    }

    #[test]
    fn forced_file_replaces_a_link_and_not_what_it_names() {
        let dir = directory();
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        fs::write(&target, "mine").expect("written");
        std::os::unix::fs::symlink(&target, &link).expect("a link");
        assert!(matches!(check(&link, false), Err(Error::Exists(_))));
        save(&bundle(), &link, true, Timestamp::now()).expect("replaced");
        assert_eq!(fs::read_to_string(&target).expect("there"), "mine");
    }

    #[test]
    fn failure_leaves_no_file() {
        let dir = directory();
        let path = dir.path().join("missing").join("b");
        assert!(matches!(save(&bundle(), &path, false, Timestamp::now()), Err(Error::Io { .. })));
        assert_eq!(fs::read_dir(dir.path()).expect("listable").count(), 0);
    }
}
