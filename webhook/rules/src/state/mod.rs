//! ShootState, the workflows on an etcd, and the etcd itself: who may write what.

pub(crate) mod deletion_confirmed;
pub(crate) mod etcd_handing_over;
pub(crate) mod etcd_in_use;
pub(crate) mod etcd_lifecycle;
pub(crate) mod etcd_membership;
pub(crate) mod etcd_version;
pub(crate) mod one_workflow;
pub(crate) mod workflow_lock;
pub(crate) mod workflow_status;
pub(crate) mod writer;

use repot_api::names::CONFIRM_TAKEOVER;
use repot_apimachinery::value::says_yes;

use crate::{
    change::Change,
    facts::Facts,
    finding::Finding,
    who::{Principal, who},
};

/// What is to be left to controllers. An administrator is warned; anybody else can insist, by an annotation.
pub(crate) fn by_controllers(
    change: &Change,
    facts: &Facts,
    field: &str,
    reason: &str,
    advice: &str,
) -> Option<Finding> {
    let insists = [&change.old, &change.new].iter().any(|object| says_yes(object, CONFIRM_TAKEOVER));
    match who(&change.user, &facts.settings) {
        Principal::Gardenlet(_) | Principal::Controller => None,
        Principal::Operator => Some(Finding::warn(field, reason, advice)),
        Principal::GardenletOfShoot(_) | Principal::Other if insists => {
            Some(Finding::warn(field, reason, advice))
        }
        Principal::GardenletOfShoot(_) | Principal::Other => {
            let advice = format!("{advice}; or insist by annotation {CONFIRM_TAKEOVER}=true");
            Some(Finding::refuse(
                field,
                format!("{reason}, and user {:?} is no controller", change.user.name),
                advice,
            ))
        }
    }
}

/// The namespace controller; without credentials of its own it is the whole kube-controller-manager.
const EMPTIES_NAMESPACES: &[&str] =
    &["system:serviceaccount:kube-system:namespace-controller", "system:kube-controller-manager"];

/// Whether the controller that empties namespaces makes the change.
fn empties_namespace(change: &Change) -> bool {
    EMPTIES_NAMESPACES.contains(&change.user.name.as_str())
}

/// Whether an object is that of a Shoot, `namespace:name`.
fn is_own(change: &Change, shoot: &str) -> bool {
    let name = change.name().unwrap_or_default();
    shoot.split_once(':') == Some((change.target.namespace.as_str(), name))
}
