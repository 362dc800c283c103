//! Manifests: small keys that name chunks which perhaps no record names. The collector looks at those chunks only, and so
//! never walks over the chunks themselves, whose values etcd would read.
//!
//! A manifest is a hint. Nothing is removed because a manifest names it: [`collect`](super::collect) judges each chunk. What
//! manifests are for is that no garbage is overlooked, so for every chunk that is there, at every revision, a record names
//! it or a manifest does:
//!
//! - The first transaction that puts chunks ahead of their record puts the manifest of that write, and the commit removes it.
//!   If the commit never happens, the manifest stays. It also stays where the answer to one of the requests that put chunks
//!   is unknown: such a request may still happen, as long as the intent is there.
//! - A commit that drops more chunks than fit into its transaction puts a manifest of those that are left.
//! - Where the list does not fit, the manifest names none, which means: all chunks of this uid.
//!
//! Programs from before manifests write none. [`audit`](super::audit) finds what they leave.

use bytes::Bytes;
use uuid::Uuid;

use super::path;
use crate::{backend::Op, chunk, seal};

const FORMAT: u8 = 1;

/// The chunks that a manifest names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// These.
    These(Vec<chunk::Id>),
    /// Every chunk of the uid.
    All,
}

/// The value of a manifest. No chunks: all of the uid.
pub(super) fn value(ids: &[chunk::Id]) -> Bytes {
    let mut value = Vec::with_capacity(1 + ids.len() * chunk::ID);
    value.push(FORMAT);
    value.extend(ids.iter().flatten());
    value.into()
}

/// Reads a value; `None` where it is of another format.
pub(crate) fn read(value: &[u8]) -> Option<Named> {
    let (&FORMAT, list) = value.split_first()? else { return None };
    let (ids, rest) = list.as_chunks::<{ chunk::ID }>();
    match (ids, rest) {
        ([], []) => Some(Named::All),
        (ids, []) => Some(Named::These(ids.to_vec())),
        _ => None,
    }
}

/// A manifest of all chunks of a uid.
pub(super) fn of_all(uid: Uuid) -> Result<Op, seal::Refused> {
    Ok(Op::Put(path::manifest(u64::from_be_bytes(seal::random()?), 0, uid), value(&[])))
}

/// Chunks that a transaction drops and cannot remove by itself.
pub(super) struct Left {
    uid: Uuid,
    ids: Vec<chunk::Id>,
    manifest: Bytes,
}

impl Left {
    /// Leaves in `dropped`, the keys of chunks of this uid, the first `most`. The rest is what is left; `None`: nothing is.
    pub(super) fn split(
        uid: Uuid,
        dropped: &mut Vec<Bytes>,
        most: usize,
    ) -> Result<Option<Self>, seal::Refused> {
        let later = dropped.split_off(dropped.len().min(most));
        if later.is_empty() {
            return Ok(None);
        }
        let id = |key: &Bytes| match path::parse_chunk(key) {
            Some(path::Beneath::Chunk(_, id)) => Some(id),
            _ => None,
        };
        let ids = later.iter().filter_map(id).collect();
        let manifest = path::manifest(u64::from_be_bytes(seal::random()?), 0, uid);
        Ok(Some(Self { uid, ids, manifest }))
    }

    /// What the transaction that drops them puts: a list where that has no more than `room` bytes.
    pub(super) fn op(&self, room: usize) -> Op {
        let fits = self.manifest.len() + 1 + self.ids.len() * chunk::ID <= room;
        Op::Put(self.manifest.clone(), value(if fits { &self.ids } else { &[] }))
    }

    /// The keys to remove after the transaction, the manifest last: it stays until all of them are gone.
    pub(super) fn keys(&self) -> Vec<Bytes> {
        let chunks = self.ids.iter().map(|id| path::chunk(self.uid, id));
        chunks.chain([self.manifest.clone()]).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn mk_ids(count: u32) -> Vec<chunk::Id> {
        (0..count).map(|n| chunk::name([7; 16], 1, n)).collect()
    }

    #[test]
    fn lists_come_back() {
        let ids = mk_ids(3);
        assert_eq!(read(&value(&ids)), Some(Named::These(ids.clone())));
        assert_eq!(read(&value(&[])), Some(Named::All));
        let whole = value(&ids);
        for foreign in [&b""[..], &whole[1..], &whole[..whole.len() - 1], b"\x02"] {
            assert_eq!(read(foreign), None, "{foreign:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_left_and_named() {
        let (uid, ids) = (Uuid::from_u128(7), mk_ids(5));
        let all: Vec<_> = ids.iter().map(|id| path::chunk(uid, id)).collect();
        let mut now = all.clone();
        assert!(Left::split(uid, &mut now, 5).unwrap().is_none() && now == all);
        let left = Left::split(uid, &mut now, 2).unwrap().unwrap();
        assert_eq!(now, all[..2]);
        let named = |op: &Op| read(op.value().unwrap()).unwrap();
        assert_eq!(named(&left.op(10_000)), Named::These(ids[2..].to_vec()));
        assert_eq!(named(&left.op(100)), Named::All);
        let keys = left.keys();
        assert_eq!((keys.len(), path::parse_manifest(&keys[3])), (4, Some(uid)));
        assert_eq!(keys[..3], all[2..]);
    }
}
