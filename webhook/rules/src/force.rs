//! Annotations that give up data or availability.

use repot_api::{
    gardener::seed_change::SeedChange,
    names::{ABORT_LIVE_MIGRATION, CONFIRM_LEAVE_DESTINATION, FORCE_RESTORE, FORCE_SHRINK_ETCD},
};
use repot_apimachinery::value::{annotation_of, parse_bool};

use crate::change::Change;

/// Annotations, and the only value that counts; without one every value does that is not false.
const FORCE: [(&str, Option<&str>); 4] = [
    (ABORT_LIVE_MIGRATION, Some("force")),
    (FORCE_SHRINK_ETCD, None),
    (FORCE_RESTORE, None),
    (CONFIRM_LEAVE_DESTINATION, None),
];

/// Such annotations that a change sets.
pub(crate) fn force_markers(change: &Change) -> impl Iterator<Item = &'static str> {
    // The write that leaves the destination needs the right, whoever set the confirmation before.
    let leaves = matches!(change.seed_change(), SeedChange::Back { .. } | SeedChange::Again { .. });
    let sets = move |(key, only): &(&'static str, Option<&str>)| {
        // Its value is the name of a seed, which may look like a boolean.
        if *key == CONFIRM_LEAVE_DESTINATION {
            let used = leaves && annotation_of(&change.new, key).is_some();
            return (used || change.sets(key).is_some()).then_some(*key);
        }
        let value = change.sets(key).filter(|value| parse_bool(value) != Some(false))?;
        only.is_none_or(|only| only == value).then_some(*key)
    };
    FORCE.iter().filter_map(sets)
}
