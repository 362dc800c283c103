//! Faults of the backup, and of the time without an etcd.

use anyhow::{Context, Result};
use repot_tests::run;
use serde_json::{Value, json};

use super::super::deletion;
use super::super::table::Lane;
use super::{FaultRun, LaneRun};

#[test]
#[ignore = "minutes, in make soak"]
fn lane_b_of_the_faults() {
    run(async |env| {
        let mut lane = LaneRun::start(env, Lane::B, "30s").await?;
        lane.play("damage", backup_is_damaged).await?;
        lane.play("api-returns", api_servers_return).await?;
        lane.play("member-stays", member_does_not_end).await?;
        lane.play("cancel", cancelled_without_an_etcd).await?;
        lane.play("hosted-etcd", hosted_etcd_is_deleted).await?;
        lane.ends()
    });
}

async fn backup_is_damaged(run: &FaultRun<'_>) -> Result<()> {
    run.pause_after("BackupTaken").await?;
    let migration = run.ns().get("etcdmigration", &run.migration).await?;
    let name = run.fixture.backup_name(&migration)?;
    for snapshot in std::fs::read_dir(run.ns().backups().join(name).join("v2"))? {
        let path = snapshot?.path();
        let mut bytes = std::fs::read(&path)?;
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(path, bytes)?;
    }
    run.change(json!({"paused": false})).await?;
    run.ends().await.map(drop)
}

async fn api_servers_return(run: &FaultRun<'_>) -> Result<()> {
    run.pause_after("BackupTaken").await?;
    run.ns().kubectl(&["scale", "deployment/kube-apiserver", "--replicas=1"]).await?;
    run.fixture.api_is_up().await?;
    run.change(json!({"paused": false})).await?;
    run.ends().await.map(drop)
}

async fn member_does_not_end(run: &FaultRun<'_>) -> Result<()> {
    let ns = run.ns();
    let hold = json!({"metadata": {"finalizers": ["tests.repot.dev/hold"]}});
    ns.merge("pod", "main-1", hold).await?;
    run.migrate().await?;
    run.step("EtcdDeleted", "Failed").await?;
    ns.merge("pod", "main-1", json!({"metadata": {"finalizers": null}})).await?;
    run.ends().await.map(drop)
}

async fn cancelled_without_an_etcd(run: &FaultRun<'_>) -> Result<()> {
    run.pause_after("EtcdDeleted").await?;
    run.change(json!({"cancel": true})).await?;
    run.ends().await.map(drop)
}

async fn hosted_etcd_is_deleted(run: &FaultRun<'_>) -> Result<()> {
    run.pause_after("EtcdDeleted").await?;
    let volumes = run.before.etcd["volumeClaimTemplate"].as_str().context("no volumes")?;
    deletion::hosted_etcd_goes_after_the_workflow(run.fixture, volumes).await?;
    let ended = |object: &Value| object["status"]["completionTime"].is_string();
    run.ns().until("etcdmigration", &run.migration, "over", ended).await?;
    run.fixture.make_hosted_etcd_again().await?;
    run.ends().await.map(drop)
}
