//! An isolation that begins or ends is to happen at once.

use repot_api::{
    gardener::shoot::{Shoot, Trigger},
    names::{ISOLATED_ZONE, OPERATION, OPERATION_RECONCILE},
};
use repot_apimachinery::value::annotation_of;

use crate::{
    change::{Change, Operation},
    default::annotate,
    facts::Facts,
    finding::PatchOp,
};

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<PatchOp> {
    let changes = annotation_of(&change.old, ISOLATED_ZONE) != annotation_of(&change.new, ISOLATED_ZONE);
    // A live migration bears no operation beside it.
    let live = Shoot(&change.new).trigger() == Trigger::Live || Shoot(&change.old).is_moving_live();
    let free = annotation_of(&change.new, OPERATION).is_none() && !live;
    if change.operation != Operation::Update || !changes || !free || change.is_ending() {
        return Vec::new();
    }
    annotate(&change.new, OPERATION, Some(OPERATION_RECONCILE))
}
