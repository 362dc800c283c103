//! How versions and the log look on disk. Nothing in here does I/O.
//!
//! ```text
//! versions   key 0x00 revision                 -> flags created seq length [value, where it is small]
//! values     revision seq                      -> value, where it is not small
//! log        revision seq                      -> flags previous-revision previous-seq previous-length key
//! meta       "format" | "floor" | "swept" | "ephemeral" 0x00 key
//! ```
//! Numbers are big endian, so that byte order is numeric order. `seq` is the place of a change within its transaction.

use bytes::Bytes;

use super::super::{Error, Result, Revision};

/// Values of this size and more rest apart from their version, where merging of tables does not write them again.
pub(super) const SMALL: usize = 4096;
/// Bytes of a version before an inline value.
pub(super) const VERSION_HEADER: usize = 17;
const LOG_HEADER: usize = 17;

const REMOVED: u8 = 1;
const APART: u8 = 2;
const EPHEMERAL: u8 = 4;

/// What is known of one version of one key without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Revision of the transaction that wrote this version.
    pub modified: u64,
    /// Came into being at.
    pub created: u64,
    /// Place within the transaction.
    pub seq: u32,
    /// Bytes of the value.
    pub len: u32,
    /// The key is absent from here on.
    pub removed: bool,
    /// The value rests in `values`.
    pub apart: bool,
    /// The key is swept when the store is opened.
    pub ephemeral: bool,
}

impl Head {
    /// The version of a key that this transaction removes.
    pub(super) fn removal(modified: u64, seq: u32) -> Self {
        Self { modified, created: 0, seq, len: 0, removed: true, apart: false, ephemeral: false }
    }

    /// `key 0x00 revision`
    pub(super) fn key(&self, key: &[u8]) -> Vec<u8> {
        version_key(key, self.modified)
    }

    /// Where the value rests if it rests apart.
    pub(super) fn place(&self) -> [u8; 12] {
        place(self.modified, self.seq)
    }

    /// The stored form, followed by `inline`.
    pub(super) fn encode(&self, inline: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(VERSION_HEADER + inline.len());
        out.push(flag(self.removed, REMOVED) | flag(self.apart, APART) | flag(self.ephemeral, EPHEMERAL));
        out.extend_from_slice(&self.created.to_be_bytes());
        out.extend_from_slice(&self.seq.to_be_bytes());
        out.extend_from_slice(&self.len.to_be_bytes());
        out.extend_from_slice(inline);
        out
    }

    /// Reads the stored form of the version that was written at `modified`.
    pub(super) fn decode(modified: u64, stored: &[u8]) -> Result<Self> {
        let header = stored.first_chunk::<VERSION_HEADER>().ok_or_else(|| corrupt("version"))?;
        let flags = header[0];
        Ok(Self {
            modified,
            created: number(&header[1..9]),
            seq: number32(&header[9..13]),
            len: number32(&header[13..17]),
            removed: flags & REMOVED != 0,
            apart: flags & APART != 0,
            ephemeral: flags & EPHEMERAL != 0,
        })
    }
}

/// One change, as the log keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The revision of the transaction.
    pub revision: u64,
    /// Place within the transaction.
    pub seq: u32,
    /// The change removed the key.
    pub removed: bool,
    /// The version that was current before; none where the key was absent.
    pub previous: Option<Previous>,
    /// The key that was changed; no NUL byte.
    pub key: Bytes,
}

/// The version that a change superseded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Previous {
    /// Revision of the transaction that wrote it.
    pub modified: u64,
    /// Place within its transaction.
    pub seq: u32,
    /// Bytes of its value.
    pub len: u32,
    /// Its value rests in `values`.
    pub apart: bool,
}

impl From<Head> for Previous {
    fn from(head: Head) -> Self {
        Self { modified: head.modified, seq: head.seq, len: head.len, apart: head.apart }
    }
}

impl Entry {
    /// `revision seq`
    pub(super) fn place(&self) -> [u8; 12] {
        place(self.revision, self.seq)
    }

    /// The stored form.
    pub(super) fn encode(&self) -> Vec<u8> {
        let none = Previous { modified: 0, seq: 0, len: 0, apart: false };
        let previous = self.previous.unwrap_or(none);
        let mut out = Vec::with_capacity(LOG_HEADER + self.key.len());
        out.push(flag(self.removed, REMOVED) | flag(previous.apart, APART));
        out.extend_from_slice(&previous.modified.to_be_bytes());
        out.extend_from_slice(&previous.seq.to_be_bytes());
        out.extend_from_slice(&previous.len.to_be_bytes());
        out.extend_from_slice(&self.key);
        out
    }

    /// Reads the stored form.
    pub(super) fn decode(place: &[u8], stored: &[u8]) -> Result<Self> {
        let place = place.first_chunk::<12>().ok_or_else(|| corrupt("log place"))?;
        let (header, key) = stored.split_first_chunk::<LOG_HEADER>().ok_or_else(|| corrupt("log entry"))?;
        let modified = number(&header[1..9]);
        let previous = (modified != 0).then(|| Previous {
            modified,
            seq: number32(&header[9..13]),
            len: number32(&header[13..17]),
            apart: header[0] & APART != 0,
        });
        Ok(Self {
            revision: number(&place[..8]),
            seq: number32(&place[8..]),
            removed: header[0] & REMOVED != 0,
            previous,
            key: Bytes::copy_from_slice(key),
        })
    }
}

/// `key 0x00 revision`
pub(super) fn version_key(key: &[u8], revision: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len() + 9);
    out.extend_from_slice(key);
    out.push(0);
    out.extend_from_slice(&revision.to_be_bytes());
    out
}

/// The key and the revision of a key of `versions`.
pub(super) fn split_version_key(stored: &[u8]) -> Result<(&[u8], u64)> {
    let at = stored.len().checked_sub(9).ok_or_else(|| corrupt("version key"))?;
    Ok((&stored[..at], number(&stored[at + 1..])))
}

/// `revision seq`
pub(super) fn place(revision: u64, seq: u32) -> [u8; 12] {
    let mut out = [0; 12];
    out[..8].copy_from_slice(&revision.to_be_bytes());
    out[8..].copy_from_slice(&seq.to_be_bytes());
    out
}

/// The first place after all of a revision.
pub(super) fn after(revision: u64) -> [u8; 12] {
    place(revision.saturating_add(1), 0)
}

/// The mark of an ephemeral key in `meta`.
pub(super) fn ephemeral_mark(key: &[u8]) -> Vec<u8> {
    [EPHEMERAL_MARKS, key].concat()
}

/// What all marks of ephemeral keys begin with.
pub(super) const EPHEMERAL_MARKS: &[u8] = b"ephemeral\0";

/// A stored number.
pub(super) fn decode_revision(stored: &[u8]) -> Result<Revision> {
    stored.first_chunk::<8>().map(|raw| Revision(u64::from_be_bytes(*raw))).ok_or_else(|| corrupt("number"))
}

fn corrupt(what: &str) -> Error {
    Error::Corrupt(format!("a {what} is shorter than its header"))
}

fn flag(set: bool, bit: u8) -> u8 {
    if set { bit } else { 0 }
}

fn number(raw: &[u8]) -> u64 {
    raw.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

fn number32(raw: &[u8]) -> u32 {
    raw.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn versions_come_back_as_stored(
            modified in 1u64.., created: u64, seq: u32, len: u32, removed: bool, apart: bool, ephemeral: bool,
            inline: Vec<u8>,
        ) {
            let head = Head { modified, created, seq, len, removed, apart, ephemeral };
            let stored = head.encode(&inline);
            prop_assert_eq!(Head::decode(modified, &stored).unwrap(), head);
            prop_assert_eq!(&stored[VERSION_HEADER..], &inline[..]);
        }

        #[test]
        fn log_entries_come_back_as_stored(
            revision: u64, seq: u32, removed: bool, key: Vec<u8>,
            previous in proptest::option::of((1u64.., any::<u32>(), any::<u32>(), any::<bool>())),
        ) {
            let previous = previous.map(|(modified, seq, len, apart)| Previous { modified, seq, len, apart });
            let entry = Entry { revision, seq, removed, previous, key: key.into() };
            prop_assert_eq!(Entry::decode(&entry.place(), &entry.encode()).unwrap(), entry);
        }

        #[test]
        fn version_keys_sort_by_key_then_revision(
            a in "[a-c/]{1,4}", b in "[a-c/]{1,4}", at: u64, bt: u64,
        ) {
            let order = (a.as_bytes(), at).cmp(&(b.as_bytes(), bt));
            prop_assert_eq!(version_key(a.as_bytes(), at).cmp(&version_key(b.as_bytes(), bt)), order);
        }
    }

    #[test]
    fn short_records_are_corrupt_not_a_panic() {
        assert!(matches!(Head::decode(1, &[0; 16]), Err(Error::Corrupt(_))));
        assert!(matches!(Entry::decode(&[0; 12], &[0; 16]), Err(Error::Corrupt(_))));
        assert!(matches!(Entry::decode(&[0; 11], &[0; 17]), Err(Error::Corrupt(_))));
        assert!(matches!(split_version_key(&[0; 8]), Err(Error::Corrupt(_))));
    }
}
