//! Faults that a migration survives.

use std::time::Duration;

use anyhow::{Result, ensure};
use repot_tests::run;
use repot_tests::wait::until;
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::super::table::Lane;
use super::super::world::DEADLINE;
use super::{FaultRun, LaneRun};

/// How often the HostedEtcd is changed: several times from a look of a controller at it to its write.
const CHANGES: Duration = Duration::from_millis(10);

#[test]
#[ignore = "minutes, in make soak"]
fn lane_d_of_the_faults() {
    run(async |env| {
        let mut lane = LaneRun::start(env, Lane::D, "1m").await?;
        lane.play("agent", agent_is_killed).await?;
        lane.play("leader", leader_is_killed).await?;
        lane.play("claim", old_claim_is_held).await?;
        lane.play("conflicts", hosted_etcd_changes_all_the_time).await?;
        lane.ends()
    });
}

/// The others wait for the first member, which founds the new etcd.
async fn agent_is_killed(run: &FaultRun<'_>) -> Result<()> {
    run.migrate().await?;
    run.step("EtcdRestored", "Running").await?;
    let ns = run.ns();
    until("the agent to be killed", DEADLINE, async || {
        let pod = ns.get("pod", "main-0").await?;
        let state = &pod["status"]["containerStatuses"][0]["state"];
        ensure!(state["running"].is_object(), "it does not run: {state}");
        ns.world.runner.kill(&ns.namespace, "main-0", "etcd")
    })
    .await?;
    run.ends().await.map(drop)
}

async fn leader_is_killed(run: &FaultRun<'_>) -> Result<()> {
    run.migrate().await?;
    run.step("ApiUp", "Running").await?;
    let ns = run.ns();
    ns.world.runner.kill(&ns.namespace, &run.fixture.leader().await?, "etcd")?;
    run.ends().await.map(drop)
}

async fn old_claim_is_held(run: &FaultRun<'_>) -> Result<()> {
    let ns = run.ns();
    let claim = &run.before.claims[0].0;
    let hold = json!({"metadata": {"finalizers": ["kubernetes.io/pvc-protection", "tests.repot.dev/hold"]}});
    ns.merge("persistentvolumeclaim", claim, hold).await?;
    run.migrate().await?;
    run.ends().await?;
    ns.get("persistentvolumeclaim", claim).await?;
    ns.merge("persistentvolumeclaim", claim, json!({"metadata": {"finalizers": null}})).await?;
    ns.until_gone("persistentvolumeclaim", claim).await
}

async fn hosted_etcd_changes_all_the_time(run: &FaultRun<'_>) -> Result<()> {
    run.migrate().await?;
    run.step("ApiUp", "Running").await?;
    let ns = run.ns();
    let (mut count, end, mut ticks) = (0_u64, Instant::now() + DEADLINE, interval(CHANGES));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !count.is_multiple_of(50)
        || ns.get("etcdmigration", &run.migration).await?["status"]["completionTime"].is_null()
    {
        ensure!(Instant::now() < end, "the migration does not end within {DEADLINE:?}");
        ticks.tick().await;
        count += 1;
        let annotations = json!({"tests.repot.dev/count": count.to_string()});
        ns.merge("hostedetcd", "main", json!({"metadata": {"annotations": annotations}})).await?;
    }
    let migration = ns.get("etcdmigration", &run.migration).await?;
    let steps = migration["status"]["steps"].as_array();
    let released = steps.and_then(|steps| steps.iter().find(|step| step["name"] == "LockReleased"));
    println!("the HostedEtcd was changed {count} times; {released:?}");
    let hosted = ns.get("hostedetcd", "main").await?;
    let stored = &hosted["metadata"]["annotations"]["tests.repot.dev/count"];
    ensure!(
        stored.as_str() == Some(count.to_string().as_str()),
        "a change by somebody else was written over: {stored} is not {count}"
    );
    run.ends().await.map(drop)
}
