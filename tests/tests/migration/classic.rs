//! The classic migration from one seed to the other.

use std::time::Duration;

use anyhow::{Result, ensure};
use repot_tests::landscape::ControlPlaneOptions;
use repot_tests::run_large;

use super::prober::Prober;
use super::story;
use super::world::{SEEDS, World};

/// What the API may be away for on two cores that do other things as well. A machine of its own needs half of it.
const LONGEST_OUTAGE: Duration = Duration::from_secs(60);

#[test]
fn control_plane_moves_and_its_nodes_stay() {
    run_large(async |bed| {
        let world = World::create(bed, "alpha", ControlPlaneOptions::default()).await?;
        let before = world.workload().await?;
        let prober = Prober::start(world.api()?);
        let migration = story::succeed(&world, "move", SEEDS).await?;
        ensure_outage_is_as_measured(&migration, prober.outage())?;
        let after = world.workload().await?;
        ensure!(before == after, "before {before:?}, after {after:?}");
        world.ensure_gone(SEEDS.0).await?;
        world.stop(SEEDS.1).await
    });
}

/// The etcd of the source has lost its ownership by then, so it is restored to new volumes.
#[test]
fn migration_that_is_aborted_in_the_outage_leaves_the_source_as_it_was() {
    run_large(async |bed| {
        let world = World::create(bed, "beta", ControlPlaneOptions::default()).await?;
        let before = world.workload().await?;
        story::create(&world, "move", SEEDS).await?;
        story::until_started(&world, "move", ("destination", "OwnerRecordTaken")).await?;
        story::abort(&world, "move").await?;
        let migration = story::until_end(&world, "move").await?;
        story::ensure_phase(&migration, "Cancelled")?;
        let after = world.workload().await?;
        ensure!(before == after, "before {before:?}, after {after:?}");
        let stayed = story::shoot(&world).await?;
        ensure!(stayed["spec"]["seedName"] == SEEDS.0, "{stayed}");
        ensure!(stayed["status"]["lastOperation"]["type"] == "Create", "{stayed}");
        world.ensure_gone(SEEDS.1).await?;
        world.stop(SEEDS.0).await
    });
}

/// A Shoot as small as it can be, which moves away and back again.
#[test]
fn control_plane_of_one_member_moves_and_moves_back() {
    run_large(async |bed| {
        let options = ControlPlaneOptions {
            etcd_members: 1,
            api_servers: 1,
            pools: vec![("worker-a".to_owned(), 1)],
            ..ControlPlaneOptions::default()
        };
        let world = World::create(bed, "gamma", options).await?;
        let before = world.workload().await?;
        for (name, (from, to)) in [("away", SEEDS), ("back", (SEEDS.1, SEEDS.0))] {
            story::succeed(&world, name, (from, to)).await?;
            let after = world.workload().await?;
            ensure!(before == after, "{name}: before {before:?}, after {after:?}");
            world.ensure_gone(from).await?;
        }
        world.stop(SEEDS.0).await
    });
}

/// There are neither Machines nor nodes, and no Infrastructure.
#[test]
fn control_plane_without_workers_moves() {
    run_large(async |bed| {
        let options = ControlPlaneOptions {
            etcd_members: 1,
            api_servers: 1,
            pools: Vec::new(),
            ..ControlPlaneOptions::default()
        };
        let world = World::create(bed, "delta", options).await?;
        let before = world.workload().await?;
        story::succeed(&world, "move", SEEDS).await?;
        let after = world.workload().await?;
        ensure!(before == after, "before {before:?}, after {after:?}");
        world.ensure_gone(SEEDS.0).await?;
        world.stop(SEEDS.1).await
    });
}

/// `status.apiOutage` is what an independent client saw, and that is short.
fn ensure_outage_is_as_measured(migration: &serde_json::Value, measured: Duration) -> Result<()> {
    let reported = &migration["status"]["apiOutage"];
    println!("{reported}, a client measured {measured:?}");
    ensure!(measured > Duration::ZERO && measured < LONGEST_OUTAGE, "a client measured {measured:?}");
    let seconds = reported["seconds"].as_u64().unwrap_or_default();
    ensure!(seconds.abs_diff(measured.as_secs()) <= 3, "{reported}, a client measured {measured:?}");
    Ok(())
}
