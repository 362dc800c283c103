//! The HostedEtcd is deleted in the middle of a workflow: the workflow rolls back first, and the HostedEtcd stays until then.

use anyhow::{Context, Result, ensure};
use repot_tests::run;
use repot_tests::test_env::TestEnv;
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::control_plane::{ControlPlaneFixture, Data, Front};
use super::world::{DEADLINE, TestNamespace, object};

const FINALIZER: &str = "migration.gardener.cloud/workflow";

/// Deletes the HostedEtcd of a workflow in whose middle neither etcd nor API servers run: it stays until the workflow has rolled back
/// to these volumes, and says what it waits for.
pub async fn hosted_etcd_goes_after_the_workflow(fixture: &ControlPlaneFixture, volumes: &str) -> Result<()> {
    let ns = &fixture.ns;
    let columns = "-o=custom-columns=C:.status.conditions[*].message";
    let mut watch = ns.watch(&["get", "hostedetcd", "main", "-w", columns])?;
    delete_hosted_etcd(ns).await?;
    let deleted = ns.get("hostedetcd", "main").await?;
    ensure!(deleted["metadata"]["finalizers"] == json!([FINALIZER]), "{}", deleted["metadata"]);
    ns.until_gone("hostedetcd", "main").await?;
    is_asked_back(fixture, volumes).await.context("the HostedEtcd has gone too early")?;
    let told = watch.text().await?;
    ensure!(told.contains("has rolled back; it is at"), "it does not say what it waits for:\n{told}");
    Ok(())
}

async fn delete_hosted_etcd(ns: &TestNamespace) -> Result<()> {
    let api = ns.get("deployment", "kube-apiserver").await?;
    ensure!(api["spec"]["replicas"] == 0, "API servers run: {}", api["spec"]);
    ns.kubectl(&["delete", "hostedetcd", "main", "--wait=false"]).await.map(drop)
}

/// Checks that the etcd on these volumes and as many API servers as before are asked for.
async fn is_asked_back(fixture: &ControlPlaneFixture, volumes: &str) -> Result<()> {
    let api = fixture.ns.get("deployment", "kube-apiserver").await?;
    ensure!(api["spec"]["replicas"] == 1, "{}", api["spec"]);
    let etcd = fixture.ns.get("etcd", "main").await?;
    let spec = &etcd["spec"];
    ensure!(spec["replicas"] == fixture.members && spec["volumeClaimTemplate"] == volumes, "{spec}");
    Ok(())
}

/// A hosted etcd of one member with a workflow in the middle, in which neither etcd nor API servers run.
struct Middle<'a> {
    env: &'a TestEnv,
    fixture: ControlPlaneFixture,
    before: Data,
    /// Kind and name of the workflow.
    workflow: (&'static str, &'static str),
}

impl<'a> Middle<'a> {
    /// Pauses a migration after it has deleted the etcd.
    async fn of_migration(env: &'a TestEnv, namespace: &str) -> Result<Self> {
        let fixture = ControlPlaneFixture::start(namespace, 1, Front::Writer).await?;
        let before = fixture.data().await?;
        fixture.migrate(json!({"storageClassName": "fast", "size": "2Gi"})).await?;
        fixture.step("EtcdDeleted", "Running").await?;
        fixture.ns.merge("etcdmigration", "m", json!({"spec": {"paused": true}})).await?;
        fixture.step("EtcdDeleted", "Succeeded").await?;
        Ok(Self { env, fixture, before, workflow: ("etcdmigration", "m") })
    }

    /// Waits until a restore fills the new etcd.
    async fn of_restore(env: &'a TestEnv, namespace: &str) -> Result<Self> {
        let fixture = ControlPlaneFixture::start(namespace, 1, Front::Writer).await?;
        let ns = &fixture.ns;
        ns.apply(&[object("EtcdBackup", "b", json!({"clusterRef": {"name": "main"}}))]).await?;
        ns.ends("etcdbackup", "b", "Succeeded").await?;
        // The restore would give this up.
        fixture.client().await?.kv_client().put("/data/later", "is kept", None).await?;
        let before = fixture.data().await?;
        let source = json!({"backupName": "b"});
        let spec = json!({"clusterRef": {"name": "main"}, "source": source, "stepTimeout": "1m"});
        ns.apply(&[object("EtcdRestore", "r", spec)]).await?;
        ns.until("etcdrestore", "r", "EtcdRestored Running", |object| {
            let steps = object["status"]["steps"].as_array();
            let runs = |step: &Value| step["name"] == "EtcdRestored" && step["state"] == "Running";
            steps.is_some_and(|steps| steps.iter().any(runs))
        })
        .await?;
        Ok(Self { env, fixture, before, workflow: ("etcdrestore", "r") })
    }

    /// Checks that the workflow has rolled back, everything serves again, and nothing is missing, in backups either.
    async fn has_rolled_back(&self) -> Result<()> {
        let ((kind, name), ns) = (self.workflow, &self.fixture.ns);
        let ended = ns.ends(kind, name, "RolledBack").await?;
        ensure!(ended["status"]["reason"] == "HostedEtcdDeleted", "{}", ended["status"]);
        is_asked_back(&self.fixture, "data").await?;
        self.fixture.api_is_up().await?;
        self.fixture.is_sound(self.env, &self.before).await?;
        until("the claims of one etcd", DEADLINE, async || {
            let claims = self.fixture.claims().await?;
            ensure!(claims == [("data-main-0".to_owned(), "slow".to_owned())], "there are {claims:?}");
            Ok(())
        })
        .await?;
        let free = |object: &Value| object["metadata"]["finalizers"].is_null();
        ns.until(kind, name, "without a finalizer", free).await.map(drop)
    }
}

#[test]
#[ignore = "minutes, in make soak"]
fn hosted_etcd_is_deleted_in_a_restore() {
    run(async |env| {
        let middle = Middle::of_restore(env, "d-restore").await?;
        hosted_etcd_goes_after_the_workflow(&middle.fixture, "data").await?;
        middle.has_rolled_back().await
    });
}

#[test]
fn hosted_etcd_whose_finalizer_is_removed_by_hand_goes_and_the_migration_rolls_back() {
    run(async |env| {
        let middle = Middle::of_migration(env, "d-by-hand").await?;
        let ns = &middle.fixture.ns;
        ns.merge("hostedetcd", "main", json!({"metadata": {"finalizers": null}})).await?;
        delete_hosted_etcd(ns).await?;
        ns.until_gone("hostedetcd", "main").await?;
        middle.has_rolled_back().await
    });
}

#[test]
fn namespace_is_deleted_in_a_migration_and_goes() {
    run(async |env| {
        let middle = Middle::of_migration(env, "d-namespace").await?;
        let (garden, name) = (&middle.fixture.ns.world.garden, &middle.fixture.ns.namespace);
        garden.kubectl(["delete", "namespace", name, "--wait=false"]).await?.text()?;
        until("the namespace to be gone", DEADLINE, async || {
            let get = ["get", "namespace", name, "--ignore-not-found", "-o", "json"];
            let left = garden.kubectl(get).await?.text()?;
            let left: Value = serde_json::from_str(&left).unwrap_or_default();
            ensure!(left.is_null(), "it is there: {}", left["status"]);
            Ok(())
        })
        .await
    });
}
