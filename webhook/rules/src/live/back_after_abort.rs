//! The way back to the source is open only to those who called the live migration off.

use repot_api::names::ABORT_LIVE_MIGRATION;

use crate::{
    change::{Change, annotation_of},
    facts::Facts,
    finding::Finding,
    migration::SEED_NAME,
    shoot::Shoot,
    travel::Travel,
};

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<Finding> {
    let Travel::Back { to } = Travel::of(change) else { return Vec::new() };
    let asked = matches!(annotation_of(&change.new, ABORT_LIVE_MIGRATION), Some("true" | "force"));
    if asked || !Shoot(&change.old).is_moving_live() {
        return Vec::new();
    }
    let reason = format!("the live migration runs, and going back to seed {to:?} would cut it off");
    vec![Finding::refuse(
        SEED_NAME,
        reason,
        format!("call it off first, by annotation {ABORT_LIVE_MIGRATION}"),
    )]
}
