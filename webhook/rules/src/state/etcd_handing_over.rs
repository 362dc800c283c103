//! An etcd that is just being taken over from another seed: both sites may have as many voters, and without those of one of them
//! neither has a quorum.

use repot_api::names::CONFIRM_DELETION;
use serde_json::Value;

use crate::{
    change::{Change, Operation, at, says_yes},
    facts::Facts,
    finding::{Finding, annotation_path},
};

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<Finding> {
    if change.operation != Operation::Delete || change.target.resource != "etcds" || change.is_ending() {
        return Vec::new();
    }
    let is_set = |path: &str| at(&change.old, path).is_some_and(|value| !value.is_null());
    let released =
        at(&change.old, "/status/bootstrapWithExistingCluster/released") == Some(&Value::Bool(true));
    let joined = is_set("/status/bootstrapWithExistingCluster") && !released;
    if !joined || is_set("/spec/etcd/bootstrapWithExistingCluster") || says_yes(&change.old, CONFIRM_DELETION)
    {
        return Vec::new();
    }
    let reason =
        "the members are taking over from those of another seed: without them those may have no quorum";
    let advice = format!(
        "wait for status.bootstrapWithExistingCluster.released; or confirm by annotation {CONFIRM_DELETION}=true, and delete it then"
    );
    vec![Finding::refuse(annotation_path(CONFIRM_DELETION), reason, advice)]
}
