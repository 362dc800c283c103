//! Full snapshots: a database and its hash.

use std::{
    fs::File,
    io::{self, Read, Write},
};

use super::{Error, HASH_BYTES, Revisions, Trailed, read_revisions};

/// etcd's own measure: a database is made of pages, and no page is smaller.
const PAGE_BYTES: u64 = 512;
const BUFFER: usize = 256 << 10;

/// What a full snapshot was found to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Database {
    /// Its length, without the hash.
    pub bytes: u64,
    /// Its revisions, where it was kept in a file to be walked through.
    pub revisions: Option<Revisions>,
}

/// Reads a full snapshot to its end and checks its hash. With a file, the database and its hash are written there and the
/// database is asked for its revision; without one it is only passed through.
///
/// # Errors
/// Everything in [`Error`] that says what is wrong with it; [`Error::Scratch`] for the file.
pub fn read_full(content: impl Read, keep: Option<&mut File>) -> Result<Database, Error> {
    let mut content = Trailed::new(content);
    let outcome = match keep {
        None => pass(&mut content, &mut io::sink()).map(|()| None),
        Some(file) => keep_and_walk(&mut content, file).map(Some),
    };
    let bytes = content.given();
    match outcome {
        // Of a database without a hash, the last bytes are taken for one.
        Err(Error::Hash) if (bytes + HASH_BYTES as u64).is_multiple_of(PAGE_BYTES) => Err(Error::NoTrailer),
        Err(error) => Err(error),
        Ok(_) if !bytes.is_multiple_of(PAGE_BYTES) => Err(Error::DatabaseLength { bytes }),
        Ok(revisions) => Ok(Database { bytes, revisions }),
    }
}

fn pass<R: Read>(content: &mut Trailed<R>, out: &mut impl Write) -> Result<(), Error> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let count = content.read(&mut buffer).map_err(Error::of)?;
        if count == 0 {
            return Ok(());
        }
        out.write_all(&buffer[..count]).map_err(Error::Scratch)?;
    }
}

fn keep_and_walk<R: Read>(content: &mut Trailed<R>, file: &mut File) -> Result<Revisions, Error> {
    pass(content, file)?;
    let trailer = content.trailer().ok_or(Error::NoTrailer)?;
    file.write_all(&trailer).and_then(|()| file.flush()).map_err(Error::Scratch)?;
    read_revisions(file, content.given())
}
