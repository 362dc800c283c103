//! A Shoot is not deleted while it moves. The rule allows the deletion of one that is being deleted already, and of one whose move has
//! not begun: its source deletes it.

use repot_api::gardener::shoot::Shoot;

use crate::{
    change::{Change, Operation},
    facts::Facts,
    finding::Finding,
    migration::describe_way,
};

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<Finding> {
    let old = Shoot(&change.old);
    if change.operation != Operation::Delete || !old.has_begun_to_move() || old.is_ending() {
        return Vec::new();
    }
    let reason = format!("the Shoot cannot be deleted while it moves ({})", describe_way(old));
    vec![Finding::refuse(
        "metadata.deletionTimestamp",
        reason,
        "wait until the migration is over: what one seed has left and the other not yet taken would stay behind",
    )]
}
