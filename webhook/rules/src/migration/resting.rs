//! What rests while a Shoot moves.

use crate::{
    change::{Change, Operation},
    facts::Facts,
    finding::Finding,
    migration::binding::changed_fields,
    shoot::Shoot,
};

/// The spec. Its seed is another rule's business.
pub(crate) fn spec(change: &Change, _: &Facts) -> Vec<Finding> {
    let old = Shoot(&change.old);
    if change.operation != Operation::Update || !old.is_moving() {
        return Vec::new();
    }
    let how = describe(old);
    let refuse = |field| {
        let reason = format!("the spec cannot change while the Shoot moves ({how})");
        Finding::refuse(field, reason, "wait until the migration is over")
    };
    changed_fields(change).map(refuse).collect()
}

/// Its life. One that is on its way out already is not held up.
pub(crate) fn life(change: &Change, _: &Facts) -> Vec<Finding> {
    let old = Shoot(&change.old);
    if change.operation != Operation::Delete || !old.is_moving() || old.is_ending() {
        return Vec::new();
    }
    let reason = format!("the Shoot cannot be deleted while it moves ({})", describe(old));
    vec![Finding::refuse(
        "metadata.deletionTimestamp",
        reason,
        "wait until the migration is over: what one seed has left and the other not yet taken would stay behind",
    )]
}

fn describe(shoot: Shoot<'_>) -> String {
    let (kind, state) = shoot.last_operation();
    match (shoot.status_seed(), shoot.spec_seed()) {
        (Some(from), Some(to)) if from != to => format!("from seed {from:?} to seed {to:?}"),
        _ => format!("{kind} {state}"),
    }
}
