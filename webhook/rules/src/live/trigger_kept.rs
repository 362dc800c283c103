//! The trigger of a live migration that runs stays: whoever reads the Shoot, gardenlet too, goes by it.

use repot_api::{
    gardener::shoot::{Shoot, Trigger},
    names::ABORT_LIVE_MIGRATION,
};
use repot_apimachinery::value::annotation_of;

use crate::{
    change::{Change, Operation},
    facts::Facts,
    finding::Finding,
    live::trigger_path,
    who::{Principal, who},
};

/// Controllers take it away at the end, and anybody may after an abort.
pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let (old, new) = (Shoot(&change.old), Shoot(&change.new));
    let lost = old.trigger() == Trigger::Live && new.trigger() != Trigger::Live;
    let aborts = |shoot| matches!(annotation_of(shoot, ABORT_LIVE_MIGRATION), Some("true" | "force"));
    let aborted = aborts(&change.old) || aborts(&change.new);
    let controlled =
        matches!(who(&change.user, &facts.settings), Principal::Gardenlet(_) | Principal::Controller);
    if change.operation != Operation::Update
        || !(lost && old.is_moving_live())
        || old.is_ending()
        || aborted
        || controlled
    {
        return Vec::new();
    }
    let reason = "a live migration runs, and without the trigger it would count as one with downtime";
    let advice = format!("leave it; to call the migration off, use annotation {ABORT_LIVE_MIGRATION}");
    vec![Finding::refuse(trigger_path(), reason, advice)]
}
