//! The lock is given back before another workflow takes it.

use repot_apimachinery::value::text_at;

use crate::{change::Change, facts::Facts, finding::Finding};

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<Finding> {
    let holder = |object| {
        text_at(object, "/status/currentWorkflow/uid").or(text_at(object, "/status/currentWorkflow/name"))
    };
    if change.target.resource != "hostedetcds" || change.target.subresource != "status" {
        return Vec::new();
    }
    match (holder(&change.old), holder(&change.new)) {
        (Some(before), Some(after)) if before != after => {
            let name = text_at(&change.old, "/status/currentWorkflow/name").unwrap_or(before);
            let reason =
                format!("workflow {name:?} works on this etcd, and another one cannot take its place");
            vec![Finding::refuse(
                "status.currentWorkflow",
                reason,
                "clear the field when that workflow is over",
            )]
        }
        _ => Vec::new(),
    }
}
