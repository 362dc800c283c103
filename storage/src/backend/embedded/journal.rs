//! Cuts a torn end off the journal, where the tables refuse to open because of it.
//!
//! fjall discards a last batch that ends too early. It refuses one that has its end and lacks something in the middle,
//! which is what a power failure may leave: blocks reach the disk in any order. Every batch of this store is synced
//! before the next one is written, so only the last can be torn, and nothing of it was acknowledged. A broken batch with
//! an intact one after it is something else, damage, and is left alone for people to look at.
//!
//! ```text
//! batch   1 items:u32 seqno:u64, items, 3 xxh3:u64 "FJL" 3
//! item    2 type:u8 compression:u8 keyspace:u64 key-length:u16 length:u32 stored-length:u32 key value
//! ```
//! Numbers are little endian; the checksum is over the items.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use xxhash_rust::xxh3::Xxh3;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const TRAILER: &[u8] = b"FJL\x03";

/// What was done about a journal.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Mended {
    /// The last batch was torn and has been cut off: this many bytes of the journal remain.
    Cut(u64),
    /// Nothing, because a torn end is not what is wrong.
    Not,
}

/// Looks at the newest journal of a closed store and cuts off a torn last batch.
pub(super) fn mend(store: &Path) -> io::Result<Mended> {
    let Some(path) = newest(store)? else { return Ok(Mended::Not) };
    let bytes = fs::read(&path)?;
    let Some(keep) = torn_end(&bytes) else { return Ok(Mended::Not) };
    let journal = File::options().write(true).open(&path)?;
    journal.set_len(keep as u64)?;
    journal.sync_all()?;
    Ok(Mended::Cut(keep as u64))
}

fn newest(store: &Path) -> io::Result<Option<PathBuf>> {
    let mut newest = None;
    for entry in fs::read_dir(store)? {
        let path = entry?.path();
        let number =
            path.file_name().and_then(|name| name.to_str()?.strip_suffix(".jnl")?.parse::<u64>().ok());
        if number > newest.as_ref().and_then(|(number, _)| *number) {
            newest = Some((number, path));
        }
    }
    Ok(newest.map(|(_, path)| path))
}

/// Where the torn last batch begins; none where everything is intact or something intact follows what is broken.
fn torn_end(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(next) = batch(bytes, at) {
        at = next;
    }
    let rest = &bytes[at..];
    if rest.iter().all(|byte| *byte == 0) {
        return None;
    }
    let intact_follows = (at + 1..bytes.len()).any(|at| bytes[at] == START && batch(bytes, at).is_some());
    (!intact_follows).then_some(at)
}

/// The end of the intact batch that begins here.
fn batch(bytes: &[u8], at: usize) -> Option<usize> {
    let mut cursor = Cursor { bytes, at };
    if cursor.take(1)? != [START] {
        return None;
    }
    let items = cursor.number(4)?;
    cursor.take(8)?;
    let mut checksum = Xxh3::default();
    for _ in 0..items {
        checksum.update(cursor.item()?);
    }
    let intact =
        cursor.take(1)? == [END] && cursor.number(8)? == checksum.digest() && cursor.take(4)? == TRAILER;
    // An empty batch is never written; without this, a few stray bytes might pass for one.
    (intact && items > 0).then_some(cursor.at)
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn number(&mut self, width: usize) -> Option<u64> {
        Some(self.take(width)?.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    /// A whole item, with its header.
    fn item(&mut self) -> Option<&'a [u8]> {
        let begin = self.at;
        if self.take(1)? != [ITEM] {
            return None;
        }
        self.take(1 + 1 + 8)?;
        let key = self.number(2)?;
        self.take(4)?;
        let value = self.number(4)?;
        self.take(usize::try_from(key + value).ok()?)?;
        self.bytes.get(begin..self.at)
    }
}
