//! The spec does not change while the Shoot moves. Its seed is another rule's business.

use repot_api::gardener::shoot::Shoot;

use crate::{
    change::{Change, Operation},
    facts::Facts,
    finding::Finding,
    migration::{changed_fields, describe_way},
};

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<Finding> {
    let old = Shoot(&change.old);
    if change.operation != Operation::Update || !old.is_moving() {
        return Vec::new();
    }
    let how = describe_way(old);
    let refuse = |field| {
        let reason = format!("the spec cannot change while the Shoot moves ({how})");
        Finding::refuse(field, reason, "wait until the migration is over")
    };
    changed_fields(change).map(refuse).collect()
}
