//! Live migrations during which controllers are killed, the seeds do not reach each other, or an API server hangs.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use repot_tests::wait::until;
use serde_json::Value;
use tokio::time::sleep;

use super::requests::Requests;
use super::whole::{ensure_hidden, highly_available};
use crate::migration::faults::{hang, kill_in_each_step};
use crate::migration::forced::lost;
use crate::migration::story::{self, DEADLINE};
use crate::migration::world::{SEEDS, Workload, World, run};
use crate::migration::writer::Writer;

/// How long a fault lasts: longer than elections of etcd, leases of leaders, and the grace of the owner check.
const LASTS: Duration = Duration::from_secs(60);
/// Steps of the forward table at least, in which all controllers are killed.
const STEPS: usize = 30;

#[test]
#[ignore = "minutes, in make soak"]
fn controllers_are_killed_as_each_step_begins_and_no_request_fails() {
    run(async |env| {
        let world = World::create(env, "restless", highly_available()).await?;
        let before = world.workload().await?;
        let apis = (0..4).map(|_| world.api()).collect::<Result<Vec<_>>>()?;
        let requests = Requests::start(apis);
        story::create_live(&world, "move", SEEDS).await?;
        let killed = kill_in_each_step(&world, "move").await?;
        ensure!(killed.len() >= STEPS, "controllers were killed in {killed:?} only");
        let summary = requests.ensure_none_failed(1_000)?.summary();
        println!("killed in {} steps: {summary}", killed.len());
        world.ensure_moved(&before, SEEDS).await?;
        ensure_hidden(&world, SEEDS.1).await?;
        world.stop(SEEDS.1).await
    });
}

/// When the seeds lose each other, by side and step, and whether nobody can write then. Members of the source are most of the voters until
/// they leave, and kube-apiservers of the source serve in the first two.
const LOST_IN: [(&str, &str, bool); 4] = [
    ("destination", "SixMemberETCDReady", false),
    ("destination", "ApiServes", false),
    ("source", "SourceApiStopped", true),
    ("destination", "SourceMembersRemoved", true),
];

/// One control plane for all of them. It moves there, and back where it has moved.
#[test]
#[ignore = "half an hour, in make soak"]
fn seeds_that_do_not_reach_each_other_for_a_minute_lose_no_write() {
    run(async |env| {
        let world = World::create(env, "apart", highly_available()).await?;
        let before = world.workload().await?;
        let writer = Writer::start(world.api()?);
        let (mut from, mut to) = SEEDS;
        for (side, step, is_away) in LOST_IN {
            let name = step.to_lowercase();
            story::create_live(&world, &name, (from, to)).await?;
            story::until_started(&world, &name, (side, step)).await?;
            let (cut, begun) = (world.landscape.wide.cut(), Instant::now());
            // The fault is what lasts; nothing is waited for.
            sleep(LASTS).await;
            drop(cut);
            let migration = story::until_end(&world, &name).await?;
            let silence = writer.longest_silence_since(begun);
            println!("{step}: {}, no write was acknowledged for {silence:?}", migration["status"]["phase"]);
            ensure!((silence > LASTS / 2) == is_away, "{step}: no write was acknowledged for {silence:?}");
            let lost = lost(&world, &writer.acknowledged()).await?;
            ensure!(lost.is_empty(), "{lost:?} were acknowledged and are lost");
            if ensure_ended(&world, &migration, &before, (from, to)).await? {
                (from, to) = (to, from);
            }
        }
        world.stop(from).await
    });
}

/// kube-apiservers of the source are about to stop, and most voters are there, so nobody can write at the destination. Those of the source
/// start again while the seeds are still apart; members of the destination leave when they are not.
#[test]
#[ignore = "minutes, in make soak"]
fn migration_is_aborted_while_the_seeds_do_not_reach_each_other() {
    run(async |env| {
        let world = World::create(env, "parted", highly_available()).await?;
        let before = world.workload().await?;
        let writer = Writer::start(world.api()?);
        story::create_live(&world, "move", SEEDS).await?;
        story::until_started(&world, "move", ("source", "SourceApiStopped")).await?;
        let (cut, begun) = (world.landscape.wide.cut(), Instant::now());
        let count = writer.acknowledged().len();
        story::abort(&world, "move").await?;
        until("writes while the seeds are apart", DEADLINE, async || {
            let now = writer.acknowledged().len();
            ensure!(now > count + 100, "{now} were acknowledged, {count} of them before");
            Ok(())
        })
        .await?;
        let silence = writer.longest_silence_since(begun);
        println!("no write was acknowledged for {silence:?}");
        let stopped = ("destination", "DestinationStopped");
        story::until_started(&world, "move", stopped).await?;
        // The fault is what lasts: members of the destination cannot leave meanwhile.
        sleep(LASTS).await;
        let record = story::step(&world, "move", stopped).await?;
        ensure!(record["state"] == "Running", "members have left a source that they do not reach: {record}");
        drop(cut);
        let migration = story::until_end(&world, "move").await?;
        story::ensure_phase(&migration, "Cancelled")?;
        let lost = lost(&world, &writer.acknowledged()).await?;
        ensure!(lost.is_empty(), "{lost:?} were acknowledged and are lost");
        ensure_as_before(&world, &before, SEEDS).await?;
        world.stop(SEEDS.0).await
    });
}

/// API servers of seeds and of the garden serve controllers alone: clients of the Shoot do not need them.
#[test]
#[ignore = "half an hour, in make soak"]
fn api_server_of_a_seed_or_of_the_garden_that_hangs_for_a_minute_fails_no_request() {
    run(async |env| {
        let world = World::create(env, "sleepy", highly_available()).await?;
        let before = world.workload().await?;
        let apis = (0..4).map(|_| world.api()).collect::<Result<Vec<_>>>()?;
        let requests = Requests::start(apis);
        let (mut from, mut to) = SEEDS;
        let faults = [
            ("source", ("source", "SourceApiStopped")),
            ("destination", ("destination", "SixMemberETCDReady")),
            ("garden", ("destination", "SourceMembersRemoved")),
        ];
        for (side, step) in faults {
            story::create_live(&world, side, (from, to)).await?;
            story::until_started(&world, side, step).await?;
            hang(&world, side, (from, to)).await?;
            let migration = story::until_end(&world, side).await?;
            let summary = requests.ensure_none_failed(1_000)?.summary();
            println!("{side}: {}, {summary}", migration["status"]["phase"]);
            if ensure_ended(&world, &migration, &before, (from, to)).await? {
                (from, to) = (to, from);
            }
        }
        world.stop(from).await
    });
}

/// It has moved, or is as it was; nothing is in between. Tells which.
async fn ensure_ended(
    world: &World,
    migration: &Value,
    before: &Workload,
    (from, to): (&str, &str),
) -> Result<bool> {
    let has_moved = migration["status"]["phase"] == "Succeeded";
    if has_moved {
        world.ensure_moved(before, (from, to)).await?;
        ensure_hidden(world, to).await?;
        return Ok(true);
    }
    story::ensure_phase(migration, "RolledBack")?;
    ensure_as_before(world, before, (from, to)).await?;
    Ok(false)
}

async fn ensure_as_before(world: &World, before: &Workload, (from, to): (&str, &str)) -> Result<()> {
    let after = world.workload().await?;
    ensure!(*before == after, "before {before:?}, after {after:?}");
    world.ensure_gone(to).await?;
    ensure_hidden(world, from).await
}
