//! Asking the rules.

use repot_apimachinery::value::{at, raw_annotation_of};
use serde_json::Value;

use crate::{
    change::{Change, Operation},
    facts::Facts,
    finding::{Finding, PatchOp, Verdict, apply},
    table::{Judge, RULES, Rule},
    watch::Watch,
};

/// Rules of one webhook.
pub fn rules_of(watch: &'static Watch) -> impl Iterator<Item = &'static Rule> {
    let source = watch.rules_of.unwrap_or(watch);
    RULES.iter().filter(move |rule| rule.watches.iter().any(|own| std::ptr::eq(*own, source)))
}

/// Everything that the validating rules of a webhook have to say.
#[must_use]
pub fn validate(watch: &'static Watch, change: &Change, facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    // What takes the last finalizer from an object that ends is never in the way.
    let only_ends = change.operation == Operation::Update
        && change.is_ending()
        && same_but_metadata(change)
        && !sets_annotations(change);
    for rule in rules_of(watch).filter(|_| !only_ends) {
        let Judge::Validate(judge) = rule.judge else { continue };
        findings
            .extend(judge(change, facts).into_iter().map(|finding| Finding { rule: rule.name, ..finding }));
    }
    findings
}

fn same_but_metadata(change: &Change) -> bool {
    let rest = |object: &'_ Value, other: &'_ Value| {
        let members = object.as_object().into_iter().flatten();
        members.filter(|(key, _)| *key != "metadata").all(|(key, value)| other.get(key) == Some(value))
    };
    rest(&change.old, &change.new) && rest(&change.new, &change.old)
}

fn sets_annotations(change: &Change) -> bool {
    let new = at(&change.new, "/metadata/annotations").and_then(Value::as_object);
    new.into_iter().flatten().any(|(key, value)| raw_annotation_of(&change.old, key) != value.as_str())
}

/// All that the mutating rules of a webhook change, which is done to `change` as well. Nothing on deletion.
#[must_use]
pub fn mutate(watch: &'static Watch, change: &mut Change, facts: &Facts) -> Vec<PatchOp> {
    if change.operation == Operation::Delete || !change.new.is_object() {
        return Vec::new();
    }
    let mut patch = Vec::new();
    for rule in rules_of(watch) {
        let Judge::Mutate(judge) = rule.judge else { continue };
        let ops = judge(change, facts);
        apply(&mut change.new, &ops);
        patch.extend(ops);
    }
    patch
}

/// Whether a change goes through.
#[must_use]
pub fn allows(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.verdict != Verdict::Refuse)
}
