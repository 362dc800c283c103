//! No Shoot moves while one of its zones is isolated.

use repot_api::names::ISOLATED_ZONE;

use crate::{
    change::{Change, annotation_of},
    facts::Facts,
    finding::Finding,
    isolation::path,
    travel::Travel,
};

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<Finding> {
    let isolated = annotation_of(&change.old, ISOLATED_ZONE).or(annotation_of(&change.new, ISOLATED_ZONE));
    match (Travel::start(change), isolated) {
        (Some(_), Some(zone)) => {
            let reason = format!("zone {zone:?} of the Shoot is isolated, and it cannot move meanwhile");
            vec![Finding::refuse(path(), reason, "remove the annotation and wait for the failback")]
        }
        _ => Vec::new(),
    }
}
