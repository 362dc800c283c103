//! Raises the revision of a database of etcd in place, and marks all history as compacted.
//!
//! The result is that of `etcdutl snapshot restore --bump-revision --mark-compacted`, which copies the whole database: an empty value
//! under the new revision in the bucket `key`, and that revision as `scheduledCompactRev` in the bucket `meta`. As in bbolt, no page
//! in use is written over. The changed pages are appended, and the database is the new one when its meta page is written. etcd keeps no
//! list of free pages (`NoFreelistSync`), and finds the pages that nothing leads to when it opens the database.

use std::{fs::File, os::unix::fs::FileExt};

use repot_etcd_core::snapshot::Revision;

use super::{
    Error,
    bolt::{
        BRANCH_PAGE, BUCKET_ELEMENT, BUCKET_HEADER, ELEMENT, Entry, LEAF_PAGE, MAX_DEPTH, META, PAGE_HEADER,
        Page, REVISION_BYTES, Root, Walker, damaged, fnv64, le_u64, read_revisions,
    },
};

const META_PAGE: u16 = 0x04;
/// In place of the list of free pages: there is none.
const NO_FREELIST: u64 = u64::MAX;
/// Fields of a meta page, by their distance from its header.
const META_ROOT: usize = 16;
const META_FREELIST: usize = 32;
const META_PAGES: usize = 40;
const META_TRANSACTION: usize = 48;

/// Raises the revision of a database that no etcd has open to `to`, which is on disk before this returns. It costs a few pages,
/// however large the database is.
///
/// # Errors
/// [`Error::Database`] also where the revision is not below `to`, [`Error::Read`], [`Error::Scratch`].
pub fn raise_revision(file: &File, to: Revision) -> Result<(), Error> {
    let bytes = file.metadata().map_err(Error::Read)?.len();
    let current = read_revisions(file, bytes)?.current;
    if current >= to {
        return Err(damaged(&format!("it is at revision {current}, which is not below {to}")));
    }
    let walker = Walker::open(file, bytes)?;
    let mut writer = Writer::new(&walker, file)?;
    let revision = revision_key(to)?;
    let key = writer.put_in_bucket(b"key", leaf(revision.clone(), Vec::new()))?;
    let meta = writer.put_in_bucket(b"meta", leaf(b"scheduledCompactRev".to_vec(), revision))?;
    let root = writer.put(&Root::Page(walker.root), key, 0)?;
    // The page that was just made is not in the file yet.
    let root = writer.put(&Root::Page(root), meta, 0)?;
    writer.commit(root)
}

fn leaf(key: Vec<u8>, value: Vec<u8>) -> Entry {
    Entry { flags: 0, key, value }
}

/// As etcd writes a revision: main, `_` and sub revision 0.
fn revision_key(revision: Revision) -> Result<Vec<u8>, Error> {
    let main = u64::try_from(revision.0).map_err(|_| damaged("a revision is below 0"))?;
    let mut key = Vec::with_capacity(REVISION_BYTES);
    key.extend(main.to_be_bytes());
    key.push(b'_');
    key.extend([0; 8]);
    Ok(key)
}

/// Pages that are appended.
struct Writer<'a> {
    walker: &'a Walker<'a>,
    file: &'a File,
    /// The meta page in use, without its header.
    meta: Vec<u8>,
    /// The first new page.
    first: u64,
    /// New pages, one after the other.
    bytes: Vec<u8>,
}

impl<'a> Writer<'a> {
    fn new(walker: &'a Walker<'a>, file: &'a File) -> Result<Self, Error> {
        let mut meta = vec![0; META + 8];
        file.read_exact_at(&mut meta, walker.meta_at + PAGE_HEADER as u64).map_err(Error::Read)?;
        let first = le_u64(&meta, META_PAGES)?;
        Ok(Self { walker, file, meta, first, bytes: Vec::new() })
    }

    /// Puts an entry into a bucket; gives the entry that names the bucket from then on.
    fn put_in_bucket(&mut self, name: &[u8], entry: Entry) -> Result<Entry, Error> {
        let none = || damaged(&format!("it has no bucket {:?}", String::from_utf8_lossy(name)));
        let bucket = self.walker.find(&Root::Page(self.walker.root), name)?.ok_or_else(none)?;
        let root = self.walker.bucket(name)?.ok_or_else(none)?;
        let page = self.put(&root, entry, 0)?;
        // Behind the page there is the sequence of the bucket; what lay within the value is a page of its own now.
        let sequence = bucket.value.get(8..BUCKET_HEADER).ok_or_else(none)?;
        let value = [page.to_le_bytes().as_slice(), sequence].concat();
        Ok(Entry { flags: BUCKET_ELEMENT, key: name.to_vec(), value })
    }

    /// Puts an entry into a tree, in place of one with its key; gives the new page of the root.
    fn put(&mut self, root: &Root, entry: Entry, depth: usize) -> Result<u64, Error> {
        if depth > MAX_DEPTH {
            return Err(damaged("its tree has no end"));
        }
        let page = self.page(root)?;
        match page.flags {
            LEAF_PAGE => {
                let mut entries: Vec<Entry> =
                    (0..page.count).map(|at| page.entry(at)).collect::<Result<_, _>>()?;
                match entries.binary_search_by(|other| other.key.cmp(&entry.key)) {
                    Ok(at) => entries[at] = entry,
                    Err(at) => entries.insert(at, entry),
                }
                self.append_leaf(&entries)
            }
            BRANCH_PAGE => {
                let mut children = Vec::with_capacity(page.count);
                for at in 0..page.count {
                    children.push((page.branch_key(at)?.to_vec(), page.child(at)?));
                }
                let at = children.partition_point(|(first, _)| *first <= entry.key).saturating_sub(1);
                let child = children.get(at).ok_or_else(|| damaged("a branch page is empty"))?.1;
                let key = entry.key.clone();
                let child = self.put(&Root::Page(child), entry, depth + 1)?;
                children[at].1 = child;
                if key < children[at].0 {
                    children[at].0 = key;
                }
                self.append_branch(&children)
            }
            other => Err(damaged(&format!("a page of a tree has the flags {other:#x}"))),
        }
    }

    /// A page of the file, or one that is to be appended.
    fn page(&self, root: &Root) -> Result<Page, Error> {
        match root {
            Root::Inline(bytes) => Page::parse(bytes.clone()),
            Root::Page(id) if *id >= self.first => {
                let from = usize::try_from((id - self.first) * self.walker.page_size).unwrap_or(usize::MAX);
                Page::parse(self.bytes.get(from..).unwrap_or_default().to_vec())
            }
            Root::Page(id) => self.walker.page(*id),
        }
    }

    fn append_leaf(&mut self, entries: &[Entry]) -> Result<u64, Error> {
        let texts = entries.iter().map(|entry| (entry.key.as_slice(), entry.value.as_slice()));
        self.append(LEAF_PAGE, texts, |index, position, element| {
            let entry = &entries[index];
            element.extend(entry.flags.to_le_bytes());
            element.extend(position.to_le_bytes());
            element.extend(small(entry.key.len())?.to_le_bytes());
            element.extend(small(entry.value.len())?.to_le_bytes());
            Ok(())
        })
    }

    fn append_branch(&mut self, children: &[(Vec<u8>, u64)]) -> Result<u64, Error> {
        let texts = children.iter().map(|(key, _)| (key.as_slice(), [].as_slice()));
        self.append(BRANCH_PAGE, texts, |index, position, element| {
            let (key, child) = &children[index];
            element.extend(position.to_le_bytes());
            element.extend(small(key.len())?.to_le_bytes());
            element.extend(child.to_le_bytes());
            Ok(())
        })
    }

    /// Appends a page of elements; what is too large for one page goes on behind it, as bbolt has it.
    fn append<'t>(
        &mut self,
        flags: u16,
        texts: impl ExactSizeIterator<Item = (&'t [u8], &'t [u8])>,
        element: impl Fn(usize, u32, &mut Vec<u8>) -> Result<(), Error>,
    ) -> Result<u64, Error> {
        let count = texts.len();
        let (mut elements, mut content) = (Vec::with_capacity(count * ELEMENT), Vec::new());
        for (index, (key, value)) in texts.enumerate() {
            let position = small((count - index) * ELEMENT + content.len())?;
            element(index, position, &mut elements)?;
            content.extend_from_slice(key);
            content.extend_from_slice(value);
        }
        let size = usize::try_from(self.walker.page_size).map_err(|_| damaged("its pages are too large"))?;
        let length = (PAGE_HEADER + elements.len() + content.len()).next_multiple_of(size);
        let id = self.first + (self.bytes.len() / size) as u64;
        let end = self.bytes.len() + length;
        self.bytes.extend(id.to_le_bytes());
        self.bytes.extend(flags.to_le_bytes());
        self.bytes.extend(u16::try_from(count).map_err(|_| damaged("a page is full"))?.to_le_bytes());
        self.bytes.extend(small(length / size - 1)?.to_le_bytes());
        self.bytes.extend(elements);
        self.bytes.extend(content);
        self.bytes.resize(end, 0);
        Ok(id)
    }

    /// Writes the new pages, and then the meta page that leads to them.
    fn commit(mut self, root: u64) -> Result<(), Error> {
        let size = self.walker.page_size;
        let pages = self.first + self.bytes.len() as u64 / size;
        self.file.write_all_at(&self.bytes, self.first * size).map_err(Error::Scratch)?;
        self.file.sync_all().map_err(Error::Scratch)?;
        let transaction = le_u64(&self.meta, META_TRANSACTION)? + 1;
        let fields = [
            (META_ROOT, root),
            (META_FREELIST, NO_FREELIST),
            (META_PAGES, pages),
            (META_TRANSACTION, transaction),
        ];
        for (at, value) in fields {
            self.meta[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        let sum = fnv64(&self.meta[..META]);
        self.meta[META..].copy_from_slice(&sum.to_le_bytes());
        let id = transaction % 2;
        let mut page = id.to_le_bytes().to_vec();
        page.extend(META_PAGE.to_le_bytes());
        page.resize(PAGE_HEADER, 0);
        page.extend(&self.meta);
        self.file.write_all_at(&page, id * size).map_err(Error::Scratch)?;
        self.file.sync_all().map_err(Error::Scratch)
    }
}

fn small(number: usize) -> Result<u32, Error> {
    u32::try_from(number).map_err(|_| damaged("a page is too large"))
}
