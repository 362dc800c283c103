//! The way back to the source is open only to those who called the live migration off, and only while the source has its members:
//! the annotation alone may have been written by whatever path.

use repot_api::names::ABORT_LIVE_MIGRATION;

use crate::{
    change::{Change, annotation_of},
    facts::Facts,
    finding::Finding,
    migration::SEED_NAME,
    progress::Progress,
    shoot::Shoot,
    travel::Travel,
};

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<Finding> {
    let Travel::Back { to } = Travel::of(change) else { return Vec::new() };
    let asked = matches!(annotation_of(&change.new, ABORT_LIVE_MIGRATION), Some("true" | "force"));
    if !Shoot(&change.old).is_moving_live() {
        return Vec::new();
    }
    if Progress(&change.old).is_past_return() {
        let reason = format!(
            "members of the etcd on seed {to:?} are being removed, or are gone: the only way is forward"
        );
        let advice = "let the migration come to its end, and move the Shoot back then";
        return vec![Finding::refuse(SEED_NAME, reason, advice)];
    }
    if asked {
        return Vec::new();
    }
    let reason = format!("the live migration runs, and going back to seed {to:?} would cut it off");
    vec![Finding::refuse(
        SEED_NAME,
        reason,
        format!("call it off first, by annotation {ABORT_LIVE_MIGRATION}"),
    )]
}
