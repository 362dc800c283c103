//! Somebody has to carry an isolation out.

use repot_api::names::{ISOLATED_ZONE, OPERATION, OPERATION_RECONCILE};

use crate::{
    change::{Change, annotation_of},
    facts::Facts,
    finding::{Finding, annotation_path},
};

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<Finding> {
    let changed = annotation_of(&change.old, ISOLATED_ZONE) != annotation_of(&change.new, ISOLATED_ZONE);
    let asked = annotation_of(&change.new, OPERATION) == Some(OPERATION_RECONCILE);
    if !changed || asked || change.sets(ISOLATED_ZONE).is_none() {
        return Vec::new();
    }
    let reason = "nothing happens before the next reconciliation";
    let advice = format!("set {OPERATION}={OPERATION_RECONCILE} to have it at once");
    vec![Finding::warn(annotation_path(OPERATION), reason, advice)]
}
