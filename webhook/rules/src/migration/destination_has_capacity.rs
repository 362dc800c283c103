//! Room on the destination.

use repot_apimachinery::value::at;
use serde_json::Value;

use crate::{change::Change, facts::Facts, finding::Finding, migration::SEED_NAME};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some((_, to)) = change.seed_change().heads() else { return Vec::new() };
    let most = facts.seed(to).and_then(|seed| quantity(at(seed, "/status/allocatable/shoots")?));
    let used = facts.shoots_on.get(to).copied().unwrap_or(0);
    match most.filter(|most| used >= *most) {
        None => Vec::new(),
        Some(most) => {
            let reason = format!(
                "seed {to:?} has {used} Shoots, those on their way included, of {most} that it can have"
            );
            vec![Finding::refuse(SEED_NAME, reason, "choose another seed, or move Shoots away from it first")]
        }
    }
}

/// A whole number, as text or as a number, also with a decimal suffix.
fn quantity(value: &Value) -> Option<u64> {
    let Some(text) = value.as_str() else { return value.as_u64() };
    match text.strip_suffix('k') {
        Some(thousands) => thousands.parse::<u64>().ok()?.checked_mul(1000),
        None => text.parse().ok(),
    }
}
