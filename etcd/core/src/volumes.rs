//! The volumes of the members of an etcd.

use std::fmt;

/// Name of a set of volumes, one for each member. The StatefulSet's claim template carries it, so that the volumes of two sets
/// exist side by side.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeSet(pub String);

impl fmt::Display for VolumeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
