//! Data of etcd travels through backups.

use repot_api::gardener::shoot::Seed;

use crate::{change::Change, facts::Facts, finding::Finding, migration::SEED_NAME};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some((from, to)) = change.seed_change().heads() else { return Vec::new() };
    let lacks = |name: &&str| facts.seed(name).is_some_and(|seed| !Seed(seed).has_backup());
    let refuse = |name: &str| {
        let reason =
            format!("seed {name:?} has no backup configured, and etcd's data travels through backups");
        Finding::refuse(SEED_NAME, reason, format!("set spec.backup of seed {name:?}"))
    };
    [from, to].into_iter().filter(lacks).map(refuse).collect()
}
