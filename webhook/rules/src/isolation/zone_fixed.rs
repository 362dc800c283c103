//! One zone at a time, from beginning to end.

use repot_api::names::ISOLATED_ZONE;

use crate::{
    change::{Change, annotation_of},
    facts::Facts,
    finding::Finding,
    isolation::path,
};

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<Finding> {
    match (annotation_of(&change.old, ISOLATED_ZONE), change.sets(ISOLATED_ZONE)) {
        (Some(before), Some(_)) => {
            let reason = format!("zone {before:?} is isolated, and a second one cannot take its place");
            vec![Finding::refuse(
                path(),
                reason,
                "remove the annotation, wait for the failback, and set it again",
            )]
        }
        _ => Vec::new(),
    }
}
