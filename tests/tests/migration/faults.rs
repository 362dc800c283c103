//! Migrations during which controllers are killed, and API servers hang. Long: `make soak` runs them.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use repot_tests::wait::until;
use tokio::time::sleep;

use super::story;
use super::world::{SEEDS, World, run, small};

/// How long an API server hangs.
const HANGS: Duration = Duration::from_secs(60);
/// Steps of the forward table at least, in which all controllers are killed.
const STEPS: usize = 25;

#[test]
#[ignore = "minutes, in make soak"]
fn migration_whose_controllers_are_killed_in_each_step_succeeds() {
    run(async |env| {
        let world = World::create(env, "zeta", small()).await?;
        let before = world.workload().await?;
        story::create(&world, "move", SEEDS).await?;
        let killed = kill_in_each_step(&world, "move").await?;
        ensure!(killed.len() >= STEPS, "controllers were killed in {killed:?} only");
        world.ensure_moved(&before, SEEDS).await?;
        world.stop(SEEDS.1).await
    });
}

/// Kills the controllers of all sides whenever a step begins, until the migration has succeeded. Gives those steps; where several began
/// at once, controllers were killed once.
pub async fn kill_in_each_step(world: &World, name: &str) -> Result<BTreeSet<(&'static str, String)>> {
    let mut seen = BTreeSet::new();
    let migration = until("the migration to end", 3 * story::DEADLINE, async || {
        let migration = story::read(world, name).await?;
        if story::has_ended(&migration) {
            return Ok(migration);
        }
        let running = story::running_steps(&migration["status"]);
        if !running.is_subset(&seen) {
            world.kill_controllers().await?;
        }
        let text = format!("{running:?}");
        seen.extend(running);
        bail!("{text}")
    })
    .await?;
    story::ensure_phase(&migration, "Succeeded")?;
    Ok(seen)
}

/// The API server of the garden, or of the seed that is `source` or `destination`, stands still for a minute.
pub async fn hang(world: &World, side: &str, (from, to): (&str, &str)) -> Result<()> {
    let cluster = match side {
        "garden" => &story::garden_of(world)?.cluster,
        "source" => &world.landscape.seed(from)?.cluster,
        _ => &world.landscape.seed(to)?.cluster,
    };
    cluster.apiserver_process().pause();
    // The fault is what lasts; nothing is waited for.
    sleep(HANGS).await;
    cluster.apiserver_process().resume();
    Ok(())
}

/// The Shoot moves back and forth; each time another API server hangs for a minute, in the middle of the outage.
#[test]
#[ignore = "minutes, in make soak"]
fn migration_during_which_an_api_server_hangs_ends_and_keeps_the_workload() {
    run(async |env| {
        let world = World::create(env, "eta", small()).await?;
        let before = world.workload().await?;
        let (mut from, mut to) = SEEDS;
        let faults = [
            ("source", ("source", "FinalSnapshotTaken")),
            ("destination", ("destination", "EtcdServes")),
            ("garden", ("source", "SourceApiStopped")),
        ];
        for (side, step) in faults {
            story::create(&world, side, (from, to)).await?;
            story::until_started(&world, side, step).await?;
            hang(&world, side, (from, to)).await?;
            let migration = story::until_end(&world, side).await?;
            match migration["status"]["phase"].as_str() {
                Some("Succeeded") => {
                    world.ensure_moved(&before, (from, to)).await?;
                    (from, to) = (to, from);
                }
                Some("RolledBack") => world.ensure_moved(&before, (to, from)).await?,
                _ => story::ensure_phase(&migration, "Succeeded or RolledBack")?,
            }
        }
        world.stop(from).await
    });
}
