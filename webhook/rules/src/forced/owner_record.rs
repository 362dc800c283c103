//! Records that say which seed owns a control plane.

use repot_apimachinery::value::{is_ending, text_at};
use serde_json::Value;

use crate::{
    change::{Change, Operation},
    facts::Facts,
    finding::Finding,
    state::by_controllers,
};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    if !is_owner(&change.old) && !is_owner(&change.new) {
        return Vec::new();
    }
    // Only what the record says and whether it is there counts: finalizers and status are others' affairs.
    let says = |object: &Value| object.get("spec").cloned();
    let touched = match change.operation {
        Operation::Update => says(&change.old) != says(&change.new),
        Operation::Delete => !is_ending(&change.old),
        Operation::Create => true,
    };
    let reason = "this record says which seed owns the control plane, and both seeds act on it";
    let advice = "leave it to the controllers; a migration passes it on";
    let finding = by_controllers(change, facts, "spec.values", reason, advice);
    finding.into_iter().filter(|_| touched).collect()
}

fn is_owner(object: &Value) -> bool {
    text_at(object, "/spec/recordType") == Some("TXT")
        && text_at(object, "/spec/name").is_some_and(|name| name.starts_with("owner."))
}
