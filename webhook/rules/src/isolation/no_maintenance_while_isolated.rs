//! No maintenance while a zone is isolated.

use repot_api::{
    gardener::shoot::{Shoot, operations_in},
    names::{MAINTENANCE_OPERATION, OPERATION, OPERATION_MAINTAIN},
};

use crate::{
    change::Change,
    facts::Facts,
    finding::{Finding, annotation_path},
    who::{Principal, who},
};

/// How rotations of credentials begin.
const ROTATION: &str = "rotate-";
/// How operations begin that replace all nodes of some pools.
const ROLL_OUTS: [&str; 2] = ["rollout-workers", "rotate-rollout-workers"];

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some(zone) = Shoot(&change.new).isolated_zone() else { return Vec::new() };
    // A person may have to replace a key that is known to others. The controller of maintenance rotates what is old enough.
    let is_controller = matches!(who(&change.user, &facts.settings), Principal::Controller);
    let is_maintenance = |one: &str| {
        let rolls = ROLL_OUTS.iter().any(|operation| one.starts_with(operation));
        one == OPERATION_MAINTAIN || rolls || (is_controller && one.starts_with(ROTATION))
    };
    let asked = [
        (OPERATION, change.sets(OPERATION).filter(|value| operations_in(value).any(is_maintenance))),
        (MAINTENANCE_OPERATION, change.sets(MAINTENANCE_OPERATION)),
    ];
    let refuse = |(key, value): (&str, Option<&str>)| {
        let reason = format!(
            "{:?} is a matter of maintenance, and there is none while zone {zone:?} is isolated",
            value?
        );
        Some(Finding::refuse(annotation_path(key), reason, "ask for it after the failback"))
    };
    asked.into_iter().filter_map(refuse).collect()
}
