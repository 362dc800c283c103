//! Seeds between which a control plane is moved live are of one provider.

use repot_api::gardener::shoot::Seed;

use crate::{change::Change, facts::Facts, finding::Finding, live::start, migration::SEED_NAME};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some((from, to)) = start(change) else { return Vec::new() };
    let provider = |name| facts.seed(name).map(|seed| Seed(seed).provider().unwrap_or_default());
    match (provider(from), provider(to)) {
        (Some(one), Some(two)) if one != two => {
            let reason = format!(
                "a live migration stays with one provider, and this one would go from {one:?} to {two:?}"
            );
            vec![Finding::refuse(
                SEED_NAME,
                reason,
                "choose a seed of the same provider, or remove the trigger",
            )]
        }
        _ => Vec::new(),
    }
}
