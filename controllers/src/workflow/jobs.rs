//! Jobs that take and prove backups: rendered, and read. Whatever came of them is in the store; they only tell of failures.

use std::time::Duration;

use k8s_openapi::{
    api::{batch::v1::Job, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, ObjectMeta},
};
use repot_etcd::backup::store_ref::StoreRef;
use serde_json::{Value, json};

use crate::etcd::{
    names::{COMPONENT, MANAGED_BY, MANAGED_BY_REPOT},
    render::{container_security, pod_security},
};

use super::{
    error::{Error, Result},
    kinds::{BACKUP, TASK, WORKFLOW},
    members::Reach,
};

/// Names of Jobs become labels of Pods.
const MOST_NAME: usize = 63;
/// So much of the name of a backup tells the Jobs of one workflow apart.
const MOST_TAIL: usize = 12;
/// Name of the Job, on its Pods.
const JOB_NAME: &str = "batch.kubernetes.io/job-name";
const SCRATCH: &str = "/scratch";
const CREDENTIALS: &str = "/etc/store";
const SOURCE_CREDENTIALS: &str = "/etc/source-store";

/// What a Job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Takes a backup.
    Take,
    /// Makes one of what another store has.
    Import,
    /// Proves one.
    Prove,
}

impl Task {
    /// Its name, which is that of the command too.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Take => "take",
            Self::Import => "import",
            Self::Prove => "prove",
        }
    }
}

/// What the Jobs of one task and backup tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobHistory {
    /// One of them has not ended.
    pub open: bool,
    /// Number of Jobs that have ended.
    pub ended: u32,
    /// So many ended without what was wanted of them.
    pub failed: u32,
    /// Why the last one failed.
    pub message: String,
    /// When the last one ended, in seconds.
    pub last: i64,
}

/// All Jobs of a workflow.
///
/// # Errors
/// [`Error::Read`].
pub async fn of(client: &Client, namespace: &str, uid: &str) -> Result<Vec<Job>> {
    let labels = ListParams::default().labels(&format!("{WORKFLOW}={uid}"));
    let got = Api::<Job>::namespaced(client.clone(), namespace).list(&labels).await;
    let got = got.map_err(|source| Error::Read { what: format!("Jobs of {namespace}"), source })?;
    Ok(got.items)
}

/// Reads the Jobs of a backup that do one of these.
#[must_use]
pub fn story(jobs: &[Job], tasks: &[Task], backup: &str) -> JobHistory {
    let mut story = JobHistory::default();
    let label = |job: &Job, label: &str| job.labels().get(label).cloned().unwrap_or_default();
    let is = |job: &&Job| {
        let task = label(job, TASK);
        label(job, BACKUP) == backup && tasks.iter().any(|one| one.word() == task)
    };
    for job in jobs.iter().filter(is) {
        let Some((end, message)) = end(job) else {
            story.open = true;
            continue;
        };
        story.ended += 1;
        // One that says it is complete has left its result in the store; if that is not there, it failed too.
        story.failed += 1;
        if end >= story.last {
            (story.last, story.message) = (end, message);
        }
    }
    story
}

/// When a Job ended, and what it says about that.
fn end(job: &Job) -> Option<(i64, String)> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let over = |kind: &str| matches!(kind, "Complete" | "Failed");
    let last = conditions.iter().find(|c| over(&c.type_) && c.status == "True")?;
    let time = last.last_transition_time.as_ref().map_or(0, |time| time.0.as_second());
    let said = [last.reason.as_deref(), last.message.as_deref()];
    let said: Vec<&str> = said.into_iter().flatten().filter(|text| !text.is_empty()).collect();
    Some((time, format!("Job {}: {}", job.name_any(), said.join(", "))))
}

/// The last words of the Pods of a Job, where they left any.
pub async fn termination_message(client: &Client, namespace: &str, job: &str) -> Option<String> {
    let labels = ListParams::default().labels(&format!("{JOB_NAME}={job}"));
    let pods = Api::<Pod>::namespaced(client.clone(), namespace).list(&labels).await.ok()?;
    let said = |pod: Pod| {
        let status = pod.status?.container_statuses?.into_iter().next()?;
        status.state?.terminated?.message.filter(|text| !text.trim().is_empty())
    };
    pods.items.into_iter().filter_map(said).next_back().map(|text| text.trim().to_owned())
}

/// What a Job is made of.
#[derive(Clone, Debug)]
pub struct Order<'a> {
    /// Metadata of the workflow that the Job works for.
    pub workflow: &'a ObjectMeta,
    /// Whom it belongs to.
    pub owner: OwnerReference,
    /// What the Job does: take, import or prove a backup.
    pub task: Task,
    /// Name of the backup that the Job works on.
    pub backup: &'a str,
    /// How many Jobs did so before.
    pub attempt: u32,
    /// The store in which the backups are.
    pub place: &'a StoreRef,
    /// The store to import from, for that.
    pub source: Option<&'a StoreRef>,
    /// The members, for taking.
    pub reach: Reach,
    /// The image, with `repot`, `etcd` and `etcdutl`.
    pub image: &'a str,
    /// Whether the Job runs as root, as the members do where `spec.runAsRoot` of their Etcd says so.
    pub run_as_root: bool,
    /// How long it may take.
    pub limit: Duration,
}

/// Renders the Job of an order as a Kubernetes object.
#[must_use]
pub fn render(order: &Order) -> Value {
    let uid = order.workflow.uid.clone().unwrap_or_default();
    let labels = json!({
        MANAGED_BY: MANAGED_BY_REPOT, COMPONENT: "etcd-backup",
        WORKFLOW: uid, TASK: order.task.word(), BACKUP: order.backup,
    });
    let (volumes, mounts) = volumes(order);
    let container = json!({
        "name": order.task.word(), "image": order.image, "command": command(order), "env": environment(order),
        "volumeMounts": mounts, "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": container_security(),
    });
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": name(order), "namespace": order.workflow.namespace, "labels": labels, "ownerReferences": [order.owner],
        },
        "spec": {
            // Each failure is seen and counted by the workflow, which tries again.
            "backoffLimit": 0, "activeDeadlineSeconds": order.limit.as_secs(),
            "ttlSecondsAfterFinished": order.limit.as_secs().saturating_mul(2).max(3600),
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "restartPolicy": "Never", "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 10,
                    "securityContext": pod_security(order.run_as_root),
                    "containers": [container], "volumes": volumes,
                },
            },
        },
    })
}

/// The same for the same attempt, so that asking twice makes one.
fn name(order: &Order) -> String {
    let tail: String =
        order.backup.rsplit(['-', '.']).next().unwrap_or_default().chars().take(MOST_TAIL).collect();
    let end = format!("-{}-{tail}-{}", order.task.word(), order.attempt);
    let mut name = order.workflow.name.clone().unwrap_or_default().replace('.', "-");
    name.truncate(MOST_NAME.saturating_sub(end.len()));
    name + &end
}

fn command(order: &Order) -> Vec<String> {
    let mut words: Vec<String> = ["repot", "snapshots", order.task.word()].map(str::to_owned).into();
    let mut flag = |name: &str, value: String| words.extend([format!("--{name}"), value]);
    if order.task != Task::Import {
        flag("scratch", SCRATCH.to_owned());
    }
    flag("store", order.place.url());
    flag("name", order.backup.to_owned());
    if matches!(order.task, Task::Take | Task::Import) {
        flag("owner", order.workflow.uid.clone().unwrap_or_default());
    }
    if let Some(source) = order.source {
        flag("source", source.url());
    }
    if order.task == Task::Take {
        flag("endpoints", order.reach.endpoints.join(","));
        if let Some((_, key)) = &order.reach.ca {
            flag("cacert", format!("/etc/etcd/ca/{key}"));
        }
        if order.reach.client.is_some() {
            flag("cert", "/etc/etcd/client/tls.crt".to_owned());
            flag("key", "/etc/etcd/client/tls.key".to_owned());
        }
    }
    words
}

fn environment(order: &Order) -> Vec<Value> {
    let mut all = order.place.environment(CREDENTIALS);
    if let Some(source) = order.source {
        let of_source = source.environment(SOURCE_CREDENTIALS).into_iter();
        all.extend(of_source.map(|(name, value)| (format!("SOURCE_{name}"), value)));
    }
    // A store that is away for longer is the matter of the next Job.
    all.insert("STORE_PATIENCE_SECONDS".to_owned(), order.limit.as_secs().div_ceil(3).min(60).to_string());
    all.iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
}

fn volumes(order: &Order) -> (Vec<Value>, Vec<Value>) {
    let mut volumes = vec![json!({"name": "scratch", "emptyDir": {}})];
    let mut mounts = vec![json!({"name": "scratch", "mountPath": SCRATCH})];
    let mut add = |name: &str, place: &str, source: Value| {
        let mut volume = source;
        volume["name"] = name.into();
        mounts.push(json!({"name": name, "mountPath": place}));
        volumes.push(volume);
    };
    let mut add_store =
        |(store, credentials): (&str, &str), mounted: &str, place: &StoreRef, known: Option<&str>| {
            // A directory cannot be mounted twice in one place.
            if let Some(directory) = place.directory().filter(|directory| known != Some(directory)) {
                let source = json!({"hostPath": {"path": directory, "type": "DirectoryOrCreate"}});
                add(store, &directory, source);
            }
            if let Some(secret) = &place.secret_ref {
                add(credentials, mounted, json!({"secret": {"secretName": secret.name}}));
            }
        };
    add_store(("store", "credentials"), CREDENTIALS, order.place, None);
    if let Some(source) = order.source {
        let known = order.place.directory();
        add_store(("source", "source-credentials"), SOURCE_CREDENTIALS, source, known.as_deref());
    }
    if order.task == Task::Take {
        if let Some((name, _)) = &order.reach.ca {
            add("ca", "/etc/etcd/ca", json!({"secret": {"secretName": name}}));
        }
        if let Some(name) = &order.reach.client {
            add("client", "/etc/etcd/client", json!({"secret": {"secretName": name}}));
        }
    }
    (volumes, mounts)
}
