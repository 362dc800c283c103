//! What controllers record of an etcd is theirs.

use serde_json::Value;

use crate::{
    change::{Change, Operation},
    facts::Facts,
    finding::Finding,
    state::by_controllers,
};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let status = |object: &Value| object.get("status").filter(|status| !status.is_null()).cloned();
    let touched = status(&change.old) != status(&change.new);
    if change.operation != Operation::Update || change.target.subresource != "status" || !touched {
        return Vec::new();
    }
    let reason = "the status is what a running workflow goes by";
    let advice = "steer workflows by spec.paused and spec.cancel";
    by_controllers(change, facts, "status", reason, advice).into_iter().collect()
}
