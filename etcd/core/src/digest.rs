//! What an etcd or a backup holds, in one line that can be compared.

use crate::snapshot::Revision;

/// What an etcd or a backup holds, without keys that hang on a lease: etcd itself removes those when their lease ends, and each
/// removal raises the revision, also while no API server runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    /// How far it reaches.
    pub revision: Revision,
    /// Number of keys, without those that hang on a lease.
    pub keys: u64,
    /// Hash over keys, values and their versions.
    pub hash: String,
}

impl Digest {
    /// Whether `self` holds what `earlier` holds, and does not lag behind it.
    #[must_use]
    pub fn continues(&self, earlier: &Self) -> bool {
        self.keys == earlier.keys && self.hash == earlier.hash && self.revision >= earlier.revision
    }
}
