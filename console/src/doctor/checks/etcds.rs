//! Hosted etcds: whether they serve, and whether a dead seed would lose much.

use jiff::Timestamp;
use kube::api::ListParams;
use repot_apimachinery::value::{items_at, text_at};
use serde_json::Value;

use crate::{
    doctor::{finding::Finding, run::failed, survey::Survey},
    etcd::{
        hosted::{HostedEtcd, conditions},
        read,
        workflow::{Workflow, newest_backup},
    },
    objects::{ETCD, HOSTED_ETCD, Result},
    text::{ago, duration},
};

/// Name of the check.
pub(super) const NAME: &str = "etcds";
/// A backup that is older is not recent, in seconds.
const RECENT: i64 = 24 * 3600;
/// A schedule that is later than this is not kept, in seconds.
const LATE: i64 = 900;
/// Steps wait for at most three times their timeout, which is 10 minutes as a rule, in seconds.
const STEP: i64 = 2 * 3600;
/// Steps that wait for the end of other workflows.
const WAITS: [&str; 2] = ["LockTaken", "LockHeld"];
/// Most Etcds that are looked at.
const MOST: usize = 10_000;
/// Conditions of an Etcd that have to be True, each with whether it serves without.
const CONDITIONS: [(&str, bool); 3] = [("Ready", false), ("AllMembersReady", true), ("BackupReady", true)];

pub(super) async fn run(survey: &Survey) -> Result<Vec<Finding>> {
    if !survey.serves(&HOSTED_ETCD) {
        return Ok(vec![Finding::not_checked(NAME, "", "this cluster is no seed of Repot")]);
    }
    let namespace = survey.namespace.as_deref();
    let hosted = read::hosted_etcds(&survey.objects, namespace).await?;
    let workflows = read::workflows(&survey.objects, namespace, None).await?;
    let now = survey.now();
    let mut findings: Vec<Finding> = hosted.iter().flat_map(|one| judge(one, &workflows, now)).collect();
    findings.extend(workflows.iter().filter_map(|one| stuck(one, now)));
    match survey.list(&ETCD, namespace, ListParams::default(), MOST).await {
        Ok(found) => findings.extend(found.items.iter().flat_map(members)),
        Err(error) => findings.push(failed(NAME, "etcds.druid.gardener.cloud", &error)),
    }
    Ok(findings)
}

fn judge(hosted: &HostedEtcd, workflows: &[Workflow], now: Timestamp) -> Vec<Finding> {
    let subject = format!("HostedEtcd {}", hosted.key());
    let status = format!("repot etcd status {} -n {}", hosted.name, hosted.namespace);
    let mut findings = Vec::new();
    let is_idle = hosted.current_workflow.is_none();
    match hosted.condition("Ready") {
        Some(ready) if ready.status != "True" && is_idle => {
            let says = format!("is not ready: {}: {}", ready.reason, ready.message);
            findings.push(Finding::problem(NAME, &subject, says, &status));
        }
        None if is_idle => {
            let advice = "see whether repot-controllers runs on this seed";
            findings.push(Finding::warning(NAME, &subject, "no controller has reported on it", advice));
        }
        _ => {}
    }
    if hosted.lifecycle == "apiDown" || hosted.lifecycle == "etcdDeleted" {
        let says = format!("its life stands at {}, and no workflow works on it", hosted.lifecycle);
        if is_idle {
            findings.push(Finding::problem(NAME, &subject, says, &status));
        }
    }
    let own: Vec<&Workflow> = workflows
        .iter()
        .filter(|one| one.namespace == hosted.namespace && one.cluster == hosted.name)
        .collect();
    let advice = format!(
        "repot etcd backup {} -n {}, or an EtcdBackup with a schedule",
        hosted.name, hosted.namespace
    );
    let newest = newest_backup(own.iter().copied(), &hosted.name);
    match newest {
        _ if hosted.store.is_none() => {
            findings.push(Finding::warning(
                NAME,
                &subject,
                "it has no spec.backupStore, so no backups",
                "set it",
            ));
        }
        None => {
            findings.push(Finding::warning(NAME, &subject, "it was never backed up by an EtcdBackup", advice))
        }
        Some(time) if now.duration_since(time).as_secs() > RECENT => {
            let says = format!("its newest backup is of {}", ago(time, now));
            findings.push(Finding::warning(NAME, &subject, says, advice));
        }
        Some(_) => {}
    }
    if findings.is_empty() {
        let newest = newest.map(|time| ago(time, now)).unwrap_or_default();
        findings.push(Finding::ok(NAME, subject, format!("serves, newest backup {newest}")));
    }
    findings
}

/// A schedule that is not kept, or a step that nobody brings to its end.
fn stuck(one: &Workflow, now: Timestamp) -> Option<Finding> {
    let subject = format!("{} {}", one.kind.kind().kind, one.key());
    let advice = "see whether repot-controllers runs on this seed, and its log";
    if let Some(next) = one.next.filter(|_| one.phase == "Scheduled" && !one.paused) {
        let late = now.duration_since(next).as_secs();
        let says = || format!("the backup of {next} has not begun; it is {} late", duration(late));
        return (late > LATE).then(|| Finding::problem(NAME, subject, says(), advice));
    }
    let step = one.current_step().filter(|step| step.is_running() && !one.is_over())?;
    let seconds = now.duration_since(step.started?).as_secs();
    let is_stuck = seconds > STEP && !WAITS.contains(&step.name.as_str());
    let says = format!("step {} runs for {}: {}", step.name, duration(seconds), step.message);
    is_stuck.then(|| Finding::warning(NAME, subject, says, advice))
}

/// What the operator of the members reports. An Etcd without replicas is stopped on purpose.
fn members(etcd: &Value) -> Vec<Finding> {
    let text = |path| text_at(etcd, path).unwrap_or_default();
    let subject = format!("Etcd {}/{}", text("/metadata/namespace"), text("/metadata/name"));
    let advice = "docs/operate/troubleshooting.md, An Etcd";
    let all = conditions(etcd);
    let mut findings = Vec::new();
    if etcd["spec"]["replicas"] != 0 {
        for (kind, serves) in CONDITIONS {
            let Some(one) = all.iter().find(|one| one.kind == kind && one.status == "False") else {
                continue;
            };
            let says = format!("{kind} is False: {}: {}", one.reason, one.message);
            findings.push(if serves {
                Finding::warning(NAME, &subject, says, advice)
            } else {
                Finding::problem(NAME, &subject, says, advice)
            });
        }
    }
    if let Some(one) = all.iter().find(|one| one.kind == "ClusterIDMismatch" && one.status == "True") {
        let says = format!("members are of different clusters: {}", one.message);
        findings.push(Finding::problem(NAME, &subject, says, "stop writing, and restore from a backup"));
    }
    if let Some(error) = items_at(etcd, "/status/lastErrors").first() {
        let says = format!(
            "{}: {}",
            text_at(error, "/code").unwrap_or("error"),
            text_at(error, "/description").unwrap_or_default()
        );
        findings.push(Finding::warning(NAME, &subject, says, advice));
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        doctor::finding::Severity,
        etcd::{hosted, workflow, workflow::WorkflowKind},
    };

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn judged(object: &Value, now: &str) -> Vec<Severity> {
        let backups = [Workflow::new(WorkflowKind::Backup, &workflow::tests::backup())];
        let found = judge(&HostedEtcd::new(object), &backups, at(now));
        found.into_iter().map(|finding| finding.severity).collect()
    }

    #[test]
    fn hosted_etcd_needs_a_recent_backup() {
        let main = hosted::tests::main();
        assert_eq!(judged(&main, "2026-11-28T09:00:00Z"), [Severity::Ok]);
        assert_eq!(judged(&main, "2026-11-30T09:00:00Z"), [Severity::Warning]);
        let mut other = main.clone();
        other["metadata"]["name"] = json!("events");
        assert_eq!(judged(&other, "2026-11-28T09:00:00Z"), [Severity::Warning]);
    }

    #[test]
    fn etcd_that_does_not_serve_is_a_problem_unless_a_workflow_has_it() {
        let mut down = hosted::tests::main();
        down["status"]["conditions"][0]["status"] = json!("False");
        down["status"]["lifecycleStatus"] = json!("apiDown");
        assert_eq!(judged(&down, "2026-11-28T09:00:00Z"), [Severity::Problem, Severity::Problem]);
        down["status"]["currentWorkflow"] = json!({"kind": "EtcdRestore", "name": "r", "uid": "u"});
        assert_eq!(judged(&down, "2026-11-28T09:00:00Z"), [Severity::Ok]);
    }

    #[test]
    fn schedule_that_is_not_kept_is_a_problem() {
        let mut object = workflow::tests::backup();
        object["status"]["phase"] = json!("Scheduled");
        object["status"]["nextScheduleTime"] = json!("2026-11-29T02:00:00Z");
        let schedule = Workflow::new(WorkflowKind::Backup, &object);
        assert_eq!(stuck(&schedule, at("2026-11-29T02:10:00Z")), None);
        let late = stuck(&schedule, at("2026-11-29T03:00:00Z")).expect("a finding");
        assert_eq!(late.severity, Severity::Problem);
        let running = Workflow::new(WorkflowKind::Migration, &workflow::tests::migration());
        assert_eq!(stuck(&running, at("2026-11-28T07:00:00Z")), None);
        assert!(stuck(&running, at("2026-11-28T09:00:00Z")).is_some());
    }

    #[test]
    fn etcd_that_is_stopped_on_purpose_is_well() {
        let mut etcd = json!({"spec": {"replicas": 3}, "status": {"conditions": [
            {"type": "Ready", "status": "False", "reason": "QuorumLost", "message": "1 of 3"},
        ]}});
        assert_eq!(members(&etcd)[0].severity, Severity::Problem);
        etcd["spec"]["replicas"] = json!(0);
        assert!(members(&etcd).is_empty());
    }
}
