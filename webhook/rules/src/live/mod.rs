//! Live migration (GEP-39): a change of seed with the trigger set, and the annotations that steer it.

pub(crate) mod abort_in_time;
pub(crate) mod awake;
pub(crate) mod back_after_abort;
pub(crate) mod distance;
pub(crate) mod highly_available;
pub(crate) mod no_other_operation;
pub(crate) mod permission_readable;
pub(crate) mod same_provider;
pub(crate) mod shrink_in_need;
pub(crate) mod source_healthy;
pub(crate) mod trigger_clear;
pub(crate) mod trigger_in_time;
pub(crate) mod trigger_kept;

use repot_api::{
    gardener::shoot::{Shoot, Trigger},
    names::{LIVE_MIGRATE, OPERATION},
};

use crate::change::Change;

/// Source and destination of a live migration that begins.
pub(crate) fn start(change: &Change) -> Option<(&str, &str)> {
    change.seed_change().start().filter(|_| Shoot(&change.new).trigger() == Trigger::Live)
}

/// Whether this change sets the trigger, or begins a live migration.
pub(crate) fn wanted(change: &Change) -> bool {
    let (old, new) = (Shoot(&change.old), Shoot(&change.new));
    // One spelling that goes away may uncover the other; nobody has asked for anything then.
    let asks = touches(change) && old.trigger() != Trigger::Live;
    new.trigger() == Trigger::Live && (asks || start(change).is_some())
}

/// Whether this change writes one of the spellings of the trigger.
pub(crate) fn touches(change: &Change) -> bool {
    [OPERATION, LIVE_MIGRATE].into_iter().any(|key| change.sets(key).is_some())
}

/// Where findings about the trigger point.
pub(crate) fn trigger_path() -> String {
    crate::finding::annotation_path(LIVE_MIGRATE)
}
