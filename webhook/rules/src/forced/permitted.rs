//! Annotations that give up data or availability are for operators, not for everybody who may edit a Shoot.

use repot_api::{
    gardener::seed_change::SeedChange,
    names::{ABORT_LIVE_MIGRATION, CONFIRM_LEAVE_DESTINATION, FORCE_RESTORE, FORCE_SHRINK_ETCD, VERB_FORCE},
};
use repot_apimachinery::value::{annotation_of, parse_bool};

use crate::{
    change::Change,
    facts::Facts,
    finding::{Finding, annotation_path},
    who::{Principal, who},
};

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

/// Gardenlets, controllers and groups of administrators are known without a question.
pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let known = who(&change.user, &facts.settings) != Principal::Other;
    let refuse = |key: &'static str| {
        let reason = format!(
            "user {:?} may not use verb {VERB_FORCE:?} on the Shoot, and this annotation gives up data or availability",
            change.user.name
        );
        let advice = format!("ask an operator; or bind a role with verb {VERB_FORCE} on resource shoots");
        Finding::refuse(annotation_path(key), reason, advice)
    };
    match known || facts.may_force {
        true => Vec::new(),
        false => force_markers(change).map(refuse).collect(),
    }
}
