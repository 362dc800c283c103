//! Since when nothing points to an object: kept in the object store, beside the objects, so that it outlives processes.
//!
//! ```text
//! "RPUN" ++ format (1) ++ pass (16) ++ entries ++ BLAKE3 of all before (32)
//! entry: name of the object (16) ++ milliseconds since 1970 (8) ++ revision (8)
//! ```
//!
//! Each pass of the collector has a name, which it puts into the backend below, too. Where the two differ, the backend was put
//! back to an older copy of itself, or a pass did not come to its end. Then what the ledger tells may be about a history that
//! never happened: it is forgotten, and every object that is not pointed to is kept for all of its retention from now on.

use std::collections::HashMap;

use bytes::Bytes;
use uuid::Uuid;

use crate::backend::Revision;

const MAGIC: &[u8; 4] = b"RPUN";
const FORMAT: u8 = 1;
const HEAD: usize = 4 + 1 + 16;
const ENTRY: usize = 16 + 8 + 8;
const HASH: usize = 32;

/// When it was first seen that nothing points to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Since {
    /// By the clock of the object store, in milliseconds since 1970; not before the last pointer went.
    pub millis: u64,
    /// At this revision nothing pointed to it.
    pub at: Revision,
}

/// The ledger that one pass wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ledger {
    /// The name of the pass.
    pub pass: Uuid,
    /// Objects to which nothing points.
    pub objects: HashMap<Uuid, Since>,
}

impl Ledger {
    /// As it is stored.
    pub fn bytes(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(HEAD + self.objects.len() * ENTRY + HASH);
        bytes.extend_from_slice(MAGIC);
        bytes.push(FORMAT);
        bytes.extend_from_slice(self.pass.as_bytes());
        for (name, since) in &self.objects {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(&since.millis.to_be_bytes());
            bytes.extend_from_slice(&since.at.0.to_be_bytes());
        }
        let hash = blake3::hash(&bytes);
        bytes.extend_from_slice(hash.as_bytes());
        bytes.into()
    }

    /// Reads what is stored; `None` where that is no whole ledger of this format.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (told, hash) = bytes.split_last_chunk::<HASH>()?;
        if blake3::hash(told) != *hash || told.len() < HEAD || &told[..4] != MAGIC || told[4] != FORMAT {
            return None;
        }
        let (head, list) = told.split_at(HEAD);
        let (entries, []) = list.as_chunks::<ENTRY>() else { return None };
        let number = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        let entry = |entry: &[u8; ENTRY]| {
            let since = Since { millis: number(&entry[16..]), at: Revision(number(&entry[24..])) };
            Some((Uuid::from_slice(&entry[..16]).ok()?, since))
        };
        Some(Self {
            pass: Uuid::from_slice(&head[5..]).ok()?,
            objects: entries.iter().filter_map(entry).collect(),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_comes_back_whole_or_not_at_all() {
        let since = |n: u64| Since { millis: 1_700_000_000_000 + n, at: Revision(n) };
        let objects = (0..5).map(|n| (Uuid::from_u128(n.into()), since(n))).collect();
        let ledger = Ledger { pass: Uuid::from_u128(99), objects };
        let bytes = ledger.bytes();
        assert_eq!(Ledger::read(&bytes), Some(ledger));
        assert_eq!(Ledger::read(&Ledger::default().bytes()), Some(Ledger::default()));
        for cut in [0, 10, bytes.len() - 1, bytes.len() - ENTRY] {
            assert_eq!(Ledger::read(&bytes[..cut]), None);
        }
        let mut other = bytes.to_vec();
        other[HEAD + 3] ^= 1;
        assert_eq!(Ledger::read(&other), None);
    }
}
