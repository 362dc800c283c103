//! What the snapshots of a store say of an etcd that follows them. Pure.

use repot_etcd_core::snapshot::{Kind, Revision, SnapshotName};

use super::held::Held;
use crate::snapshot::store::Stored;

/// The newest full snapshot beyond what is held. A final one does not count where an owner's time ends at what is held: keys whose
/// leases end between the final delta and that snapshot are nobody's loss.
pub(super) fn newest_beyond(names: &[SnapshotName], held: &Held) -> Option<SnapshotName> {
    let fulls = names.iter().filter(|name| name.kind == Kind::Full && name.last > held.reached());
    fulls.filter(|name| !(held.ended && name.is_final)).max().cloned()
}

/// Whether this snapshot says that nothing comes after a revision: it ends an owner's time there, or is a final one.
pub(super) fn ends(one: &Stored, reached: Revision) -> bool {
    let is_final = one.name.kind == Kind::Full && one.name.is_final;
    one.name.last == reached && (one.ends_owner || is_final)
}

pub(super) fn has_full_after(all: &[Stored], delta: &SnapshotName) -> bool {
    all.iter().any(|one| one.name.kind == Kind::Full && one.name.last >= delta.last)
}
