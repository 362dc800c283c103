//! The time of the request tells reports on this migration from those on an earlier one, so nobody may move it.

use repot_api::{
    gardener::{
        shoot::Shoot,
        time::{CLOCK_DIFFERENCE, seconds_between},
    },
    names::REQUESTED_AT,
};
use repot_apimachinery::value::annotation_of;

use crate::{
    change::{Change, Operation},
    facts::Facts,
    finding::{Finding, annotation_path},
    who::{Principal, who},
};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let (old, new) = (annotation_of(&change.old, REQUESTED_AT), annotation_of(&change.new, REQUESTED_AT));
    if change.operation != Operation::Update {
        return Vec::new();
    }
    let begins = change.seed_change().start().is_some();
    let moves = Shoot(&change.old).is_moving() && !change.is_ending();
    let early = |value| seconds_between(value, &facts.now);
    let reason = match (old, new) {
        (_, Some(value)) if begins => {
            let written = change.sets(REQUESTED_AT).is_some();
            // One that is left from an earlier migration makes older reports count, which is safe.
            let right = early(value)
                .is_some_and(|early| early >= -CLOCK_DIFFERENCE && (!written || early <= CLOCK_DIFFERENCE));
            (!right)
                .then(|| format!("{value:?} is not the time of this request, which came at {}", facts.now))
        }
        // Where it could not be filled in, it may be set later.
        (None, Some(value)) if moves => {
            let future = early(value).is_none_or(|early| early < -CLOCK_DIFFERENCE);
            future.then(|| format!("{value:?} is no time before this write, which came at {}", facts.now))
        }
        (Some(old), new) if moves && new != Some(old) => {
            let controlled =
                matches!(who(&change.user, &facts.settings), Principal::Gardenlet(_) | Principal::Controller);
            let reason = "the migration was asked for before, and its time stays while the Shoot moves";
            (!controlled).then(|| reason.to_owned())
        }
        _ => None,
    };
    let advice = "leave the annotation as it is; it is filled in when a migration begins";
    reason.map(|reason| Finding::refuse(annotation_path(REQUESTED_AT), reason, advice)).into_iter().collect()
}
