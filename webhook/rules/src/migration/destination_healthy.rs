//! A seed that cannot run what it has takes nothing more.

use crate::{
    change::Change,
    facts::Facts,
    finding::Finding,
    migration::{SEED_NAME, health_problems},
};

/// The destination has to be healthy; a source that is not can only be waited for.
pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some((from, to)) = change.seed_change().heads() else { return Vec::new() };
    let mut findings = Vec::new();
    if let Some(health_problems) = health_problems(facts, to) {
        let reason = format!("destination seed {to:?} is not healthy: {health_problems}");
        let advice = format!("repair it or choose another seed: kubectl get seed {to} -o yaml");
        findings.push(Finding::refuse(SEED_NAME, reason, advice));
    }
    if let Some(health_problems) = health_problems(facts, from) {
        let role = if change.seed_change().start().is_some() { "source" } else { "former destination" };
        let reason = format!("{role} seed {from:?} is not healthy: {health_problems}");
        let advice = "the migration waits for it; where it will not come back, see forced restore";
        findings.push(Finding::warn(SEED_NAME, reason, advice));
    }
    findings
}
