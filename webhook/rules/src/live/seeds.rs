//! Seeds between which a control plane can be moved live.

use crate::{
    change::Change,
    facts::Facts,
    finding::Finding,
    live::start,
    migration::{SEED_NAME, healthy::ailments},
    shoot::Seed,
};

/// Both are of one provider.
pub(crate) fn same_provider(change: &Change, facts: &Facts) -> Vec<Finding> {
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

/// The source is healthy too: both work at it together.
pub(crate) fn source_healthy(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some((from, _)) = start(change) else { return Vec::new() };
    let reason = match (facts.seed(from), ailments(facts, from)) {
        (None, _) => format!("there is no source seed {from:?} any more"),
        (_, Some(ailments)) => format!("source seed {from:?} is not healthy: {ailments}"),
        _ => return Vec::new(),
    };
    vec![Finding::refuse(SEED_NAME, reason, "repair it, or remove the trigger to migrate with downtime")]
}
