//! The HostedEtcd is deleted in the middle of a workflow: the workflow goes back first, and the HostedEtcd stays until then.

use anyhow::{Context, Result, ensure};
use repot_tests::run;
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::plant::{Front, Plant};
use super::table::{FAULTS, Fault};
use super::world::{DEADLINE, Place, object};

const FINALIZER: &str = "migration.gardener.cloud/workflow";

/// The row of the table that [`hosted_etcd_is_deleted_in_a_migration`] plays.
fn row() -> Result<&'static Fault> {
    FAULTS.iter().find(|fault| fault.what.contains("HostedEtcd is deleted")).context("no row")
}

/// A hosted etcd with a workflow in the middle, in which neither etcd nor API servers run.
struct Middle {
    plant: Plant,
    before: Vec<(Vec<u8>, Vec<u8>, i64, i64)>,
    /// Kind and name of the workflow.
    workflow: (&'static str, &'static str),
}

impl Middle {
    /// A migration that is held up after it has deleted the etcd.
    async fn of_migration(namespace: &str) -> Result<Self> {
        let plant = Plant::start(namespace, 1, Front::Writer).await?;
        let before = plant.data().await?;
        plant.migrate(json!({"storageClassName": "fast", "size": "2Gi"})).await?;
        plant.step("EtcdDeleted", "Running").await?;
        let paused = json!({"spec": {"paused": true}}).to_string();
        plant.place.kubectl(&["patch", "etcdmigration", "m", "--type=merge", "-p", &paused]).await?;
        plant.step("EtcdDeleted", "Succeeded").await?;
        Ok(Self { plant, before, workflow: ("etcdmigration", "m") })
    }

    /// A restore that fills the new etcd.
    async fn of_restore(namespace: &str) -> Result<Self> {
        let plant = Plant::start(namespace, 1, Front::Writer).await?;
        plant.place.apply(&[object("EtcdBackup", "b", json!({"clusterRef": {"name": "main"}}))]).await?;
        plant.place.ends("etcdbackup", "b", "Succeeded").await?;
        // The restore would give this up.
        plant.client().await?.kv_client().put("/data/later", "is kept", None).await?;
        let before = plant.data().await?;
        let source = json!({"backupName": "b"});
        let spec = json!({"clusterRef": {"name": "main"}, "source": source, "stepTimeout": "1m"});
        plant.place.apply(&[object("EtcdRestore", "r", spec)]).await?;
        plant
            .place
            .until("etcdrestore", "r", "EtcdRestored Running", |object| {
                let steps = object["status"]["steps"].as_array();
                let runs = |step: &Value| step["name"] == "EtcdRestored" && step["state"] == "Running";
                steps.is_some_and(|steps| steps.iter().any(runs))
            })
            .await?;
        Ok(Self { plant, before, workflow: ("etcdrestore", "r") })
    }

    fn place(&self) -> &Place {
        &self.plant.place
    }

    async fn delete_hosted_etcd(&self) -> Result<()> {
        let api = self.place().get("deployment", "kube-apiserver").await?;
        ensure!(api["spec"]["replicas"] == 0, "API servers run: {}", api["spec"]);
        self.place().kubectl(&["delete", "hostedetcd", "main", "--wait=false"]).await.map(drop)
    }

    /// The old etcd and as many API servers as before are asked for.
    async fn is_asked_back(&self) -> Result<()> {
        let api = self.place().get("deployment", "kube-apiserver").await?;
        ensure!(api["spec"]["replicas"] == 1, "{}", api["spec"]);
        let etcd = self.place().get("etcd", "main").await?;
        let spec = &etcd["spec"];
        ensure!(spec["replicas"] == 1 && spec["volumeClaimTemplate"] == "data", "{spec}");
        Ok(())
    }

    /// The workflow has gone back, everything serves again, and nothing is missing.
    async fn has_gone_back(&self) -> Result<()> {
        let (kind, name) = self.workflow;
        let ended = self.place().ends(kind, name, row()?.ends).await?;
        ensure!(ended["status"]["reason"] == row()?.reason, "{}", ended["status"]);
        self.is_asked_back().await?;
        self.plant.api_is_up().await?;
        until("everything to be there", DEADLINE, async || self.plant.holds(&self.before).await).await?;
        until("the claims of one etcd", DEADLINE, async || {
            let claims = self.plant.claims().await?;
            ensure!(claims == [("data-main-0".to_owned(), "slow".to_owned())], "there are {claims:?}");
            Ok(())
        })
        .await?;
        let free = |object: &Value| object["metadata"]["finalizers"].is_null();
        self.place().until(kind, name, "without a finalizer", free).await.map(drop)
    }

    /// The HostedEtcd is deleted, stays until the workflow has gone back, and says what it waits for.
    async fn goes_after_the_workflow(self) -> Result<()> {
        let columns = "-o=custom-columns=C:.status.conditions[*].message";
        let mut watch = self.place().watch(&["get", "hostedetcd", "main", "-w", columns])?;
        self.delete_hosted_etcd().await?;
        let deleted = self.place().get("hostedetcd", "main").await?;
        ensure!(deleted["metadata"]["finalizers"] == json!([FINALIZER]), "{}", deleted["metadata"]);
        self.place().until_gone("hostedetcd", "main").await?;
        self.is_asked_back().await.context("the HostedEtcd has gone too early")?;
        let told = watch.text().await?;
        ensure!(told.contains("has rolled back; it is at"), "it does not say what it waits for:\n{told}");
        self.has_gone_back().await
    }
}

#[test]
fn hosted_etcd_is_deleted_in_a_migration() {
    run(async |_| Middle::of_migration("d-migration").await?.goes_after_the_workflow().await);
}

#[test]
fn hosted_etcd_is_deleted_in_a_restore() {
    run(async |_| Middle::of_restore("d-restore").await?.goes_after_the_workflow().await);
}

#[test]
fn hosted_etcd_whose_finalizer_is_removed_by_hand_goes_and_the_migration_goes_back() {
    run(async |_| {
        let middle = Middle::of_migration("d-by-hand").await?;
        let none = json!({"metadata": {"finalizers": null}}).to_string();
        middle.place().kubectl(&["patch", "hostedetcd", "main", "--type=merge", "-p", &none]).await?;
        middle.delete_hosted_etcd().await?;
        middle.place().until_gone("hostedetcd", "main").await?;
        middle.has_gone_back().await
    });
}

#[test]
fn namespace_is_deleted_in_a_migration_and_goes() {
    run(async |_| {
        let middle = Middle::of_migration("d-namespace").await?;
        let (garden, name) = (&middle.place().world.garden, &middle.place().namespace);
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
