//! An isolation that begins or ends is to happen at once.

use repot_api::names::{ISOLATED_ZONE, OPERATION, OPERATION_RECONCILE};

use crate::{
    change::{Change, Operation, annotation_of},
    default::annotate,
    facts::Facts,
    finding::PatchOp,
};

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<PatchOp> {
    let changes = annotation_of(&change.old, ISOLATED_ZONE) != annotation_of(&change.new, ISOLATED_ZONE);
    let free = annotation_of(&change.new, OPERATION).is_none();
    if change.operation != Operation::Update || !changes || !free || change.is_ending() {
        return Vec::new();
    }
    annotate(&change.new, OPERATION, Some(OPERATION_RECONCILE))
}
