//! An Etcd that a workflow works on: without it the workflow can neither end nor roll back, and the API servers stay at 0.

use repot_api::names::CONFIRM_DELETION;
use repot_apimachinery::value::{says_yes, text_at};
use serde_json::Value;

use crate::{
    change::{Change, Operation},
    facts::Facts,
    finding::{Finding, annotation_path},
    state::empties_namespace,
};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let deleted = change.operation == Operation::Delete && change.target.resource == "etcds";
    if !deleted || change.is_ending() || empties_namespace(change) || says_yes(&change.old, CONFIRM_DELETION)
    {
        return Vec::new();
    }
    let Some(etcd) = change.name() else { return Vec::new() };
    let works_on = |hosted: &&Value| {
        text_at(hosted, "/spec/etcdRef/name") == Some(etcd)
            && text_at(hosted, "/spec/etcdRef/kind").is_none_or(|kind| kind == "Etcd")
            && text_at(hosted, "/status/currentWorkflow/name").is_some()
    };
    let Some(hosted) = facts.hosted_etcds.iter().map(AsRef::as_ref).find(works_on) else { return Vec::new() };
    let text = |pointer: &str| text_at(hosted, pointer).unwrap_or_default();
    let kind = text_at(hosted, "/status/currentWorkflow/kind").unwrap_or("workflow");
    let reason = format!(
        "{kind} {:?} of HostedEtcd {:?} works on this etcd, and could neither end nor roll back without it",
        text("/status/currentWorkflow/name"),
        text("/metadata/name")
    );
    let advice = format!(
        "wait until it is over, or cancel it by spec.cancel; or confirm by annotation {CONFIRM_DELETION}=true, and delete it then"
    );
    vec![Finding::refuse(annotation_path(CONFIRM_DELETION), reason, advice)]
}
