//! Faults before the etcd is deleted.

use anyhow::{Context, Result};
use repot_tests::run;
use serde_json::{Value, json};

use super::super::front;
use super::super::table::Lane;
use super::super::world::object;
use super::{FaultRun, LaneRun};

#[test]
#[ignore = "minutes, in make soak"]
fn lane_a_of_the_faults() {
    run(async |env| {
        let mut lane = LaneRun::start(env, Lane::A, "30s").await?;
        lane.play("lock", cancelled_while_another_workflow_has_the_lock).await?;
        lane.play("quorum", two_members_are_frozen).await?;
        lane.play("stubborn-api", api_server_does_not_end).await?;
        lane.play("store", store_cannot_be_written).await?;
        lane.ends()
    });
}

async fn cancelled_while_another_workflow_has_the_lock(run: &FaultRun<'_>) -> Result<()> {
    let ns = run.ns();
    let spec = json!({"clusterRef": {"name": "main"}, "settings": {"size": "3Gi"}, "paused": true});
    ns.apply(&[object("EtcdMigration", "other", spec)]).await?;
    // It takes the lock, since only what comes after is paused; if it does not, the backup will.
    let uid = ns.get("etcdmigration", "other").await?["metadata"]["uid"].clone();
    let owner =
        json!({"status": {"currentWorkflow": {"kind": "EtcdMigration", "name": "other", "uid": uid}}});
    let patch =
        ["patch", "hostedetcd", "main", "--subresource=status", "--type=merge", "-p", &owner.to_string()];
    ns.kubectl(&patch).await?;
    run.migrate().await?;
    let waits = |object: &Value| object["status"]["reason"] == "AnotherWorkflow";
    ns.until("etcdmigration", &run.migration, "waiting for the other", waits).await?;
    run.change(json!({"cancel": true})).await?;
    ns.merge("etcdmigration", "other", json!({"spec": {"cancel": true}})).await?;
    let free = |object: &Value| object["status"]["currentWorkflow"].is_null();
    ns.until("hostedetcd", "main", "free", free).await?;
    run.ends().await.map(drop)
}

async fn two_members_are_frozen(run: &FaultRun<'_>) -> Result<()> {
    let frozen = run.fixture.freeze(&["main-0", "main-1"])?;
    run.migrate().await?;
    let ended = |object: &Value| object["status"]["completionTime"].is_string();
    run.ns().until("etcdmigration", &run.migration, "over", ended).await?;
    drop(frozen);
    run.ends().await.map(drop)
}

async fn api_server_does_not_end(run: &FaultRun<'_>) -> Result<()> {
    let ns = run.ns();
    front::make_stubborn(ns).await?;
    let pods = front::names(ns).await?;
    run.migrate().await?;
    run.step("ApiDown", "Failed").await?;
    for pod in &pods {
        front::kill(ns, pod).await?;
    }
    run.ends().await?;
    front::make_obedient(ns).await
}

async fn store_cannot_be_written(run: &FaultRun<'_>) -> Result<()> {
    // A file where the directory should be.
    let backups = run.ns().backups();
    std::fs::write(&backups, "in the way").with_context(|| format!("{} is there", backups.display()))?;
    run.migrate_slowly().await?;
    run.ends().await?;
    std::fs::remove_file(&backups).map_err(Into::into)
}
