//! A state that is gone cannot be restored.

use repot_api::names::CONFIRM_DELETION;

use crate::{
    change::{Change, Operation, says_yes},
    facts::Facts,
    finding::{Finding, annotation_path},
    who::{Who, who},
};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let controlled = matches!(who(&change.user, &facts.settings), Who::Gardenlet(_) | Who::Controller);
    let confirmed = says_yes(&change.old, CONFIRM_DELETION) || change.is_ending();
    if change.operation != Operation::Delete || controlled || confirmed {
        return Vec::new();
    }
    let reason = "keys and machines of the Shoot are in here, and the deletion is not confirmed";
    let advice = format!("confirm by annotation {CONFIRM_DELETION}=true, and delete it then");
    vec![Finding::refuse(annotation_path(CONFIRM_DELETION), reason, advice)]
}
