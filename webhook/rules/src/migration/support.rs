//! What the CloudProfile and the Shoot demand of a seed.

use serde_json::Value;

use crate::{
    change::{Change, items_at, text_at},
    facts::Facts,
    finding::Finding,
    migration::SEED_NAME,
    shoot::{Seed, Shoot},
    travel::Travel,
};

/// Provider types and labels, by the CloudProfile.
pub(crate) fn selected(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some((seed, to)) = destination(change, facts) else { return Vec::new() };
    let selector = facts.cloud_profile.as_deref().and_then(|profile| profile.pointer("/spec/seedSelector"));
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
        seed.pointer("/metadata/labels").and_then(|labels| labels.get(key.as_str())) != Some(value)
    });
    for (key, value) in missing {
        let value = value.as_str().unwrap_or_default();
        let reason = format!("the CloudProfile wants seeds with label {key}={value}, and {to:?} has it not");
        findings.push(Finding::refuse(SEED_NAME, reason, "choose a seed that has it"));
    }
    findings
}

/// The region of the Shoot is one of its CloudProfile's: else its machines cannot be made anew after the move.
pub(crate) fn region(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some((_, to)) = destination(change, facts) else { return Vec::new() };
    let Some(profile) = facts.cloud_profile.as_deref() else { return Vec::new() };
    let Some(region) = text_at(&change.new, "/spec/region") else { return Vec::new() };
    let regions = items_at(profile, "/spec/regions");
    if regions.is_empty() || regions.iter().any(|one| text_at(one, "/name") == Some(region)) {
        return Vec::new();
    }
    let name = Shoot(&change.new).cloud_profile().unwrap_or_default();
    let reason = format!("region {region:?} of the Shoot is not among the regions of CloudProfile {name:?}");
    let advice = format!("add the region to the CloudProfile before the Shoot moves to {to:?}");
    vec![Finding::refuse("spec.region", reason, advice)]
}

/// Access restrictions of the Shoot.
pub(crate) fn restrictions(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some((seed, to)) = destination(change, facts) else { return Vec::new() };
    let supported = items_at(seed, "/spec/accessRestrictions");
    let wanted =
        items_at(&change.new, "/spec/accessRestrictions").iter().filter_map(|one| text_at(one, "/name"));
    let refuse = |name: &str| {
        let reason = format!("seed {to:?} does not support access restriction {name:?} of the Shoot");
        Finding::refuse(SEED_NAME, reason, "choose a seed that supports it")
    };
    wanted
        .filter(|name| !supported.iter().any(|one| text_at(one, "/name") == Some(*name)))
        .map(refuse)
        .collect()
}

fn destination<'a>(change: &'a Change, facts: &'a Facts) -> Option<(&'a Value, &'a str)> {
    let (_, to) = Travel::start(change)?;
    Some((facts.seed(to)?, to))
}
