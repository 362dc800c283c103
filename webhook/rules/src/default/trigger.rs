//! One spelling of the trigger. The paper's is a value of an annotation that gardenlets take away at the next reconciliation
//! and that any other operation overwrites; so it is kept under the key that is for nothing else.

use repot_api::{
    gardener::shoot::{Shoot, Trigger},
    names::{LIVE_MIGRATE, OPERATION, OPERATION_LIVE_MIGRATE},
};
use repot_apimachinery::value::annotation_of;

use crate::{
    change::{Change, Operation},
    facts::Facts,
    finding::{PatchOp, set_entries},
    live::wanted,
};

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<PatchOp> {
    // On a new Shoot the trigger is refused; a message about what was written is better than one about what was made of it.
    // A write that takes one spelling away may leave another: nobody has asked for anything then.
    let asked = Shoot(&change.old).trigger() == Trigger::Live || wanted(change);
    if change.operation != Operation::Update || Shoot(&change.new).trigger() != Trigger::Live || !asked {
        return Vec::new();
    }
    let mut entries = vec![(LIVE_MIGRATE.to_owned(), Some("true".to_owned()))];
    if annotation_of(&change.new, OPERATION) == Some(OPERATION_LIVE_MIGRATE) {
        entries.push((OPERATION.to_owned(), None));
    }
    set_entries(&change.new, "annotations", &entries)
}
