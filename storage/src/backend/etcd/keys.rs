//! Between keys of the contract and keys of etcd, which carry a prefix. Does no I/O.

use std::ops::Range;

use bytes::Bytes;
use etcd_client::proto::PbKeyValue;

use super::super::{KeyValue, Revision, prefix_range};

/// What all keys begin with.
#[derive(Clone, Debug)]
pub(super) struct Prefix(Bytes);

impl Prefix {
    pub(super) fn new(prefix: &str) -> Self {
        Self(Bytes::copy_from_slice(prefix.as_bytes()))
    }

    /// The key in etcd.
    pub(super) fn add(&self, key: &[u8]) -> Vec<u8> {
        [&self.0, key].concat()
    }

    /// The bounds in etcd, whose keys are never empty and for which a NUL as the end means "no end".
    pub(super) fn range(&self, keys: &Range<Bytes>) -> (Vec<u8>, Vec<u8>) {
        let end = match (keys.end.is_empty(), self.0.is_empty()) {
            (true, true) => vec![0],
            (true, false) => prefix_range(&self.0).end.to_vec(),
            (false, _) => self.add(&keys.end),
        };
        (never_empty(self.add(&keys.start)), never_empty(end))
    }

    /// A version as the contract shows it.
    pub(super) fn strip(&self, found: PbKeyValue) -> KeyValue {
        KeyValue {
            key: Bytes::from(found.key).split_off(self.0.len()),
            value: found.value.into(),
            created: Revision(u64::try_from(found.create_revision).unwrap_or(0)),
            modified: Revision(u64::try_from(found.mod_revision).unwrap_or(0)),
        }
    }
}

fn never_empty(key: Vec<u8>) -> Vec<u8> {
    if key.is_empty() { vec![0] } else { key }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_stay_under_the_prefix() {
        let prefix = Prefix::new("/p");
        let range = |start: &'static str, end: &'static str| prefix.range(&(start.into()..end.into()));
        assert_eq!(range("/a", "/b"), (b"/p/a".to_vec(), b"/p/b".to_vec()));
        assert_eq!(range("", ""), (b"/p".to_vec(), b"/q".to_vec()));
        let none = Prefix::new("");
        assert_eq!(none.range(&(Bytes::new()..Bytes::new())), (vec![0], vec![0]));
    }
}
