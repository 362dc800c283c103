//! Which keys a database of etcd changed after a revision: their names, and no values.

use std::fs::File;

use repot_etcd_core::snapshot::Revision;

use super::{
    Error,
    bolt::{self, BRANCH_PAGE, LEAF_PAGE, MAX_DEPTH, Page, Root, Walker, damaged},
};

/// Behind the revision of a deletion.
const TOMBSTONE: u8 = b't';

/// A change of one key, without its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyChange {
    /// The key, as etcd keeps it.
    pub key: Vec<u8>,
    /// The revision of the change.
    pub revision: Revision,
    /// The revision that created the key; `None` for a deletion.
    pub created: Option<Revision>,
}

/// Hands out the changes of a database of `bytes` bytes after a revision, in their order, and gives the revision up to which the
/// database was compacted, 0 where it never was: of changes before that, only the last ones of keys that existed then are left.
///
/// # Errors
/// [`Error::Database`] says what is not as it has to be, [`Error::Read`] what could not be read.
pub fn read_changes(
    file: &File,
    bytes: u64,
    after: Revision,
    mut each: impl FnMut(KeyChange),
) -> Result<Revision, Error> {
    let walker = Walker::open(file, bytes)?;
    let Some(root) = walker.bucket(b"key")? else { return Err(damaged("it has no bucket \"key\"")) };
    // Each page belongs to one place of one tree.
    let mut walk = Walk { pages: bytes / walker.page_size, walker: &walker, after };
    walk.tree(&root, &mut each)?;
    walker.compacted()
}

struct Walk<'a> {
    walker: &'a Walker<'a>,
    after: Revision,
    /// So many pages may still be read.
    pages: u64,
}

impl Walk<'_> {
    fn tree(&mut self, root: &Root, each: &mut impl FnMut(KeyChange)) -> Result<(), Error> {
        match root {
            Root::Inline(bytes) => self.page(&Page::parse(bytes.clone())?, 0, each),
            Root::Page(id) => self.child(*id, 0, each),
        }
    }

    fn child(&mut self, id: u64, depth: usize, each: &mut impl FnMut(KeyChange)) -> Result<(), Error> {
        self.pages = self.pages.checked_sub(1).ok_or_else(|| damaged("its tree goes in circles"))?;
        let page = self.walker.page(id)?;
        self.page(&page, depth, each)
    }

    fn page(&mut self, page: &Page, depth: usize, each: &mut impl FnMut(KeyChange)) -> Result<(), Error> {
        match page.flags {
            LEAF_PAGE => self.leaf(page, each),
            BRANCH_PAGE if depth < MAX_DEPTH => {
                for at in self.first_child(page)?..page.count {
                    self.child(page.child(at)?, depth + 1, each)?;
                }
                Ok(())
            }
            BRANCH_PAGE => Err(damaged("its tree has no end")),
            other => Err(damaged(&format!("a page of a tree has the flags {other:#x}"))),
        }
    }

    /// The last child that begins no later than the first change that is asked for.
    fn first_child(&self, page: &Page) -> Result<usize, Error> {
        let mut first = 0;
        for at in 1..page.count {
            if bolt::parse_revision(page.branch_key(at)?)? > self.after {
                break;
            }
            first = at;
        }
        Ok(first)
    }

    fn leaf(&self, page: &Page, each: &mut impl FnMut(KeyChange)) -> Result<(), Error> {
        for at in 0..page.count {
            let entry = page.entry(at)?;
            let revision = bolt::parse_revision(&entry.key)?;
            if revision <= self.after {
                continue;
            }
            let (key, created) = key_of(&entry.value)?;
            let is_deletion = entry.key.get(bolt::REVISION_BYTES) == Some(&TOMBSTONE);
            each(KeyChange { key, revision, created: (!is_deletion).then_some(created) });
        }
        Ok(())
    }
}

/// Name and first revision of a key, from etcd's `mvccpb.KeyValue`.
fn key_of(mut message: &[u8]) -> Result<(Vec<u8>, Revision), Error> {
    let (mut key, mut created) = (Vec::new(), 0);
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        match (tag >> 3, tag & 7) {
            (2, 0) => created = varint(&mut message)?.cast_signed(),
            (_, 0) => drop(varint(&mut message)?),
            (field, 2) => {
                let length = usize::try_from(varint(&mut message)?).map_err(|_| no_key_value())?;
                let value = message.get(..length).ok_or_else(no_key_value)?;
                message = &message[length..];
                if field == 1 {
                    key = value.to_vec();
                }
            }
            _ => return Err(no_key_value()),
        }
    }
    if key.is_empty() { Err(no_key_value()) } else { Ok((key, Revision(created))) }
}

fn varint(message: &mut &[u8]) -> Result<u64, Error> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first().ok_or_else(no_key_value)?;
        *message = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(no_key_value())
}

fn no_key_value() -> Error {
    damaged("a value in its bucket \"key\" is no key with a value")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_and_first_revision_of_a_key_are_read_and_nothing_else_is_taken_for_one() {
        let message = b"\x0a\x03/ab\x10\xac\x02\x18\xad\x02\x20\x02\x2a\x05value\x30\x00";
        assert_eq!(key_of(message).expect("a key"), (b"/ab".to_vec(), Revision(300)));
        assert_eq!(key_of(b"\x0a\x01k").expect("a key"), (b"k".to_vec(), Revision(0)));
        for wrong in [&b""[..], b"\x10\x01", b"\x0a\x04k", b"\x0a", b"\x0b\x01k", b"\x0a\xff", &[0xff; 40]] {
            assert!(key_of(wrong).is_err(), "{wrong:02x?}");
        }
    }
}
