//! The way back to the source is open only to those who called the live migration off, and only while the source has its members:
//! the annotation alone may have been written by whatever path.

use repot_api::{
    gardener::{progress::Progress, seed_change::SeedChange, shoot::Shoot},
    names::{ABORT_LIVE_MIGRATION, CONFIRM_LEAVE_DESTINATION},
};
use repot_apimachinery::value::annotation_of;

use crate::{
    change::Change,
    facts::Facts,
    finding::Finding,
    migration::{SEED_NAME, is_dead},
};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let SeedChange::Back { to } = change.seed_change() else { return Vec::new() };
    let asked = matches!(annotation_of(&change.new, ABORT_LIVE_MIGRATION), Some("true" | "force"));
    let old = Shoot(&change.old);
    // A migration that Repot has rolled back has left everything as it was, before it changes the seed.
    if !old.is_moving_live() || old.waits_for_destination() || old.is_rolled_back() {
        return Vec::new();
    }
    if Progress(&change.old).is_past_return() {
        if let Some(destination) = left_destination(change, facts) {
            let reason = format!(
                "the Shoot leaves destination seed {destination:?}, which does not answer, after members of the etcd on seed \
                 {to:?} were removed"
            );
            let advice =
                "see that the etcd there still has a quorum; if not, restore it from its last backup";
            return vec![Finding::warn(SEED_NAME, reason, advice)];
        }
        let reason = format!(
            "members of the etcd on seed {to:?} are being removed, or are gone: the only way is forward"
        );
        let advice = format!(
            "let the migration come to its end, and move the Shoot back then; a destination that is dead can be left by \
             annotation {CONFIRM_LEAVE_DESTINATION}=<destination>"
        );
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

/// The destination that an operator gives up: it is dead, and the confirmation names it.
fn left_destination<'a>(change: &'a Change, facts: &Facts) -> Option<&'a str> {
    let destination = Shoot(&change.old).spec_seed()?;
    let confirmed = annotation_of(&change.new, CONFIRM_LEAVE_DESTINATION) == Some(destination);
    (confirmed && is_dead(facts, destination)).then_some(destination)
}
