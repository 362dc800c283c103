//! No maintenance while a zone is isolated.

use repot_api::{
    gardener::shoot::{Shoot, operations_in},
    names::{MAINTENANCE_OPERATION, OPERATION, OPERATION_MAINTAIN},
};

use crate::{
    change::Change,
    facts::Facts,
    finding::{Finding, annotation_path},
};

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<Finding> {
    let Some(zone) = Shoot(&change.new).isolated_zone() else { return Vec::new() };
    let asked = [
        (
            OPERATION,
            change.sets(OPERATION).filter(|value| operations_in(value).any(|one| one == OPERATION_MAINTAIN)),
        ),
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
