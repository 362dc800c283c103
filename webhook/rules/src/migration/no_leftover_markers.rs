//! Annotations that steered an earlier migration would steer the next one, the wrong way and at once.

use repot_api::names::{
    ABORT_LIVE_MIGRATION, CONFIRM_FORCE_RESTORE, CONFIRM_LEAVE_DESTINATION, FORCE_RESTORE, FORCE_SHRINK_ETCD,
};
use repot_apimachinery::value::{annotation_of, parse_bool};

use crate::{
    change::Change,
    facts::Facts,
    finding::{Finding, annotation_path},
};

const KEYS: [&str; 5] = [
    ABORT_LIVE_MIGRATION,
    FORCE_SHRINK_ETCD,
    FORCE_RESTORE,
    CONFIRM_FORCE_RESTORE,
    CONFIRM_LEAVE_DESTINATION,
];

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<Finding> {
    if change.seed_change().start().is_none() {
        return Vec::new();
    }
    let finding = |key: &&str| {
        let value = annotation_of(&change.new, key).filter(|value| parse_bool(value) != Some(false))?;
        let reason =
            format!("{value:?} is left over from an earlier migration, or comes too early for this one");
        Some(Finding::refuse(
            annotation_path(key),
            reason,
            "remove the annotation first, or in the same write",
        ))
    };
    KEYS.iter().filter_map(finding).collect()
}
