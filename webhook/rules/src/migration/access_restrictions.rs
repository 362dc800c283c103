//! The destination supports the access restrictions of the Shoot.

use repot_apimachinery::value::{items_at, text_at};

use crate::{
    change::Change,
    facts::Facts,
    finding::Finding,
    migration::{SEED_NAME, destination},
};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some((seed, to)) = destination(change, facts) else { return Vec::new() };
    let supported = items_at(seed, "/spec/accessRestrictions");
    let wanted =
        items_at(&change.new, "/spec/accessRestrictions").iter().filter_map(|one| text_at(one, "/name"));
    let refuse = |name: &str| {
        let reason = format!("seed {to:?} does not support access restriction {name:?} of the Shoot");
        Finding::refuse(SEED_NAME, reason, "choose a seed that supports it")
    };
    wanted
        .filter(|name| !supported.iter().any(|one| text_at(one, "/name") == Some(*name)))
        .map(refuse)
        .collect()
}
