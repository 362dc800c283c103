//! The time of the request tells reports on this migration from those on an earlier one, so nobody may move it.

use repot_api::names::REQUESTED_AT;

use crate::{
    change::Change,
    facts::Facts,
    finding::{Finding, annotation_path},
    shoot::Shoot,
    time::{CLOCK_DIFFERENCE, seconds_between},
    travel::Travel,
};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some(value) = change.sets(REQUESTED_AT) else { return Vec::new() };
    let refuse =
        |reason: String, advice: &str| vec![Finding::refuse(annotation_path(REQUESTED_AT), reason, advice)];
    if Travel::start(change).is_some() {
        let apart = seconds_between(&facts.now, value);
        if apart.is_some_and(|seconds| seconds.abs() <= CLOCK_DIFFERENCE) {
            return Vec::new();
        }
        let reason = format!("{value:?} is not the time of this request, which came at {}", facts.now);
        return refuse(reason, "leave the annotation out: it is filled in");
    }
    if !Shoot(&change.old).is_moving() {
        return Vec::new();
    }
    let reason =
        "the migration was asked for before, and its time cannot change while the Shoot moves".to_owned();
    refuse(reason, "leave the annotation as it is")
}
