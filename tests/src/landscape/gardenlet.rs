//! A stand-in for the gardenlet of a seed: it works on one Shoot and its BackupEntry in the garden, woken as gardenlet is, migrates, and
//! restores with what gardenlet needs. It shares no code with Repot.

mod druid;
mod migrate;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::garden::{CORE, GardenCluster};
use super::seed::Seed;
use super::shoot::ShootName;
use crate::http::Api;
use crate::operator;
use crate::s3::BUCKET;
pub use druid::{Copied, Druid};

/// gardenlet looks when a watch wakes it; this one asks.
const POLL: Duration = Duration::from_millis(300);
/// How long gardenlet waits for an EtcdCopyBackupsTask before its flow fails and begins anew.
const COPY_DEADLINE: Duration = Duration::from_secs(300);
const MERGE: &str = "application/merge-patch+json";
const TASKS: &str = "/apis/druid.gardener.cloud/v1alpha1/namespaces";

/// A running stand-in. It ends when it is dropped.
pub struct Gardenlet {
    told: Arc<Told>,
    task: JoinHandle<()>,
}

/// What it did, and when.
type Told = Mutex<Vec<(Instant, String)>>;

/// What it works on, and with.
struct Worker {
    seed: String,
    garden: Api,
    own: Api,
    shoot: ShootName,
    /// UID of the Seed: the name of its bucket in a BackupEntry.
    bucket: String,
    /// The generation of each object that was last worked on: only another one wakes it.
    seen: BTreeMap<&'static str, i64>,
    told: Arc<Told>,
}

impl Gardenlet {
    /// Starts the gardenlet of a seed, for one Shoot.
    pub async fn start(garden: &GardenCluster, seed: &Seed, shoot: &ShootName) -> Result<Self> {
        let crd = format!("{}/crds/copy-tasks.yaml", env!("CARGO_MANIFEST_DIR"));
        seed.cluster.kubectl(["apply", "--server-side", "-f", &crd]).await?.text()?;
        let found = garden.cluster.api().get(&format!("{CORE}/seeds/{}", seed.name)).await?.ok()?;
        let told = Arc::new(Mutex::new(Vec::new()));
        let mut worker = Worker {
            seed: seed.name.clone(),
            garden: garden.cluster.api().clone(),
            own: seed.cluster.api().clone(),
            shoot: shoot.clone(),
            bucket: found["metadata"]["uid"].as_str().context("the Seed has no UID")?.to_owned(),
            seen: BTreeMap::new(),
            told: told.clone(),
        };
        let task = tokio::spawn(async move {
            loop {
                if let Err(error) = worker.look().await {
                    worker.tell(format!("error: {error:#}"));
                }
                sleep(POLL).await;
            }
        });
        Ok(Self { told, task })
    }

    /// What it did, in order.
    pub fn told(&self) -> Vec<String> {
        self.told.lock().iter().map(|(_, what)| what.clone()).collect()
    }

    /// When it first did this; `None` where it did not.
    pub fn when(&self, what: &str) -> Option<Instant> {
        self.told.lock().iter().find(|(_, told)| told == what).map(|(when, _)| *when)
    }
}

impl Drop for Gardenlet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Who works on an object: the seed that its status names, and only where it has none that of its spec.
fn is_responsible(object: &Value, seed: &str) -> bool {
    let (spec, status) = (&object["spec"]["seedName"], &object["status"]["seedName"]);
    match (spec.as_str(), status.as_str()) {
        (None, _) => false,
        (Some(_), Some(status)) => status == seed,
        (Some(spec), None) => spec == seed,
    }
}

/// What a gardenlet does with a Shoot that it is responsible for, by the order of the conditions in its source.
fn compute(shoot: &Value) -> &'static str {
    let (spec, status) = (&shoot["spec"]["seedName"], &shoot["status"]["seedName"]);
    if status.is_string() && spec != status {
        return "Migrate";
    }
    let last = &shoot["status"]["lastOperation"];
    let (kind, state) = (last["type"].as_str(), last["state"].as_str().unwrap_or_default());
    if kind == Some("Migrate") && ["Succeeded", "Aborted"].contains(&state) {
        return "Restore";
    }
    match kind {
        None => "Create",
        Some("Create") if state != "Succeeded" => "Create",
        Some("Migrate") if state != "Succeeded" => "Migrate",
        Some("Restore") if state != "Succeeded" => "Restore",
        Some(_) => "Reconcile",
    }
}

impl Worker {
    fn tell(&self, what: String) {
        let mut told = self.told.lock();
        if told.last().is_none_or(|(_, last)| *last != what) {
            told.push((Instant::now(), what));
        }
    }

    fn shoot_path(&self) -> String {
        format!("{CORE}/namespaces/{}/shoots/{}", self.shoot.project_namespace(), self.shoot.name)
    }

    fn entry_path(&self, before: &str) -> String {
        let (namespace, name) = (self.shoot.project_namespace(), self.shoot.backup_entry());
        format!("{CORE}/namespaces/{namespace}/backupentries/{before}{name}")
    }

    /// Whether an object has another generation than when it was last worked on.
    fn is_woken(&mut self, kind: &'static str, object: &Value) -> bool {
        let generation = object["metadata"]["generation"].as_i64().unwrap_or_default();
        self.seen.insert(kind, generation) != Some(generation)
    }

    async fn look(&mut self) -> Result<()> {
        self.look_at_entry().await?;
        let shoot = self.garden.get(&self.shoot_path()).await?.ok()?;
        if !self.is_woken("Shoot", &shoot) || !is_responsible(&shoot, &self.seed) {
            return Ok(());
        }
        let operation = compute(&shoot);
        self.tell(operation.to_owned());
        let outcome = match operation {
            "Migrate" => self.migrate().await,
            "Restore" => self.restore().await,
            _ => return Ok(()),
        };
        if let Err(error) = outcome {
            self.report(operation, "Error", 50, &format!("{error:#}")).await?;
            // A flow that has failed begins anew by itself.
            self.seen.remove("Shoot");
            return Err(error);
        }
        match operation {
            "Migrate" => self.leave().await,
            _ => {
                self.report("Restore", "Succeeded", 100, "Shoot cluster has been successfully restored.")
                    .await
            }
        }
    }

    async fn look_at_entry(&mut self) -> Result<()> {
        let entry = self.garden.get(&self.entry_path("")).await?.ok()?;
        if !self.is_woken("BackupEntry", &entry) || !is_responsible(&entry, &self.seed) {
            return Ok(());
        }
        self.tell(format!("BackupEntry in {}", entry["spec"]["bucketName"].as_str().unwrap_or_default()));
        let generation = &entry["metadata"]["generation"];
        let status = json!({"status": {
            "seedName": self.seed, "observedGeneration": generation,
            "lastOperation": {
                "type": "Reconcile", "state": "Succeeded", "progress": 100, "description": "done",
                "lastUpdateTime": "2026-01-01T00:00:00Z",
            },
        }});
        self.patch(&format!("{}/status", self.entry_path("")), &status).await
    }

    async fn patch(&self, path: &str, patch: &Value) -> Result<()> {
        self.garden.patch(path, MERGE, patch).await?.ok().map(drop)
    }

    async fn report(&self, kind: &str, state: &str, progress: u32, description: &str) -> Result<()> {
        let status = json!({"status": {"seedName": self.seed, "lastOperation": {
            "type": kind, "state": state, "progress": progress, "description": description,
            "lastUpdateTime": "2026-01-01T00:00:00Z",
        }}});
        self.patch(&format!("{}/status", self.shoot_path()), &status).await
    }

    /// What a restore does with what this migration has to bring it: ShootState, BackupEntry and backups.
    async fn restore(&mut self) -> Result<()> {
        let path =
            format!("{CORE}/namespaces/{}/shootstates/{}", self.shoot.project_namespace(), self.shoot.name);
        let state = self.garden.get(&path).await?.ok().context("the operation cannot be initialized")?;
        let entries = state["spec"]["gardener"].as_array().map(Vec::len).unwrap_or_default();
        ensure!(entries > 0, "the ShootState has no Secrets");
        self.tell(format!("ShootState of {entries} entries"));
        self.report("Restore", "Processing", 10, "Restore in progress.").await?;
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.shoot.technical_id()},
        });
        let created = self.own.post("/api/v1/namespaces", &namespace).await?;
        ensure!([201, 409].contains(&created.status), "{created}");
        let entry = self.garden.get(&self.entry_path("")).await?.ok()?;
        if entry["spec"]["bucketName"] != self.bucket.as_str() {
            self.take_over_backups().await?;
        }
        self.report("Restore", "Processing", 60, "Restore in progress.").await?;
        self.run_api_server().await
    }

    /// The BackupEntry names the bucket of the own seed; its own controller is woken by that. Then the backups are copied.
    async fn take_over_backups(&mut self) -> Result<()> {
        let patch = json!({
            "metadata": {"annotations": {"gardener.cloud/operation": "restore"}},
            "spec": {"bucketName": self.bucket, "seedName": self.seed},
        });
        self.patch(&self.entry_path(""), &patch).await?;
        self.look_at_entry().await?;
        let entry = self.garden.get(&self.entry_path("")).await?.ok()?;
        let (generation, observed) =
            (&entry["metadata"]["generation"], &entry["status"]["observedGeneration"]);
        ensure!(generation == observed, "nobody has reconciled the BackupEntry");
        self.copy_backups().await?;
        self.tell("backups copied".to_owned());
        Ok(())
    }

    async fn copy_backups(&self) -> Result<()> {
        let all = format!("{TASKS}/{}/etcdcopybackupstasks", self.shoot.technical_id());
        let path = format!("{all}/{}", self.shoot.name);
        self.own.delete(&path).await?;
        let prefix = format!("{}/etcd-main", self.shoot.backup_entry());
        let store = |secret: &str| json!({"container": BUCKET, "prefix": prefix, "provider": "local", "secretRef": {"name": secret}});
        let task = json!({
            "apiVersion": "druid.gardener.cloud/v1alpha1", "kind": "EtcdCopyBackupsTask",
            "metadata": {"name": self.shoot.name},
            "spec": {
                "sourceStore": store("source-etcd-backup"), "targetStore": store("etcd-backup"),
                "waitForFinalSnapshot": {"enabled": true, "timeout": "5m0s"},
            },
        });
        poll(|| self.create(&all, &task)).await?;
        poll(|| self.is_copied(&path)).await?;
        self.own.delete(&path).await?.ok().map(drop)
    }

    async fn create(&self, path: &str, object: &Value) -> Result<()> {
        self.own.post(path, object).await?.ok().map(drop)
    }

    /// Whether gardenlet would go on: the condition of the current generation.
    async fn is_copied(&self, path: &str) -> Result<()> {
        let task = self.own.get(path).await?.ok()?;
        let (status, generation) = (&task["status"], &task["metadata"]["generation"]);
        ensure!(status["observedGeneration"] == *generation, "{status}");
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        ensure!(conditions.any(|one| one["type"] == "Succeeded" && one["status"] == "True"), "{status}");
        Ok(())
    }

    async fn is_api_ready(&self, path: &str) -> Result<()> {
        let found = self.own.get(path).await?.ok()?;
        ensure!(found["status"]["readyReplicas"] == 1, "{}", found["status"]);
        Ok(())
    }

    /// Stands for the kube-apiserver: what Repot looks at is that its Deployment is ready.
    async fn run_api_server(&self) -> Result<()> {
        let labels = json!({"app": "kubernetes", "role": "apiserver"});
        // Any server that runs until it is ended.
        let container = json!({
            "name": "kube-apiserver", "image": operator::IMAGE, "command": ["repot", "dev", "--data-dir", "/data/repot"],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        });
        let pod = json!({
            "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0, "containers": [container],
            "volumes": [{"name": "data", "emptyDir": {}}],
        });
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "kube-apiserver"},
            "spec": {
                "replicas": 1, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        });
        let path = format!("/apis/apps/v1/namespaces/{}/deployments", self.shoot.technical_id());
        let created = self.own.post(&path, &deployment).await?;
        if ![201, 409].contains(&created.status) {
            bail!("{created}");
        }
        let path = format!("{path}/kube-apiserver");
        poll(|| self.is_api_ready(&path)).await?;
        self.tell("API serves".to_owned());
        Ok(())
    }
}

/// Looks until it is so. The futures of [`crate::wait::until`] cannot be sent to another thread.
async fn poll<F: Future<Output = Result<()>> + Send>(look: impl Fn() -> F + Send) -> Result<()> {
    let end = Instant::now() + COPY_DEADLINE;
    loop {
        match look().await {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() >= end => return Err(error),
            Err(_) => sleep(POLL).await,
        }
    }
}
