//! Annotations that give up data or availability are for operators, not for everybody who may edit a Shoot.

use repot_api::names::VERB_FORCE;

use crate::{
    change::Change,
    facts::Facts,
    finding::{Finding, annotation_path},
    force::force_markers,
    who::{Principal, who},
};

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
