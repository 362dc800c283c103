//! The internal domain is the same on both seeds.

use repot_apimachinery::value::text_at;

use crate::{change::Change, facts::Facts, finding::Finding, migration::SEED_NAME};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some((from, to)) = change.seed_change().heads() else { return Vec::new() };
    let domain = |name| facts.seed(name).and_then(|seed| text_at(seed, "/spec/dns/internal/domain"));
    match (domain(from), domain(to)) {
        (Some(one), Some(two)) if one != two => {
            let reason = format!("the internal domain would change from {one:?} to {two:?}");
            vec![Finding::refuse(SEED_NAME, reason, "choose a seed with the same internal domain")]
        }
        _ => Vec::new(),
    }
}
