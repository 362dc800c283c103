//! Hosted etcds and workflows as text.

use jiff::Timestamp;

use super::{
    hosted::{Condition, HostedEtcd, Member},
    workflow::{Workflow, WorkflowKind, newest_backup},
};
use crate::text::{ago, bytes, columns, duration};

/// Workflows that have ended which the screen of one etcd shows.
const MOST_ENDED: usize = 5;

/// A list of hosted etcds, with the workflows of all of them.
#[must_use]
pub fn list(all: &[HostedEtcd], workflows: &[Workflow], wide: bool, now: Timestamp) -> String {
    if all.is_empty() {
        return "There is no HostedEtcd.\n".to_owned();
    }
    let head = [
        "NAMESPACE",
        "NAME",
        "STATUS",
        "READY",
        "LAST BACKUP",
        "WORKFLOW",
        "STEP",
        if wide { "STORE" } else { "" },
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for one in all {
        let of_etcd = workflows.iter().filter(|workflow| workflow.namespace == one.namespace);
        let newest = newest_backup(of_etcd.clone(), &one.name);
        let current = one.current_workflow.as_ref();
        let running = current.and_then(|current| {
            of_etcd
                .clone()
                .find(|workflow| workflow.name == current.name && workflow.kind.kind().kind == current.kind)
        });
        let step = running.and_then(Workflow::current_step).map(|step| step.name.clone());
        let ready = one.condition("Ready").map_or("?", |condition| condition.status.as_str());
        rows.push([
            one.namespace.clone(),
            one.name.clone(),
            if one.lifecycle.is_empty() { "?".to_owned() } else { one.lifecycle.clone() },
            ready.to_owned(),
            newest.map_or_else(|| "none".to_owned(), |time| ago(time, now)),
            current.map_or_else(|| "-".to_owned(), |current| format!("{}/{}", current.kind, current.name)),
            step.unwrap_or_else(|| "-".to_owned()),
            if wide { one.store.clone().unwrap_or_else(|| "none".to_owned()) } else { String::new() },
        ]);
    }
    columns(&rows)
}

/// One hosted etcd on one screen: members, conditions, what runs, and the last backups.
#[must_use]
pub fn status(hosted: &HostedEtcd, workflows: &[Workflow], wide: bool, now: Timestamp) -> String {
    let mut text = format!("HostedEtcd {}  {}\n", hosted.key(), or(&hosted.lifecycle, "not reconciled yet"));
    let mut line = |label: &str, says: &str| text.push_str(&format!("  {label:<12} {says}\n"));
    line("etcd", &format!("{}, {} members ready", hosted.etcd, hosted.ready()));
    line("API servers", &format!("Deployment/{}", hosted.api_server));
    line("store", hosted.store.as_deref().unwrap_or("none: no backups can be taken"));
    if !hosted.message.is_empty() {
        line("says", &hosted.message);
    }
    if let Some(current) = &hosted.current_workflow {
        line("workflow", &format!("{} {} has the etcd", current.kind, current.name));
    }
    let newest = newest_backup(workflows, &hosted.name);
    line(
        "last backup",
        &newest.map_or_else(|| "none".to_owned(), |time| format!("{}, {time}", ago(time, now))),
    );
    part(&mut text, members(&hosted.members, now));
    part(&mut text, conditions(&hosted.conditions, now));
    for running in workflows.iter().filter(|one| !one.is_idle()) {
        part(&mut text, workflow(running, now));
    }
    part(&mut text, schedules(workflows, now));
    part(&mut text, ended(workflows, if wide { usize::MAX } else { MOST_ENDED }, now));
    text
}

/// One workflow with its steps.
#[must_use]
pub fn workflow(one: &Workflow, now: Timestamp) -> String {
    let mut text = format!("{} {}  {}", one.kind.kind().kind, one.key(), one.phase);
    if let Some(created) = one.created {
        let seconds = one.completed.unwrap_or(now).duration_since(created).as_secs().max(0);
        text.push_str(&format!(" {} {}", if one.is_over() { "in" } else { "for" }, duration(seconds)));
    }
    if let Some(seconds) = one.api_down_seconds {
        text.push_str(&format!(", API away for {}", duration(seconds)));
    }
    text.push('\n');
    for (is_set, says) in
        [(one.paused, "paused: no further step starts"), (one.cancel, "cancelled: it rolls back")]
    {
        if is_set && !one.is_over() {
            text.push_str(&format!("  {says}\n"));
        }
    }
    if !one.message.is_empty() {
        text.push_str(&format!("  {}\n", one.message));
    }
    if one.steps.is_empty() {
        return text;
    }
    let mut rows = vec![["STEP", "STATE", "TOOK", "SAYS"].map(str::to_owned)];
    for step in &one.steps {
        let lasting = || step.started.map(|time| now.duration_since(time).as_secs().max(0));
        let seconds = step.seconds().or_else(|| lasting().filter(|_| step.is_running()));
        let attempts = if step.attempts > 1 { format!(" (start {})", step.attempts) } else { String::new() };
        rows.push([
            step.name.clone() + &attempts,
            step.state.clone(),
            seconds.map(duration).unwrap_or_default(),
            step.message.clone(),
        ]);
    }
    text + &columns(&rows)
}

fn part(text: &mut String, part: String) {
    if !part.is_empty() {
        text.push('\n');
        text.push_str(&part);
    }
}

fn members(all: &[Member], now: Timestamp) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut rows = vec![["MEMBER", "ROLE", "STATUS", "REASON", "SINCE"].map(str::to_owned)];
    rows.extend(all.iter().map(|member| {
        let since = member.since.map(|time| ago(time, now)).unwrap_or_default();
        [member.name.clone(), or(&member.role, "?"), member.status.clone(), member.reason.clone(), since]
    }));
    columns(&rows)
}

fn conditions(all: &[Condition], now: Timestamp) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut rows = vec![["CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE"].map(str::to_owned)];
    rows.extend(all.iter().map(|one| {
        let since = one.since.map(|time| ago(time, now)).unwrap_or_default();
        [one.kind.clone(), one.status.clone(), one.reason.clone(), since, one.message.clone()]
    }));
    columns(&rows)
}

fn schedules(all: &[Workflow], now: Timestamp) -> String {
    let mut rows =
        vec![["SCHEDULE", "WHEN (UTC)", "PHASE", "LAST", "NEXT", "NEWEST BACKUP"].map(str::to_owned)];
    for one in all {
        let Some(schedule) = &one.schedule else { continue };
        let last = one.last_success.map_or_else(|| "never".to_owned(), |time| ago(time, now));
        let next = one.next.map(|time| time.to_string()).unwrap_or_default();
        let newest = one.backup.clone().unwrap_or_default();
        rows.push([one.name.clone(), schedule.clone(), one.phase.clone(), last, next, newest]);
    }
    if rows.len() == 1 { String::new() } else { columns(&rows) }
}

fn ended(all: &[Workflow], most: usize, now: Timestamp) -> String {
    let mut rows =
        vec![["WORKFLOW", "NAME", "PHASE", "ENDED", "BACKUP", "REVISION", "SIZE"].map(str::to_owned)];
    let over: Vec<&Workflow> = all.iter().filter(|one| one.is_over()).collect();
    for one in over.iter().take(most) {
        rows.push([
            match one.kind {
                WorkflowKind::Backup => "backup",
                WorkflowKind::Restore => "restore",
                WorkflowKind::Migration => "migration",
            }
            .to_owned(),
            one.name.clone(),
            one.phase.clone(),
            one.completed.map(|time| ago(time, now)).unwrap_or_default(),
            one.backup.clone().unwrap_or_default(),
            one.revision.map(|revision| revision.to_string()).unwrap_or_default(),
            one.size_bytes.map(bytes).unwrap_or_default(),
        ]);
    }
    let more = over.len().saturating_sub(most);
    match (rows.len(), more) {
        (1, _) => String::new(),
        (_, 0) => columns(&rows),
        _ => format!("{}and {more} more; --output wide shows all\n", columns(&rows)),
    }
}

fn or(text: &str, other: &str) -> String {
    if text.is_empty() { other.to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::etcd::{hosted, workflow};

    fn now() -> Timestamp {
        "2026-11-28T06:01:00Z".parse().expect("a time")
    }

    fn workflows() -> Vec<Workflow> {
        vec![
            Workflow::new(WorkflowKind::Migration, &workflow::tests::migration()),
            Workflow::new(WorkflowKind::Backup, &workflow::tests::backup()),
        ]
    }

    fn main() -> HostedEtcd {
        let mut object = hosted::tests::main();
        object["status"]["currentWorkflow"] = json!({"kind": "EtcdMigration", "name": "faster", "uid": "u"});
        HostedEtcd::new(&object).with_etcd(&hosted::tests::etcd())
    }

    #[test]
    fn list_has_the_last_backup_and_the_step_that_runs() {
        let expected = "\
NAMESPACE          NAME  STATUS   READY  LAST BACKUP  WORKFLOW              STEP
shoot--dev--alpha  main  running  True   1h00m ago    EtcdMigration/faster  ApiDown
";
        let text = list(&[main()], &workflows(), false, now());
        assert_eq!(text, expected, "\n{text}");
    }

    #[test]
    fn screen_shows_members_conditions_steps_and_backups() {
        let text = status(&main(), &workflows(), false, now());
        let expected = "\
HostedEtcd shoot--dev--alpha/main  running
  etcd         Etcd/etcd-main, 3/3 members ready
  API servers  Deployment/kube-apiserver
  store        S3 backups/alpha
  says         all members serve
  workflow     EtcdMigration faster has the etcd
  last backup  1h00m ago, 2026-11-28T05:01:00Z

MEMBER       ROLE    STATUS    REASON        SINCE
etcd-main-0  Leader  Ready     AnswersReads  1h01m ago
etcd-main-1  Member  Ready     AnswersReads  1h01m ago
etcd-main-2  Member  NotReady  AnswersReads  1h01m ago

CONDITION  STATUS  REASON  SINCE      MESSAGE
Ready      True    Serves  1h01m ago

EtcdMigration shoot--dev--alpha/faster  Running for 1m00s
STEP       STATE      TOOK  SAYS
LockTaken  Succeeded  1s
ApiDown    Running    57s   1 Pod is left

WORKFLOW  NAME    PHASE      ENDED      BACKUP  REVISION  SIZE
backup    monday  Succeeded  59m59s ago  monday  812       1.5 MiB
";
        let expected = expected.replace("ENDED      BACKUP", "ENDED       BACKUP");
        assert_eq!(text, expected, "\n{text}");
    }

    #[test]
    fn long_history_is_cut() {
        let all: Vec<Workflow> =
            (0..7).map(|_| Workflow::new(WorkflowKind::Backup, &workflow::tests::backup())).collect();
        let text = status(&main(), &all, false, now());
        assert!(text.ends_with("and 2 more; --output wide shows all\n"), "{text}");
        assert_eq!(status(&main(), &all, true, now()).matches("monday  Succeeded").count(), 7);
    }
}
