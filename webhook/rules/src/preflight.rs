//! A move that nobody has asked for yet, judged by all rules that its write would meet. `repot preflight` and the webhooks so
//! agree: one table, one set of rules.

use repot_api::{
    gardener::shoot::Shoot,
    names::{CORE_GROUP, LIVE_MIGRATE},
};
use repot_apimachinery::value::text_at;
use serde_json::{Value, json};

use crate::{
    change::{Change, Operation, Target, User},
    facts::Facts,
    finding::Finding,
    judge,
    watch::{WATCHES, Watch},
};

/// The write that would move a Shoot to a seed: of the subresource where the cluster has it, with the trigger if `live`.
#[must_use]
pub fn change(shoot: &Value, to: &str, live: bool, binding: bool) -> Change {
    let mut new = shoot.clone();
    if let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("seedName".to_owned(), json!(to));
    }
    if live && let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut) {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(LIVE_MIGRATE.to_owned(), json!("true"));
        }
    }
    let text = |path| text_at(shoot, path).unwrap_or_default().to_owned();
    let target = Target {
        group: CORE_GROUP.to_owned(),
        resource: "shoots".to_owned(),
        subresource: if binding { "binding".to_owned() } else { String::new() },
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name"),
    };
    Change { operation: Operation::Update, target, user: User::default(), old: shoot.clone(), new }
}

/// What all webhooks would say that may be asked about a Shoot or its binding, each finding once.
#[must_use]
pub fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for watch in WATCHES.iter().filter(|watch| !watch.mutating && is_of_shoots(watch)) {
        for finding in judge::validate(watch, change, facts) {
            if !findings.contains(&finding) {
                findings.push(finding);
            }
        }
    }
    let stays = Shoot(&change.old).spec_seed() == Shoot(&change.new).spec_seed();
    let rule = "different-seed";
    if stays && !findings.iter().any(|finding| finding.rule == rule) {
        let finding =
            Finding::refuse("spec.seedName", "the Shoot is on this seed already", "name another seed");
        findings.push(Finding { rule, ..finding });
    }
    findings
}

fn is_of_shoots(watch: &Watch) -> bool {
    watch.matches.iter().any(|matches| {
        matches.groups.contains(&CORE_GROUP)
            && matches.operations.contains(&Operation::Update.as_str())
            && matches.resources.iter().any(|resource| matches!(*resource, "shoots" | "shoots/binding"))
    })
}
