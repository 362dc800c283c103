//! The source of a live migration is healthy too: both work at it together.

use crate::{
    change::Change,
    facts::Facts,
    finding::Finding,
    live::start,
    migration::{SEED_NAME, health_problems},
};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some((from, _)) = start(change) else { return Vec::new() };
    let reason = match (facts.seed(from), health_problems(facts, from)) {
        (None, _) => format!("there is no source seed {from:?} any more"),
        (_, Some(health_problems)) => format!("source seed {from:?} is not healthy: {health_problems}"),
        _ => return Vec::new(),
    };
    vec![Finding::refuse(SEED_NAME, reason, "repair it, or remove the trigger to migrate with downtime")]
}
