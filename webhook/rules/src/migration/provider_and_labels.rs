//! Provider types and labels that the CloudProfile wants of a seed.

use repot_api::gardener::shoot::Seed;
use repot_apimachinery::value::{at, items_at, text_at};
use serde_json::Value;

use crate::{
    change::Change,
    facts::Facts,
    finding::Finding,
    migration::{SEED_NAME, destination},
};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some((seed, to)) = destination(change, facts) else { return Vec::new() };
    let selector = facts.cloud_profile.as_deref().and_then(|profile| at(profile, "/spec/seedSelector"));
    let selector = selector.unwrap_or(&Value::Null);
    let provider = Seed(seed).provider().unwrap_or_default();
    let own = text_at(&change.new, "/spec/provider/type").unwrap_or_default();
    let listed: Vec<&str> = items_at(selector, "/providerTypes").iter().filter_map(Value::as_str).collect();
    let mut findings = Vec::new();
    if !listed.is_empty() && !listed.contains(&"*") && !listed.contains(&provider) {
        let reason =
            format!("seed {to:?} is of provider {provider:?}; the CloudProfile allows {}", listed.join(", "));
        findings.push(Finding::refuse(SEED_NAME, reason, "choose a seed of one of these providers"));
    } else if listed.is_empty() && provider != own {
        let reason = format!("seed {to:?} is of provider {provider:?}, the Shoot of {own:?}");
        findings.push(Finding::warn(
            SEED_NAME,
            reason,
            "backups are copied between the two providers; see that both can be reached",
        ));
    }
    let labels = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let missing = labels.filter(|(key, value)| {
        at(seed, "/metadata/labels").and_then(|labels| labels.get(key.as_str())) != Some(value)
    });
    for (key, value) in missing {
        let value = value.as_str().unwrap_or_default();
        let reason = format!("the CloudProfile wants seeds with label {key}={value}, and {to:?} has it not");
        findings.push(Finding::refuse(SEED_NAME, reason, "choose a seed that has it"));
    }
    findings
}
