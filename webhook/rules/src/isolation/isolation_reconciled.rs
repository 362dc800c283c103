//! Somebody has to carry an isolation out.

use repot_api::{
    gardener::shoot::Shoot,
    names::{ISOLATED_ZONE, OPERATION, OPERATION_RECONCILE, OPERATION_RETRY},
};
use repot_apimachinery::value::annotation_of;

use crate::{
    change::Change,
    facts::Facts,
    finding::{Finding, annotation_path},
};

/// gardener-apiserver removes `reconcile` before it asks validating webhooks, and raises the generation instead. Where the last
/// operation has failed it raises the generation for `retry` alone.
pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<Finding> {
    let (old, new) = (Shoot(&change.old), Shoot(&change.new));
    let failed = old.last_operation().1 == "Failed";
    let wanted = if failed { OPERATION_RETRY } else { OPERATION_RECONCILE };
    let asked = new.generation() > old.generation() || new.operations().any(|operation| operation == wanted);
    let changed = annotation_of(&change.old, ISOLATED_ZONE) != annotation_of(&change.new, ISOLATED_ZONE);
    if !changed || asked {
        return Vec::new();
    }
    let reason = match failed {
        true => "the last operation has failed, and nothing happens before it is retried",
        false => "nothing happens before the next reconciliation",
    };
    let advice = format!("set {OPERATION}={wanted} to have it at once");
    vec![Finding::warn(annotation_path(OPERATION), reason, advice)]
}
