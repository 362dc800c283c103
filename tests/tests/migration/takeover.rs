//! Forced migrations that go on in place of others, because another seed dies.

use anyhow::ensure;
use repot_tests::wait::until;
use serde_json::json;

use super::forced::{Frozen, SOURCE_STOPPED, ensure_nothing_is_lost, force, until_state_is_stored};
use super::story::{self, DEADLINE};
use super::world::{SEEDS, THIRD_SEED, THREE_SEEDS, World, run, run_in, small};
use super::writer::Writer;

/// The source dies while a classic migration has stopped it in part. The forced one goes on in place of it, with the same destination,
/// and the classic one can be deleted before the seed is back.
#[test]
#[ignore = "minutes, in make soak"]
fn forced_migration_supersedes_a_classic_one_whose_source_dies() {
    run(async |env| {
        let world = World::create(env, "nu", small()).await?;
        let before = world.workload().await?;
        let writer = Writer::start(world.api()?);
        story::create(&world, "move", SEEDS).await?;
        story::until_started(&world, "move", ("source", "SourceApiStopped")).await?;
        let frozen = Frozen::new(world.landscape.seed(SEEDS.0)?.cluster.apiserver_process());
        force(&world, "forced", SEEDS).await?;
        story::annotate(&world, "forced", &json!({SOURCE_STOPPED: SEEDS.0})).await?;
        let migration = story::until_success(&world, "forced", SEEDS.1).await?;
        println!("outage {} by the forced migration", migration["status"]["apiOutage"]);
        let first = story::read(&world, "move").await?;
        story::ensure_phase(&first, "RolledBack")?;
        ensure!(first["status"]["supersededBy"] == migration["metadata"]["name"], "{first}");
        story::delete(&world, "move").await?;
        ensure_nothing_is_lost(&world, writer).await?;
        ensure!(world.workload().await? == before, "the workload has changed");
        drop(frozen);
        until("the source to be removed", DEADLINE, async || world.ensure_gone(SEEDS.0).await).await?;
        ensure!(world.workload().await? == before, "the workload has changed when the source was removed");
        world.stop(SEEDS.1).await
    });
}

/// The destination of a forced migration dies after the owner record was written, so a third seed takes over. When the two others are
/// back, each of them removes what it has, and the workload is the same.
#[test]
#[ignore = "minutes, in make soak"]
fn third_seed_takes_over_when_the_destination_of_a_forced_migration_dies() {
    run_in(&THREE_SEEDS, async |env| {
        let world = World::create_in(&THREE_SEEDS, env, "omicron", small()).await?;
        let before = world.workload().await?;
        let writer = Writer::start(world.api()?);
        until_state_is_stored(&world).await?;
        let source = Frozen::new(world.landscape.seed(SEEDS.0)?.cluster.apiserver_process());
        force(&world, "first", SEEDS).await?;
        story::until_started(&world, "first", ("destination", "OwnerRecordTaken")).await?;
        let destination = Frozen::new(world.landscape.seed(SEEDS.1)?.cluster.apiserver_process());

        force(&world, "second", (SEEDS.0, THIRD_SEED)).await?;
        story::annotate(&world, "second", &json!({SOURCE_STOPPED: SEEDS.0})).await?;
        let migration = story::until_success(&world, "second", THIRD_SEED).await?;
        println!("outage {} by the second migration", migration["status"]["apiOutage"]);
        ensure_nothing_is_lost(&world, writer).await?;
        ensure!(world.workload().await? == before, "the workload has changed");

        drop(destination);
        story::ensure_phase(&story::until_end(&world, "first").await?, "RolledBack")?;
        until("the destination to be removed", DEADLINE, async || world.ensure_gone(SEEDS.1).await).await?;
        drop(source);
        until("the source to be removed", DEADLINE, async || world.ensure_gone(SEEDS.0).await).await?;
        ensure!(world.workload().await? == before, "the workload has changed when others came back");
        for name in ["first", "second"] {
            story::delete(&world, name).await?;
        }
        world.stop(THIRD_SEED).await
    });
}

/// The destination of a classic migration dies after clients were sent there, and before all is done. A forced migration goes on from
/// there, back to the seed that was left, where what remains is removed first.
#[test]
#[ignore = "minutes, in make soak"]
fn source_takes_back_when_the_destination_dies_in_the_middle_of_a_classic_migration() {
    run(async |env| {
        let world = World::create(env, "returned", small()).await?;
        let before = world.workload().await?;
        let writer = Writer::start(world.api()?);
        story::create(&world, "move", SEEDS).await?;
        for step in [("garden", "StatusMoved"), ("source", "MigratedStateSynced")] {
            story::until_reached(&world, "move", step).await?;
        }
        let frozen = Frozen::new(world.landscape.seed(SEEDS.1)?.cluster.apiserver_process());
        let back = (SEEDS.1, SEEDS.0);
        force(&world, "back", back).await?;
        story::annotate(&world, "back", &json!({SOURCE_STOPPED: SEEDS.1})).await?;
        let migration = story::until_success(&world, "back", SEEDS.0).await?;
        println!("outage {} by the forced migration", migration["status"]["apiOutage"]);
        let first = story::read(&world, "move").await?;
        story::ensure_phase(&first, "Failed")?;
        ensure!(first["status"]["continuedBy"] == migration["metadata"]["name"], "{first}");
        ensure_nothing_is_lost(&world, writer).await?;
        ensure!(world.workload().await? == before, "the workload has changed");
        drop(frozen);
        until("the destination to be removed", DEADLINE, async || world.ensure_gone(SEEDS.1).await).await?;
        ensure!(
            world.workload().await? == before,
            "the workload has changed when the destination was removed"
        );
        for name in ["move", "back"] {
            story::delete(&world, name).await?;
        }
        world.stop(SEEDS.0).await
    });
}
