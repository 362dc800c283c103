//! An EtcdBackup, EtcdRestore or EtcdMigration as people look at it.

use jiff::Timestamp;
use repot_apimachinery::value::{at, items_at, text_at};
use repot_controllers::workflow::kinds;
use serde::Serialize;
use serde_json::Value;

use crate::{
    migration::StepRecord,
    objects::{ETCD_BACKUP, ETCD_MIGRATION, ETCD_RESTORE, Kind},
    text::one_line,
};

/// Most steps that are looked at. Tables have fewer than 30.
const MOST_STEPS: usize = 100;

/// A kind of workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum WorkflowKind {
    /// One backup, or a schedule of them.
    #[serde(rename = "EtcdBackup")]
    Backup,
    /// The etcd is put back to a backup.
    #[serde(rename = "EtcdRestore")]
    Restore,
    /// The etcd gets other settings.
    #[serde(rename = "EtcdMigration")]
    Migration,
}

impl WorkflowKind {
    /// All kinds of workflow, each of them once.
    pub const ALL: [Self; 3] = [Self::Backup, Self::Restore, Self::Migration];

    /// How many steps its newest table has, on the way forward.
    #[must_use]
    pub fn steps(self) -> usize {
        let kind = match self {
            Self::Backup => kinds::Kind::Backup,
            Self::Restore => kinds::Kind::Restore,
            Self::Migration => kinds::Kind::Migration,
        };
        kind.plans().newest().forward.len()
    }

    /// The kind of its objects.
    #[must_use]
    pub fn kind(self) -> Kind {
        match self {
            Self::Backup => ETCD_BACKUP,
            Self::Restore => ETCD_RESTORE,
            Self::Migration => ETCD_MIGRATION,
        }
    }
}

/// A workflow of a hosted etcd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Workflow {
    /// What it does.
    pub kind: WorkflowKind,
    /// Namespace of the control plane.
    pub namespace: String,
    /// Name of its object.
    pub name: String,
    /// Name of the HostedEtcd that it works on.
    pub cluster: String,
    /// When its object was created.
    pub created: Option<Timestamp>,
    /// `status.phase`; `Pending` where no controller has recorded one.
    pub phase: String,
    /// Why, in one word.
    pub reason: String,
    /// Why, for people.
    pub message: String,
    /// Name of the newest backup, or of the one that is restored.
    pub backup: Option<String>,
    /// When backups are taken, in the five fields of cron; `None` for all but schedules.
    pub schedule: Option<String>,
    /// Revision of etcd up to which the backup reaches.
    pub revision: Option<i64>,
    /// Size of the newest backup, in bytes.
    pub size_bytes: Option<u64>,
    /// When a backup last succeeded.
    pub last_success: Option<Timestamp>,
    /// When the schedule next asks for a backup.
    pub next: Option<Timestamp>,
    /// How long the API could not be reached, in seconds.
    pub api_down_seconds: Option<i64>,
    /// When it ended.
    pub completed: Option<Timestamp>,
    /// Whether `spec.paused` asks to start no further step.
    pub paused: bool,
    /// Whether `spec.cancel` asks to stop.
    pub cancel: bool,
    /// How long each step may take, as a duration such as `10m`.
    pub step_timeout: Option<String>,
    /// Its steps, in the order of the tables.
    pub steps: Vec<StepRecord>,
}

impl Workflow {
    /// Reads the object. Text that others have written loses its control characters; a time that is none is left out.
    #[must_use]
    pub fn new(kind: WorkflowKind, object: &Value) -> Self {
        let text = |path: &str| one_line(text_at(object, path).unwrap_or_default());
        let optional = |path: &str| text_at(object, path).map(one_line);
        let time = |path: &str| text_at(object, path).and_then(|time| time.parse().ok());
        let number = |path: &str| at(object, path).and_then(Value::as_i64);
        let flag = |path: &str| at(object, path) == Some(&Value::Bool(true));
        let steps = items_at(object, "/status/steps").iter().take(MOST_STEPS);
        Self {
            kind,
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
            cluster: text("/spec/clusterRef/name"),
            created: time("/metadata/creationTimestamp"),
            phase: optional("/status/phase").unwrap_or_else(|| "Pending".to_owned()),
            reason: text("/status/reason"),
            message: text("/status/message"),
            backup: optional("/status/backupName").or_else(|| optional("/spec/source/backupName")),
            schedule: optional("/spec/schedule"),
            revision: number("/status/revision").or_else(|| number("/status/proof/revision")),
            size_bytes: number("/status/sizeBytes").and_then(|size| size.try_into().ok()),
            last_success: time("/status/lastSuccessfulTime"),
            next: time("/status/nextScheduleTime"),
            api_down_seconds: number("/status/apiDownSeconds"),
            completed: time("/status/completionTime"),
            paused: flag("/spec/paused"),
            cancel: flag("/spec/cancel"),
            step_timeout: optional("/spec/stepTimeout"),
            steps: steps.map(StepRecord::read).collect(),
        }
    }

    /// Namespace and name, as people write them.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether it has ended. A schedule never ends by itself.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "RolledBack" | "Failed" | "Cancelled")
    }

    /// Whether it waits for nothing but a time.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.is_over() || self.phase == "Scheduled"
    }

    /// Whether what was asked for is done.
    #[must_use]
    pub fn has_succeeded(&self) -> bool {
        self.phase == "Succeeded"
    }

    /// The step that runs, or the first one that is not done.
    #[must_use]
    pub fn current_step(&self) -> Option<&StepRecord> {
        let is_done =
            |step: &&StepRecord| matches!(step.state.as_str(), "Succeeded" | "Skipped" | "RolledBack");
        let running = self.steps.iter().find(|step| step.is_running());
        running.or_else(|| self.steps.iter().find(|step| !is_done(step)))
    }
}

/// When the newest backup of a HostedEtcd succeeded.
#[must_use]
pub fn newest_backup<'a>(all: impl IntoIterator<Item = &'a Workflow>, cluster: &str) -> Option<Timestamp> {
    let backups = all.into_iter().filter(|one| one.kind == WorkflowKind::Backup && one.cluster == cluster);
    let time = |one: &Workflow| one.last_success.or(one.completed.filter(|_| one.has_succeeded()));
    backups.filter_map(time).max()
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// A backup that was taken.
    pub(crate) fn backup() -> Value {
        json!({
            "metadata": {"name": "monday", "namespace": "shoot--dev--alpha", "creationTimestamp": "2026-11-28T05:00:00Z"},
            "spec": {"clusterRef": {"name": "main"}},
            "status": {
                "phase": "Succeeded", "backupName": "monday", "revision": 812, "sizeBytes": 1_572_864,
                "lastSuccessfulTime": "2026-11-28T05:01:00Z", "completionTime": "2026-11-28T05:01:01Z",
                "steps": [{"name": "LockTaken", "state": "Succeeded"}, {"name": "BackupTaken", "state": "Succeeded"}],
            },
        })
    }

    /// A migration to other settings that runs.
    pub(crate) fn migration() -> Value {
        json!({
            "metadata": {"name": "faster", "namespace": "shoot--dev--alpha", "creationTimestamp": "2026-11-28T06:00:00Z"},
            "spec": {"clusterRef": {"name": "main"}, "settings": {"storageClassName": "fast"}},
            "status": {"phase": "Running", "steps": [
                {"name": "LockTaken", "state": "Succeeded", "startTime": "2026-11-28T06:00:01Z",
                 "completionTime": "2026-11-28T06:00:02Z"},
                {"name": "ApiDown", "state": "Running", "attempts": 1, "message": "1 Pod is left",
                 "startTime": "2026-11-28T06:00:03Z"},
            ]},
        })
    }

    #[test]
    fn current_step_is_the_one_that_runs() {
        let read = Workflow::new(WorkflowKind::Migration, &migration());
        assert_eq!(read.current_step().map(|step| step.name.as_str()), Some("ApiDown"));
        assert!(!read.is_over() && !read.is_idle());
        let done = Workflow::new(WorkflowKind::Backup, &backup());
        assert!(done.current_step().is_none() && done.has_succeeded());
    }

    #[test]
    fn steps_are_those_of_the_tables() {
        assert_eq!(WorkflowKind::ALL.map(WorkflowKind::steps), [6, 10, 12]);
    }

    #[test]
    fn newest_backup_is_that_of_the_same_etcd() {
        let (mut older, mut other) = (backup(), backup());
        older["status"]["lastSuccessfulTime"] = json!("2026-11-27T00:00:00Z");
        other["spec"]["clusterRef"]["name"] = json!("events");
        other["status"]["lastSuccessfulTime"] = json!("2026-11-29T00:00:00Z");
        let all = [older, backup(), other].map(|object| Workflow::new(WorkflowKind::Backup, &object));
        let newest = newest_backup(&all, "main").map(|time| time.to_string());
        assert_eq!(newest.as_deref(), Some("2026-11-28T05:01:00Z"));
        assert_eq!(newest_backup(&all, "none"), None);
    }
}
