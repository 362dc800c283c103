//! What steered a migration goes when the migration is over. That it is over, and not still to come, is seen by the time at which
//! it was asked for: a trigger without one was set for a migration that nobody has begun.
//!
//! On a seed that is being deleted they stay: Gardener refuses a write that changes any annotation there but the confirmation of
//! a deletion.

use repot_api::{
    gardener::{seed_change::SeedChange, shoot::Shoot},
    names::{
        ABORT_LIVE_MIGRATION, ALLOW_DISTANT_REGIONS, CONFIRM_DELETION, CONFIRM_FORCE_RESTORE,
        CONFIRM_LEAVE_DESTINATION, FORCE_RESTORE, FORCE_SHRINK_ETCD, LIVE_MIGRATE, OPERATION,
        OPERATION_LIVE_MIGRATE, REQUESTED_AT,
    },
};
use repot_apimachinery::value::{annotation_of, is_ending};

use crate::{
    change::{Change, Operation},
    facts::Facts,
    finding::{PatchOp, set_entries},
};

const KEYS: [&str; 8] = [
    LIVE_MIGRATE,
    ALLOW_DISTANT_REGIONS,
    ABORT_LIVE_MIGRATION,
    FORCE_SHRINK_ETCD,
    FORCE_RESTORE,
    CONFIRM_FORCE_RESTORE,
    CONFIRM_LEAVE_DESTINATION,
    REQUESTED_AT,
];

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<PatchOp> {
    let old = Shoot(&change.old);
    let asked = annotation_of(&change.old, REQUESTED_AT).is_some();
    let (_, state) = old.last_operation();
    let over = old.spec_seed().is_some() && old.spec_seed() == old.status_seed() && state == "Succeeded";
    let seed_ends = old.spec_seed().and_then(|seed| facts.seed(seed)).is_some_and(is_ending);
    if seed_ends || change.is_ending() || change.sets(CONFIRM_DELETION).is_some() {
        return Vec::new();
    }
    let rests =
        change.operation == Operation::Update && change.seed_change() == SeedChange::Stay && !old.is_moving();
    if !(asked && over && rests) {
        return Vec::new();
    }
    // What this very write sets is for the next migration.
    let goes = |key: &&&str| change.sets(key).is_none();
    let mut entries: Vec<_> = KEYS.iter().filter(goes).map(|key: &&str| ((*key).to_owned(), None)).collect();
    let operation = annotation_of(&change.new, OPERATION);
    if operation == Some(OPERATION_LIVE_MIGRATE) && change.sets(OPERATION).is_none() {
        entries.push((OPERATION.to_owned(), None));
    }
    set_entries(&change.new, "annotations", &entries)
}
