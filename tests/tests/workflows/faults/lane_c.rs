//! Faults of the new etcd after which the migration rolls back, after one that succeeded.

use anyhow::{Context, Result};
use repot_tests::run;
use repot_tests::wait::until;
use serde_json::json;

use super::super::table::Lane;
use super::super::world::DEADLINE;
use super::{FaultRun, LaneRun};

#[test]
#[ignore = "minutes, in make soak"]
fn lane_c_of_the_faults() {
    run(async |env| {
        let mut lane = LaneRun::start(env, Lane::C, "30s").await?;
        // It succeeds, so the others roll back from volumes with a history of their own to such volumes.
        lane.play("job", job_is_deleted).await?;
        lane.play("no-class", storage_class_is_missing).await?;
        lane.play("disk-full", disk_is_full).await?;
        lane.play("intruder", somebody_writes_to_the_new_etcd).await?;
        lane.ends()
    });
}

async fn job_is_deleted(run: &FaultRun<'_>) -> Result<()> {
    run.migrate_slowly().await?;
    let first = until("a Job", DEADLINE, async || {
        let jobs = run.ns().list("job", "").await?;
        jobs.first()
            .and_then(|job| job["metadata"]["name"].as_str().map(str::to_owned))
            .context("there is none")
    });
    let first = first.await?;
    run.ns().kubectl(&["delete", "job", &first, "--cascade=background"]).await?;
    run.ends().await.map(drop)
}

async fn storage_class_is_missing(run: &FaultRun<'_>) -> Result<()> {
    run.migrate_to(json!({"storageClassName": "none-such"})).await?;
    run.ends().await.map(drop)
}

async fn disk_is_full(run: &FaultRun<'_>) -> Result<()> {
    run.migrate_to(json!({"storageClassName": "limited", "size": "2Mi"})).await?;
    run.ends().await.map(drop)
}

async fn somebody_writes_to_the_new_etcd(run: &FaultRun<'_>) -> Result<()> {
    run.pause_after("EtcdRestored").await?;
    run.fixture.client().await?.kv_client().put("/data/intruder", "was here", None).await?;
    run.change(json!({"paused": false})).await?;
    run.ends().await.map(drop)
}
