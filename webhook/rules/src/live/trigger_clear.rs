//! The trigger can be read, and its two spellings say the same.

use repot_api::{
    gardener::shoot::{Shoot, Trigger},
    names::{LIVE_MIGRATE, OPERATION},
};

use crate::{
    change::Change,
    facts::Facts,
    finding::Finding,
    live::{touches, trigger_path},
};

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<Finding> {
    let starts = change.seed_change().start().is_some();
    match Shoot(&change.new).trigger() {
        Trigger::Unreadable if starts || change.sets(LIVE_MIGRATE).is_some() => {
            vec![Finding::refuse(
                trigger_path(),
                "the value is neither true nor false",
                "set it to \"true\", or remove it",
            )]
        }
        Trigger::Disagree if starts || touches(change) => {
            let reason =
                format!("{OPERATION}=live-migrate asks for a live migration, and {LIVE_MIGRATE} denies it");
            vec![Finding::refuse(trigger_path(), reason, "remove one of the two")]
        }
        _ => Vec::new(),
    }
}
