//! What a database file of etcd says: its revision (the newest key of its bucket `key`, and how far it was compacted), and which members
//! were removed from the cluster.
//!
//! A read-only walk over pages of bbolt that trusts no number in the file: what points outside, goes in circles or overlaps is
//! an error. etcd works its revision out in the same way when it starts, so this is the revision it will have.

use std::{fs::File, io, os::unix::fs::FileExt};

use repot_etcd_core::snapshot::Revision;

use super::Error;

const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
pub(super) const PAGE_HEADER: usize = 16;
pub(super) const ELEMENT: usize = 16;
pub(super) const BUCKET_HEADER: usize = 16;
/// Fields of a meta page before its checksum.
pub(super) const META: usize = 56;
pub(super) const BRANCH_PAGE: u16 = 0x01;
pub(super) const LEAF_PAGE: u16 = 0x02;
pub(super) const BUCKET_ELEMENT: u32 = 0x01;
/// A tree of this height would have more pages than there are bytes.
pub(super) const MAX_DEPTH: usize = 64;
/// A page with its overflow is as large as the largest value, which a transaction of etcd bounds.
const MAX_PAGE_BYTES: u64 = 1 << 30;
pub(super) const REVISION_BYTES: usize = 17;

/// What a database says of its revisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Revisions {
    /// The revision that etcd has with this database.
    pub current: Revision,
    /// The newest revision of which a key is left; older than `current` when the newest ones were deletions that were
    /// compacted.
    pub newest_key: Revision,
}

/// Reads the revisions in a database of `bytes` bytes.
///
/// # Errors
/// [`Error::Database`] says what is not as it has to be, [`Error::Read`] what could not be read.
pub fn read_revisions(file: &File, bytes: u64) -> Result<Revisions, Error> {
    let walker = Walker::open(file, bytes)?;
    let newest_key = match walker.bucket(b"key")? {
        Some(bucket) => walker.last_key(&bucket)?.map_or(Ok(Revision(0)), |key| parse_revision(&key))?,
        None => return Err(damaged("it has no bucket \"key\"")),
    };
    // An etcd in which nothing was ever written is at 1.
    let current = newest_key.max(walker.compacted()?).max(Revision(1));
    Ok(Revisions { current, newest_key })
}

/// Whether the member is among those that were removed from the cluster, by a database of `bytes` bytes that etcd does not have open.
///
/// # Errors
/// As of [`read_revisions`].
pub fn is_removed(file: &File, bytes: u64, member: u64) -> Result<bool, Error> {
    let walker = Walker::open(file, bytes)?;
    let Some(removed) = walker.bucket(b"members_removed")? else { return Ok(false) };
    Ok(walker.find(&removed, format!("{member:x}").as_bytes())?.is_some())
}

pub(super) fn parse_revision(key: &[u8]) -> Result<Revision, Error> {
    // Main revision, `_`, sub revision, and `t` behind a deletion.
    let main: [u8; 8] = key.get(..8).and_then(|main| main.try_into().ok()).ok_or_else(|| no_revision(key))?;
    if key.len() < REVISION_BYTES || key[8] != b'_' {
        return Err(no_revision(key));
    }
    i64::try_from(u64::from_be_bytes(main)).map(Revision).map_err(|_| no_revision(key))
}

fn no_revision(key: &[u8]) -> Error {
    damaged(&format!("{key:02x?} is no revision"))
}

pub(super) fn damaged(what: &str) -> Error {
    Error::Database(what.to_owned())
}

/// Where a tree begins.
pub(super) enum Root {
    Page(u64),
    /// A bucket so small that its only page lies within the value that names it.
    Inline(Vec<u8>),
}

pub(super) struct Entry {
    pub(super) flags: u32,
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
}

pub(super) struct Walker<'a> {
    file: &'a File,
    bytes: u64,
    pub(super) page_size: u64,
    pub(super) root: u64,
    /// Place of the meta page in use.
    pub(super) meta_at: u64,
}

/// A page with its overflow.
pub(super) struct Page {
    bytes: Vec<u8>,
    pub(super) flags: u16,
    pub(super) count: usize,
}

impl<'a> Walker<'a> {
    pub(super) fn open(file: &'a File, bytes: u64) -> Result<Self, Error> {
        let mut found: Option<(u64, u64, u64, u64)> = None;
        // The first meta page knows the size of pages; where it is damaged, the second one is looked for.
        let places = std::iter::once(0).chain((9..=16).map(|shift| 1_u64 << shift));
        for at in places {
            let Some((page_size, root, txid)) = read_meta(file, at, bytes)? else { continue };
            if (at == 0 || at == page_size) && found.is_none_or(|(_, _, newest, _)| txid > newest) {
                found = Some((page_size, root, txid, at));
            }
        }
        let (page_size, root, _, meta_at) = found.ok_or_else(|| damaged("it has no valid meta page"))?;
        Ok(Self { file, bytes, page_size, root, meta_at })
    }

    pub(super) fn bucket(&self, name: &[u8]) -> Result<Option<Root>, Error> {
        let Some(entry) = self.find(&Root::Page(self.root), name)? else { return Ok(None) };
        if entry.flags & BUCKET_ELEMENT == 0 || entry.value.len() < BUCKET_HEADER {
            return Err(damaged("an entry among the buckets is none"));
        }
        Ok(Some(match le_u64(&entry.value, 0)? {
            0 => Root::Inline(entry.value[BUCKET_HEADER..].to_vec()),
            page => Root::Page(page),
        }))
    }

    /// The revision up to which the database was compacted, or is about to be; 0 where it never was.
    pub(super) fn compacted(&self) -> Result<Revision, Error> {
        let Some(meta) = self.bucket(b"meta")? else { return Ok(Revision(0)) };
        let mut compacted = Revision(0);
        for name in [b"scheduledCompactRev".as_slice(), b"finishedCompactRev"] {
            if let Some(Entry { value, .. }) = self.find(&meta, name)? {
                compacted = compacted.max(parse_revision(&value)?);
            }
        }
        Ok(compacted)
    }

    /// The last key of a tree.
    fn last_key(&self, root: &Root) -> Result<Option<Vec<u8>>, Error> {
        let leaf = self.descend(root, |page| page.count.checked_sub(1))?;
        match leaf.count.checked_sub(1) {
            Some(last) => Ok(Some(leaf.entry(last)?.key)),
            None => Ok(None),
        }
    }

    /// The entry of a key.
    pub(super) fn find(&self, root: &Root, key: &[u8]) -> Result<Option<Entry>, Error> {
        let leaf = self.descend(root, |page| {
            let before = (0..page.count).take_while(|at| page.branch_key(*at).is_ok_and(|k| k <= key));
            Some(before.count().saturating_sub(1))
        })?;
        for at in 0..leaf.count {
            let entry = leaf.entry(at)?;
            if entry.key == key {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// Goes down to a leaf; `choose` says by which child.
    fn descend(&self, root: &Root, choose: impl Fn(&Page) -> Option<usize>) -> Result<Page, Error> {
        let mut page = match root {
            Root::Inline(bytes) => Page::parse(bytes.clone())?,
            Root::Page(id) => self.page(*id)?,
        };
        for _ in 0..MAX_DEPTH {
            match page.flags {
                LEAF_PAGE => return Ok(page),
                BRANCH_PAGE => {
                    let child = choose(&page).ok_or_else(|| damaged("a branch page is empty"))?;
                    page = self.page(page.child(child)?)?;
                }
                other => return Err(damaged(&format!("a page of a tree has the flags {other:#x}"))),
            }
        }
        Err(damaged("its tree has no end"))
    }

    pub(super) fn page(&self, id: u64) -> Result<Page, Error> {
        let outside = || damaged(&format!("page {id} lies outside"));
        let at = id.checked_mul(self.page_size).filter(|at| *at < self.bytes).ok_or_else(outside)?;
        let mut head = [0; PAGE_HEADER];
        self.file.read_exact_at(&mut head, at).map_err(Error::Read)?;
        if le_u64(&head, 0)? != id {
            return Err(damaged(&format!("page {id} says that it is another")));
        }
        let length = (u64::from(le_u32(&head, 12)?) + 1).checked_mul(self.page_size).ok_or_else(outside)?;
        if length > MAX_PAGE_BYTES || at + length > self.bytes {
            return Err(outside());
        }
        let mut bytes = vec![0; usize::try_from(length).map_err(|_| outside())?];
        self.file.read_exact_at(&mut bytes, at).map_err(Error::Read)?;
        Page::parse(bytes)
    }
}

impl Page {
    pub(super) fn parse(bytes: Vec<u8>) -> Result<Self, Error> {
        let (flags, count) = (le_u16(&bytes, 8)?, usize::from(le_u16(&bytes, 10)?));
        Ok(Self { bytes, flags, count })
    }

    /// The bytes at a distance from the element of that index.
    fn slice(&self, element: usize, from: u32, length: u32) -> Result<&[u8], Error> {
        let start = element.checked_add(from as usize);
        let range = start.and_then(|start| Some(start..start.checked_add(length as usize)?));
        range
            .and_then(|range| self.bytes.get(range))
            .ok_or_else(|| damaged("an element lies outside of its page"))
    }

    pub(super) fn entry(&self, index: usize) -> Result<Entry, Error> {
        let at = PAGE_HEADER + index * ELEMENT;
        let (flags, pos) = (le_u32(&self.bytes, at)?, le_u32(&self.bytes, at + 4)?);
        let (key, value) = (le_u32(&self.bytes, at + 8)?, le_u32(&self.bytes, at + 12)?);
        let behind = pos.checked_add(key).ok_or_else(|| damaged("an element lies outside of its page"))?;
        Ok(Entry {
            flags,
            key: self.slice(at, pos, key)?.to_vec(),
            value: self.slice(at, behind, value)?.to_vec(),
        })
    }

    pub(super) fn branch_key(&self, index: usize) -> Result<&[u8], Error> {
        let at = PAGE_HEADER + index * ELEMENT;
        self.slice(at, le_u32(&self.bytes, at)?, le_u32(&self.bytes, at + 4)?)
    }

    pub(super) fn child(&self, index: usize) -> Result<u64, Error> {
        le_u64(&self.bytes, PAGE_HEADER + index * ELEMENT + 8)
    }
}

/// Page size, root page and transaction of the meta page at a place; `None` where there is no valid one.
fn read_meta(file: &File, at: u64, bytes: u64) -> Result<Option<(u64, u64, u64)>, Error> {
    let mut page = [0; PAGE_HEADER + META + 8];
    if at + page.len() as u64 > bytes {
        return Ok(None);
    }
    match file.read_exact_at(&mut page, at) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other.map_err(Error::Read)?,
    }
    let meta = &page[PAGE_HEADER..];
    let (magic, version, page_size) = (le_u32(meta, 0)?, le_u32(meta, 4)?, le_u32(meta, 8)?);
    let sound = magic == MAGIC && version == VERSION && page_size.is_power_of_two() && page_size >= 512;
    if !sound || le_u64(meta, META)? != fnv64(&meta[..META]) {
        return Ok(None);
    }
    Ok(Some((u64::from(page_size), le_u64(meta, 16)?, le_u64(meta, 48)?)))
}

/// FNV-1a, by which bbolt guards its meta pages.
pub(super) fn fnv64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn le<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Error> {
    let field = at.checked_add(N).and_then(|end| bytes.get(at..end)).and_then(|field| field.try_into().ok());
    field.ok_or_else(|| damaged("a page is cut off"))
}

fn le_u16(bytes: &[u8], at: usize) -> Result<u16, Error> {
    le(bytes, at).map(u16::from_le_bytes)
}

fn le_u32(bytes: &[u8], at: usize) -> Result<u32, Error> {
    le(bytes, at).map(u32::from_le_bytes)
}

pub(super) fn le_u64(bytes: &[u8], at: usize) -> Result<u64, Error> {
    le(bytes, at).map(u64::from_le_bytes)
}
