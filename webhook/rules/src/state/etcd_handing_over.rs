//! An etcd that is just being taken over from another seed, seen from either side: both sites may have as many voters, and without
//! those of one of them neither has a quorum.

use repot_api::names::CONFIRM_DELETION;
use repot_apimachinery::value::{at, items_at, says_yes, text_at};
use serde_json::Value;

use crate::{
    change::{Change, Operation},
    facts::Facts,
    finding::{Finding, annotation_path},
    state::empties_namespace,
};

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<Finding> {
    if change.operation != Operation::Delete || change.target.resource != "etcds" || change.is_ending() {
        return Vec::new();
    }
    if says_yes(&change.old, CONFIRM_DELETION) || empties_namespace(change) {
        return Vec::new();
    }
    if at(&change.old, "/status/unknownMembers/dependOnOwn") == Some(&Value::Bool(true)) {
        return vec![keep_quorum(&change.old)];
    }
    let is_set = |path: &str| at(&change.old, path).is_some_and(|value| !value.is_null());
    let released =
        at(&change.old, "/status/bootstrapWithExistingCluster/released") == Some(&Value::Bool(true));
    let joined = is_set("/status/bootstrapWithExistingCluster") && !released;
    if !joined || is_set("/spec/etcd/bootstrapWithExistingCluster") {
        return Vec::new();
    }
    let reason =
        "the members are taking over from those of another seed: without them those may have no quorum";
    let advice = format!(
        "wait for status.bootstrapWithExistingCluster.released; or confirm by annotation {CONFIRM_DELETION}=true, and delete it then"
    );
    vec![Finding::refuse(annotation_path(CONFIRM_DELETION), reason, advice)]
}

/// Members of another Etcd, as while those of another seed have joined, have no quorum without those of this one.
fn keep_quorum(etcd: &Value) -> Finding {
    let members = items_at(etcd, "/status/unknownMembers/members").iter();
    let names: Vec<&str> =
        members.map(|member| text_at(member, "/name").unwrap_or("without a name")).collect();
    let reason = format!(
        "members that are not those of this Etcd have no quorum without those here: {}",
        names.join(", ")
    );
    let advice = format!(
        "wait until they have left the etcd, or most members here have; or confirm by annotation {CONFIRM_DELETION}=true, and delete it then"
    );
    Finding::refuse(annotation_path(CONFIRM_DELETION), reason, advice)
}
