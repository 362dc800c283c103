//! Where the subresource exists, permissions hang on it.

use repot_api::gardener::{seed_change::SeedChange, shoot::Shoot};

use crate::{change::Change, facts::Facts, finding::Finding, migration::SEED_NAME};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let changes =
        !matches!(change.seed_change(), SeedChange::Stay | SeedChange::Schedule | SeedChange::Unset { .. });
    if !changes || !facts.binding || change.target.subresource == "binding" {
        return Vec::new();
    }
    let seed = |object| Shoot(object).spec_seed().unwrap_or_default().to_owned();
    let reason = format!(
        "the seed cannot be changed from {:?} to {:?} by writing the Shoot itself",
        seed(&change.old),
        seed(&change.new)
    );
    vec![Finding::refuse(SEED_NAME, reason, "write the subresource shoots/binding")]
}
