//! All objects in one file, sealed as they rest: to keep, and to move to another backend.
//!
//! ```text
//! "REPOTAR1"
//! record: 1 ++ length (4) ++ length of path (2) ++ path ++ record   for each object,
//! chunk:  2 ++ length (4) ++ chunk                                  followed by its chunks in order
//! end:    3 ++ length (4) ++ objects (8) ++ version (8)
//! blake3 of all of that (32)
//! ```
//!
//! Numbers are big endian. Who reads it needs the keys of the store it came from. Nothing in it can be altered, and no chunk moved,
//! without being noticed when it is opened; the hash at the end tells a file that was cut or damaged before anything is written.
//! An import writes as any client does, so objects are sealed anew, by the keys of the store they come to.

use std::io::{self, Read, Seek, SeekFrom, Write};

use bytes::Bytes;

use super::{
    Store,
    pages::Pages,
    path,
    types::{Draft, Key, Object, ResourceVersion, Segmented},
};
use crate::{
    backend::{self, KeyValue, Revision},
    chunk,
    record::Payload,
};

const MAGIC: &[u8; 8] = b"REPOTAR1";
const RECORD: u8 = 1;
const CHUNK: u8 = 2;
const END: u8 = 3;
const HASH: usize = 32;
/// No record and no chunk is longer.
const MAX_FRAME: usize = 128 << 20;
/// Chunks that are read at once.
const BATCH: usize = 4;
/// Versions that clients may have seen after the archive was written, while the store it came from served on: as many as etcd's own
/// advice for a restore, a week of 1,500 writes a second.
const SERVED_ON: u64 = 1_000_000_000;
/// How often an object is read again that somebody changes at the same time.
const TRIES: usize = 20;

/// Why an archive was not written or read. Nothing was imported then but for what [`Error::Store`] broke off.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read or written.
    #[error("failed to use the file of the archive")]
    File(#[from] io::Error),
    /// It is no archive, or not all of one.
    #[error("the archive is damaged: {0}")]
    Damaged(&'static str),
    /// There are objects of the same names, such as this one.
    #[error("{0} exists already; import with another policy for those that exist, or into an empty store")]
    Exists(Key),
    /// The store failed, or an object does not open.
    #[error(transparent)]
    Store(#[from] crate::Error),
}

/// The result of this module's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What to do with objects that exist already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Import nothing.
    Fail,
    /// Leave them as they are: an import that was broken off goes on.
    Skip,
    /// Replace those of the same uid by what is in the archive, and leave others.
    Replace,
}

/// What an export or an import has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Objects that were written: into the archive, or from it into the store.
    pub objects: u64,
    /// Objects that existed and were left.
    pub left: u64,
    /// Length of the payloads of these objects, in bytes.
    pub bytes: u64,
}

impl Store {
    /// Writes all objects into an archive. Servers may go on meanwhile: each object is as it was at some moment of the export.
    ///
    /// # Errors
    /// [`Error::File`]; [`Error::Store`], also where an object cannot be read: an archive never leaves one out in silence.
    pub async fn export(&self, out: impl Write, mut progress: impl FnMut(Moved)) -> Result<Moved> {
        let core = &self.inner.core;
        let (mut file, mut moved) = (Hashed { inner: out, hash: blake3::Hasher::new() }, Moved::default());
        file.write_all(MAGIC)?;
        let mut records = Pages::new(core, path::REGISTRY, None, true);
        while let Some(page) = records.next().await? {
            for kv in page {
                if let Some(bytes) = self.export_one(&kv.key, &mut file).await? {
                    moved.objects += 1;
                    moved.bytes += bytes;
                    progress(moved);
                }
            }
        }
        let version = self.current().await?.0;
        frame(&mut file, END, &[&moved.objects.to_be_bytes(), &version.to_be_bytes()])?;
        let hash = file.hash.finalize();
        file.inner.write_all(hash.as_bytes())?;
        file.inner.flush()?;
        Ok(moved)
    }

    /// Bytes of its payload; `None` where it is gone meanwhile.
    async fn export_one(&self, path: &Bytes, file: &mut impl Write) -> Result<Option<u64>> {
        let core = &self.inner.core;
        for _ in 0..TRIES {
            let (Some(kv), at) = core.read(path).await? else { return Ok(None) };
            let object = core.open(kv.clone(), at).await?;
            let Some(chunks) = self.raw_chunks(&object, at).await? else { continue };
            let length = u16::try_from(path.len()).unwrap_or(u16::MAX).to_be_bytes();
            frame(file, RECORD, &[&length, path, &kv.value])?;
            for chunk in chunks {
                frame(file, CHUNK, &[&chunk])?;
            }
            return Ok(Some(object.payload_len));
        }
        let key = path::parse_record(path).map(|key| key.to_string()).unwrap_or_default();
        Err(crate::Error::Unavailable(format!("{key} changes faster than it can be read")).into())
    }

    /// The chunks of an object as they rest, each of them proved; `None` where this state of it is gone.
    async fn raw_chunks(&self, object: &Object, at: Revision) -> Result<Option<Vec<Bytes>>> {
        let core = &self.inner.core;
        let corrupt = |what| crate::Error::Corrupt { key: object.key.clone(), what };
        let cipher = object.record.key.cipher().map_err(|_| corrupt("cipher refused"))?;
        let mut all = Vec::new();
        for batch in object.record.payload.chunks().chunks(BATCH) {
            let keys = batch.iter().map(|chunk| path::chunk(object.uid, &chunk.id)).collect();
            let found = match core.backend.get_many(keys, at).await {
                Err(backend::Error::Compacted { .. }) => return Ok(None),
                found => found.map_err(|error| core.error(error))?,
            };
            for (chunk, kv) in batch.iter().zip(found) {
                let value = kv.ok_or_else(|| corrupt("a chunk is missing"))?.value;
                chunk::open(&cipher, object.uid, chunk, value.clone()).map_err(corrupt)?;
                all.push(value);
            }
        }
        Ok(Some(all))
    }

    /// Writes what is in an archive. All of it is read, opened and compared with what exists before anything is written. Afterwards
    /// versions are above all of the store it came from, also where that went on for a week after the export.
    ///
    /// # Assumptions
    /// Nobody is served from this store yet, as for [`Store::raise_past`].
    ///
    /// # Errors
    /// [`Error`].
    pub async fn import(
        &self,
        mut input: impl Read + Seek,
        existing: Existing,
        mut progress: impl FnMut(Moved),
    ) -> Result<Moved> {
        let end = prove_hash(&mut input)?;
        let mut moved = Moved::default();
        let mut archive = Archive::open(&mut input)?;
        while let Some(draft) = archive.next(self).await? {
            if existing == Existing::Fail && self.get(&draft.0).await?.is_some() {
                return Err(Error::Exists(draft.0));
            }
        }
        if archive.end != Some(end) {
            return Err(Error::Damaged("it holds another number of objects than it says"));
        }
        // First, so that this holds for an import that is broken off, too.
        self.raise_past(ResourceVersion(end.version.saturating_add(SERVED_ON))).await?;
        let mut archive = Archive::open(&mut input)?;
        while let Some((key, draft)) = archive.next(self).await? {
            let bytes = draft.payload.text().len() as u64;
            if self.import_one(&key, draft, existing).await? {
                moved.objects += 1;
                moved.bytes += bytes;
            } else {
                moved.left += 1;
            }
            progress(moved);
        }
        Ok(moved)
    }

    /// Whether it was written.
    async fn import_one(&self, key: &Key, draft: Draft, existing: Existing) -> Result<bool> {
        let Some(current) = self.get(key).await? else {
            return Ok(self.create(key, draft).await.map(|_| true)?);
        };
        match existing {
            Existing::Fail => Err(Error::Exists(key.clone())),
            Existing::Replace if current.uid == draft.uid => {
                Ok(self.update(&current, draft).await.map(|_| true)?)
            }
            Existing::Skip | Existing::Replace => Ok(false),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct End {
    objects: u64,
    version: u64,
}

/// An archive that is being read.
struct Archive<'a, R> {
    input: io::BufReader<&'a mut R>,
    objects: u64,
    end: Option<End>,
}

impl<'a, R: Read + Seek> Archive<'a, R> {
    fn open(input: &'a mut R) -> Result<Self> {
        input.seek(SeekFrom::Start(MAGIC.len() as u64))?;
        Ok(Self { input: io::BufReader::with_capacity(1 << 20, input), objects: 0, end: None })
    }

    /// The next object, opened; `None` at the end.
    async fn next(&mut self, store: &Store) -> Result<Option<(Key, Draft)>> {
        let (kind, body) = self.frame()?;
        match kind {
            END => {
                self.end = parse_end(&body).filter(|end| end.objects == self.objects);
                return Ok(None);
            }
            RECORD if body.len() > 2 => {}
            _ => return Err(Error::Damaged("a record is missing")),
        }
        let length = usize::from(u16::from_be_bytes([body[0], body[1]]));
        if body.len() < 2 + length {
            return Err(Error::Damaged("a record is cut off"));
        }
        let (path, value) = (body.slice(2..2 + length), body.slice(2 + length..));
        let kv = KeyValue { key: path, value, created: Revision(0), modified: Revision(0) };
        let object = store.inner.core.open(kv, Revision(0)).await?;
        let payload = self.payload(&object)?;
        self.objects += 1;
        let (meta, summary) = (object.meta.clone(), object.summary.clone());
        let draft = Draft { uid: object.uid, meta, summary, payload };
        Ok(Some((object.key, draft)))
    }

    fn payload(&mut self, object: &Object) -> Result<Segmented> {
        let corrupt = |what| crate::Error::Corrupt { key: object.key.clone(), what };
        let mut pieces = Vec::new();
        match &object.record.payload {
            Payload::Inline(packed) => pieces.push(packed.unpack().map_err(corrupt)?),
            Payload::InRecord => return Err(corrupt("its payload is not in its record").into()),
            Payload::Chunks(chunks) => {
                let cipher = object.record.key.cipher().map_err(|_| corrupt("cipher refused"))?;
                for chunk in chunks.iter() {
                    let (CHUNK, value) = self.frame()? else {
                        return Err(Error::Damaged("a chunk is missing"));
                    };
                    pieces.push(chunk::open(&cipher, object.uid, chunk, value).map_err(corrupt)?);
                }
            }
        }
        Ok(pieces.into())
    }

    fn frame(&mut self) -> Result<(u8, Bytes)> {
        let mut head = [0; 5];
        self.input.read_exact(&mut head)?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if length > MAX_FRAME {
            return Err(Error::Damaged("a part of it is longer than any can be"));
        }
        // Grows with what there is, not with what it says.
        let mut body = Vec::new();
        self.input.by_ref().take(length as u64).read_to_end(&mut body)?;
        if body.len() < length {
            return Err(Error::Damaged("a part of it is cut off"));
        }
        Ok((head[0], body.into()))
    }
}

fn parse_end(body: &[u8]) -> Option<End> {
    let number = |at| Some(u64::from_be_bytes(*body.get(at..at + 8)?.first_chunk::<8>()?));
    Some(End { objects: number(0)?, version: number(8)? })
}

/// Reads the file to its end; what its last part says.
fn prove_hash(input: &mut (impl Read + Seek)) -> Result<End> {
    let length = input.seek(SeekFrom::End(0))?;
    let tail = (5 + 16 + HASH) as u64;
    if length < MAGIC.len() as u64 + tail {
        return Err(Error::Damaged("it is shorter than an empty one"));
    }
    input.seek(SeekFrom::Start(0))?;
    let (mut hash, mut magic) = (blake3::Hasher::new(), [0; MAGIC.len()]);
    input.read_exact(&mut magic)?;
    if magic != *MAGIC {
        return Err(Error::Damaged("it does not begin as an archive does"));
    }
    hash.update(&magic);
    hash.update_reader(input.by_ref().take(length - (MAGIC.len() + HASH) as u64))?;
    let mut told = [0; HASH];
    input.read_exact(&mut told)?;
    if hash.finalize() != told {
        return Err(Error::Damaged("its hash is not that of its content"));
    }
    input.seek(SeekFrom::Start(length - tail))?;
    let mut end = [0; 5 + 16];
    input.read_exact(&mut end)?;
    let parsed = parse_end(&end[5..]).filter(|_| end[0] == END);
    parsed.ok_or(Error::Damaged("it does not end as an archive does"))
}

fn frame(out: &mut impl Write, kind: u8, parts: &[&[u8]]) -> Result<()> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let length = u32::try_from(length).map_err(|_| Error::Damaged("a part of it is too long"))?;
    out.write_all(&[kind])?;
    out.write_all(&length.to_be_bytes())?;
    Ok(parts.iter().try_for_each(|part| out.write_all(part))?)
}

/// Hashes what passes through.
struct Hashed<W> {
    inner: W,
    hash: blake3::Hasher,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
