//! A new workflow that would have to wait. A backup may: it changes nothing.

use repot_apimachinery::value::{is_ending, text_at};
use serde_json::Value;

use crate::{
    change::{Change, Operation},
    facts::Facts,
    finding::Finding,
};

/// Phases after which a workflow does nothing any more.
const OVER: &[&str] = &["Succeeded", "Failed", "Cancelled", "RolledBack"];

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    if change.operation != Operation::Create || !change.target.subresource.is_empty() {
        return Vec::new();
    }
    let cluster = text_at(&change.new, "/spec/clusterRef/name");
    let Some(cluster) = cluster else { return Vec::new() };
    let field = "spec.clusterRef.name";
    let Some(etcd) = facts.hosted_etcd.as_deref() else {
        let reason = format!("there is no HostedEtcd {cluster:?} in the namespace");
        return vec![Finding::warn(field, reason, "create it, or the workflow will not begin")];
    };
    let Some(other) = busy_with(etcd, cluster, facts) else { return Vec::new() };
    let reason = format!("HostedEtcd {cluster:?} is in use by {other}");
    match change.target.resource.as_str() {
        "etcdbackups" => vec![Finding::warn(field, reason, "the backup begins when that is over")],
        _ => vec![Finding::refuse(field, reason, "wait until that is over, or cancel it by spec.cancel")],
    }
}

fn busy_with(etcd: &Value, cluster: &str, facts: &Facts) -> Option<String> {
    if let Some(name) = text_at(etcd, "/status/currentWorkflow/name") {
        let kind = text_at(etcd, "/status/currentWorkflow/kind").unwrap_or("workflow");
        return Some(format!("{kind} {name:?}"));
    }
    let running = |workflow: &&Value| {
        let phase = text_at(workflow, "/status/phase").unwrap_or_default();
        text_at(workflow, "/spec/clusterRef/name") == Some(cluster) && !OVER.contains(&phase) && !is_ending(workflow)
            // Backups that wait are no reason for anybody else to wait.
            && (text_at(workflow, "/kind") != Some("EtcdBackup") || phase == "Running")
    };
    let other = facts.workflows.iter().map(AsRef::as_ref).find(running)?;
    let text = |pointer| text_at(other, pointer).unwrap_or_default();
    Some(format!("{} {:?}", text("/kind"), text("/metadata/name")))
}
