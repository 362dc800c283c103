//! One zone at a time, from beginning to end.

use repot_api::{gardener::shoot::Shoot, names::ISOLATED_ZONE};

use crate::{change::Change, facts::Facts, finding::Finding, isolation::path};

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<Finding> {
    let Some(zone) = change.sets(ISOLATED_ZONE) else { return Vec::new() };
    match Shoot(&change.old).isolated_zone() {
        // The same zone again turns a failback around.
        Some(before) if before != zone => {
            let reason = format!(
                "zone {before:?} is isolated, or its failback is not done, and a second one cannot take its place"
            );
            vec![Finding::refuse(
                path(),
                reason,
                "remove the annotation, wait for the failback, and set it again",
            )]
        }
        _ => Vec::new(),
    }
}
