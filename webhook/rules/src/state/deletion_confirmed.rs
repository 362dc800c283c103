//! A state that is gone cannot be restored. Controllers delete one when its Shoot is gone or restored; the controller that empties
//! a namespace deletes all there is, in any order, and so it may not come before the Shoot has gone.

use repot_api::names::CONFIRM_DELETION;
use repot_apimachinery::value::says_yes;

use crate::{
    change::{Change, Operation},
    facts::Facts,
    finding::{Finding, annotation_path},
    state::{empties_namespace, is_own},
    who::{Principal, who},
};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let controlled = match who(&change.user, &facts.settings) {
        Principal::Gardenlet(_) => true,
        Principal::Controller => !empties_namespace(change) || facts.shoot.is_none(),
        Principal::GardenletOfShoot(shoot) => is_own(change, shoot),
        Principal::Operator | Principal::Other => false,
    };
    let confirmed = says_yes(&change.old, CONFIRM_DELETION) || change.is_ending();
    if change.operation != Operation::Delete || controlled || confirmed {
        return Vec::new();
    }
    let reason = "keys and machines of the Shoot are in here, and the deletion is not confirmed";
    let advice = format!("confirm by annotation {CONFIRM_DELETION}=true, and delete it then");
    vec![Finding::refuse(annotation_path(CONFIRM_DELETION), reason, advice)]
}
