//! Not two upheavals at a time.

use repot_api::names::ISOLATED_ZONE;

use crate::{
    change::{Change, annotation_of},
    facts::Facts,
    finding::Finding,
    isolation::path,
    shoot::Shoot,
    travel::Travel,
};

/// No zone is isolated while the Shoot moves or ends.
pub(crate) fn at_rest(change: &Change, _: &Facts) -> Vec<Finding> {
    let (old, new) = (Shoot(&change.old), Shoot(&change.new));
    if change.sets(ISOLATED_ZONE).is_none() {
        return Vec::new();
    }
    let what = if old.is_ending() || new.is_ending() {
        "is being deleted"
    } else if old.is_moving() || Travel::start(change).is_some() {
        "moves between seeds"
    } else {
        return Vec::new();
    };
    vec![Finding::refuse(
        path(),
        format!("the Shoot {what}, and no zone can be isolated meanwhile"),
        "wait until that is over",
    )]
}

/// No Shoot moves while one of its zones is isolated.
pub(crate) fn no_move(change: &Change, _: &Facts) -> Vec<Finding> {
    let isolated = annotation_of(&change.old, ISOLATED_ZONE).or(annotation_of(&change.new, ISOLATED_ZONE));
    match (Travel::start(change), isolated) {
        (Some(_), Some(zone)) => {
            let reason = format!("zone {zone:?} of the Shoot is isolated, and it cannot move meanwhile");
            vec![Finding::refuse(path(), reason, "remove the annotation and wait for the failback")]
        }
        _ => Vec::new(),
    }
}
