//! The source of a live migration is healthy too: both work at it together.

use crate::{
    change::Change,
    facts::Facts,
    finding::Finding,
    live::start,
    migration::{SEED_NAME, ailments},
};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some((from, _)) = start(change) else { return Vec::new() };
    let reason = match (facts.seed(from), ailments(facts, from)) {
        (None, _) => format!("there is no source seed {from:?} any more"),
        (_, Some(ailments)) => format!("source seed {from:?} is not healthy: {ailments}"),
        _ => return Vec::new(),
    };
    vec![Finding::refuse(SEED_NAME, reason, "repair it, or remove the trigger to migrate with downtime")]
}
