//! A spec that changes on the way leaves things behind that nobody deletes.

use repot_api::gardener::seed_change::SeedChange;

use crate::{change::Change, facts::Facts, finding::Finding, migration::changed_fields};

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<Finding> {
    // At the first binding Gardener's own plugins fill in the domain and networks of the Shoot (ShootDNS, ShootMutator).
    if matches!(change.seed_change(), SeedChange::Stay | SeedChange::Schedule | SeedChange::Unset { .. }) {
        return Vec::new();
    }
    let refuse = |field: String| {
        let reason = "only spec.seedName can change when a Shoot is moved";
        Finding::refuse(field, reason, "change it before, or after the migration")
    };
    changed_fields(change).map(refuse).collect()
}
