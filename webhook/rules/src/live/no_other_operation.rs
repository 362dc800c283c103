//! One operation at a time.

use repot_api::names::{MAINTENANCE_OPERATION, OPERATION, OPERATION_LIVE_MIGRATE};

use crate::{
    change::{Change, annotation_of},
    facts::Facts,
    finding::{Finding, annotation_path},
    live::{start, wanted},
    shoot::Shoot,
};

/// Annotations that ask for something else do not go with the trigger, nor come while a live migration runs.
pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<Finding> {
    let running = Shoot(&change.old).is_moving_live();
    let with_trigger = wanted(change) || start(change).is_some();
    let refuse = |key: &'static str| {
        let value = annotation_of(&change.new, key)?;
        let other = !(key == OPERATION && (value == OPERATION_LIVE_MIGRATE || value == "retry"));
        let newly = change.sets(key).is_some();
        if !other || !(with_trigger || (running && newly)) {
            return None;
        }
        let reason = format!("operation {value:?} cannot be combined with a live migration");
        Some(Finding::refuse(
            annotation_path(key),
            reason,
            "remove it, and ask for it when the migration is over",
        ))
    };
    [OPERATION, MAINTENANCE_OPERATION].into_iter().filter_map(refuse).collect()
}
