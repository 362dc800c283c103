//! One operation at a time.

use repot_api::{
    gardener::shoot::{Shoot, operations_in},
    names::{MAINTENANCE_OPERATION, OPERATION, OPERATION_LIVE_MIGRATE, OPERATION_RETRY},
};
use repot_apimachinery::value::annotation_of;

use crate::{
    change::{Change, Operation},
    facts::Facts,
    finding::{Finding, annotation_path},
    live::{start, wanted},
    migration::changed_fields,
    who::{Principal, who},
};

const ADVICE: &str = "remove it, and ask for it when the migration is over";

/// Annotations that ask for something else do not go with the trigger, nor come while a live migration runs. One reconciliation
/// in the middle would replace the whole `Etcd` and so remove members. `retry` resumes a live migration that has failed.
pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let old = Shoot(&change.old);
    let running = old.is_moving_live();
    let with_trigger = wanted(change) || start(change).is_some();
    let failed = old.last_operation().1 == "Failed";
    let refuse = |key: &'static str| {
        let value = annotation_of(&change.new, key)?;
        let harmless = |one: &str| {
            key == OPERATION
                && (one == OPERATION_LIVE_MIGRATE || (running && failed && one == OPERATION_RETRY))
        };
        let other = !operations_in(value).all(harmless);
        if !other || !(with_trigger || (running && change.sets(key).is_some())) {
            return None;
        }
        let reason = format!("operation {value:?} cannot be combined with a live migration");
        Some(Finding::refuse(annotation_path(key), reason, ADVICE))
    };
    let mut findings: Vec<Finding> =
        [OPERATION, MAINTENANCE_OPERATION].into_iter().filter_map(refuse).collect();
    if running && !failed && findings.is_empty() && was_consumed(change, facts) {
        let reason = "a reconciliation is asked for, which cannot be combined with a live migration";
        findings.push(Finding::refuse(annotation_path(OPERATION), reason, ADVICE));
    }
    findings
}

/// Whether gardener-apiserver has removed `reconcile` already: it raised the generation, and nothing of the spec changes.
/// Controllers raise it to see that gardenlet leaves the Shoot alone.
fn was_consumed(change: &Change, facts: &Facts) -> bool {
    let (old, new) = (Shoot(&change.old), Shoot(&change.new));
    change.operation == Operation::Update
        && change.target.subresource.is_empty()
        && new.generation() > old.generation()
        && old.spec_seed() == new.spec_seed()
        && !old.is_ending()
        && !new.is_ending()
        && changed_fields(change).next().is_none()
        && !matches!(who(&change.user, &facts.settings), Principal::Gardenlet(_) | Principal::Controller)
}
