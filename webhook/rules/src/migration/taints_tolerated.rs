//! Seeds that are kept for some Shoots.

use repot_apimachinery::value::{items_at, text_at};
use serde_json::Value;

use crate::{change::Change, facts::Facts, finding::Finding, migration::SEED_NAME};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some((_, to)) = change.seed_change().heads() else { return Vec::new() };
    let Some(seed) = facts.seed(to) else { return Vec::new() };
    let tolerations = items_at(&change.new, "/spec/tolerations");
    let tolerated = |taint: &&Value| tolerations.iter().any(|toleration| tolerates(toleration, taint));
    let left = items_at(seed, "/spec/taints").iter().filter(|taint| !tolerated(taint));
    let keys: Vec<&str> = left.filter_map(|taint| text_at(taint, "/key")).collect();
    if keys.is_empty() {
        return Vec::new();
    }
    let reason = format!("seed {to:?} has taints that the Shoot does not tolerate: {}", keys.join(", "));
    vec![Finding::refuse(SEED_NAME, reason, "add them to spec.tolerations first, or choose another seed")]
}

/// A toleration without a value tolerates all values of its key.
fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let value = text_at(toleration, "/value");
    text_at(toleration, "/key") == text_at(taint, "/key")
        && (value.is_none() || value == text_at(taint, "/value"))
}
