//! The classic migration from one seed to the other.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use repot_tests::landscape::ControlPlaneOptions;

use super::beside_gardenlet::ensure_late_request_is_undone;
use super::prober::Prober;
use super::story;
use super::traffic::Traffic;
use super::world::{SEEDS, World, run, small};

/// What the API may be away for, and how long API servers may answer after they were told to stop, beside other tests:
/// kube-apiserver alone needs half a minute to start then.
const BESIDE_OTHERS: (Duration, Duration) = (Duration::from_secs(180), Duration::from_secs(10));
/// The same in `make soak`, which runs one such test at a time.
const ALONE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(4));
/// How long an etcd that a standby has filled may take to serve. A restore of 200 MiB takes minutes here.
const LONGEST_START: Duration = Duration::from_secs(20);

#[test]
fn control_plane_moves_and_its_nodes_stay() {
    run(async |env| {
        let world = World::create(env, "alpha", ControlPlaneOptions::default()).await?;
        let (before, traffic) = (world.workload().await?, Traffic::start(&world).await?);
        let prober = Prober::start(world.api()?);
        let migration = story::succeed(&world, "move", SEEDS).await?;
        println!("{}", story::outage_steps(&migration));
        ensure_outage_is_as_measured(&migration, prober.outage())?;
        world.ensure_moved(&before, SEEDS).await?;
        traffic.ensure_served(&world).await?;
        world.stop(SEEDS.1).await
    });
}

/// The etcd of the source has lost its ownership by then, so it is restored to new volumes.
#[test]
#[ignore = "minutes, in make soak"]
fn migration_that_is_aborted_in_the_outage_leaves_the_source_as_it_was() {
    run(async |env| {
        let world = World::create(env, "beta", small()).await?;
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
        // The rollback wrote the seed of the Shoot, and that is no wish to move.
        let names = story::names(&world).await?;
        ensure!(names == ["beta-move"], "{names:?}");
        ensure_late_request_is_undone(&world, "move").await?;
        world.stop(SEEDS.0).await
    });
}

/// A Shoot as small as it can be, which moves away and back again.
#[test]
#[ignore = "minutes, in make soak"]
fn control_plane_of_one_member_moves_and_moves_back() {
    run(async |env| {
        let world = World::create(env, "gamma", small()).await?;
        let before = world.workload().await?;
        for (name, (from, to)) in [("away", SEEDS), ("back", (SEEDS.1, SEEDS.0))] {
            story::succeed(&world, name, (from, to)).await?;
            world.ensure_moved(&before, (from, to)).await?;
        }
        world.stop(SEEDS.0).await
    });
}

/// There are neither Machines nor nodes. Nobody creates a ControlPlaneMigration here: the controller of the garden does.
#[test]
#[ignore = "minutes, in make soak"]
fn control_plane_without_workers_moves_when_the_seed_of_its_shoot_is_changed() {
    run(async |env| {
        let options = ControlPlaneOptions { pools: Vec::new(), ..small() };
        let world = World::create(env, "delta", options).await?;
        let before = world.workload().await?;
        let name = story::change_seed(&world, SEEDS.1).await?;
        story::until_success(&world, &name, SEEDS.1).await?;
        world.ensure_moved(&before, SEEDS).await?;
        world.stop(SEEDS.1).await
    });
}

/// Its etcd is started for the final snapshot alone, and nothing runs afterwards. When it wakes, all data is there.
#[test]
#[ignore = "minutes, in make soak"]
fn hibernated_control_plane_moves_and_wakes_at_the_destination() {
    run(async |env| {
        let world = World::create(env, "epsilon", small()).await?;
        let before = world.marker().await?;
        world.hibernate(SEEDS.0).await?;
        story::succeed(&world, "move", SEEDS).await?;
        world.ensure_gone(SEEDS.0).await?;
        world.ensure_asleep(SEEDS.1).await?;
        world.wake(SEEDS.1).await?;
        let after = world.marker().await?;
        ensure!(before == after, "before {before}, after {after}");
        world.stop(SEEDS.1).await
    });
}

/// A long test: two of them move at the same time, until all have moved.
#[test]
#[ignore = "ten control planes, in make soak"]
fn ten_control_planes_move_two_at_a_time() {
    run(async |env| {
        let mut worlds = Vec::new();
        for at in 0..10 {
            worlds.push(World::create(env, &format!("many-{at}"), small()).await?);
        }
        let moved = stream::iter(worlds).map(|world| async move {
            let before = world.workload().await?;
            story::succeed(&world, "move", SEEDS).await?;
            world.ensure_moved(&before, SEEDS).await?;
            world.stop(SEEDS.1).await
        });
        moved.buffer_unordered(2).try_collect::<Vec<()>>().await.map(drop)
    });
}

/// A member at the destination has restored all of it before, and only the last delta is left for the outage. What clients see beyond
/// that is what kube-apiserver needs for its caches.
#[test]
#[ignore = "minutes, in make soak"]
fn etcds_of_20_and_of_200_mebibytes_serve_seconds_after_their_hand_over() {
    run(async |env| {
        for (name, mib) in [("theta", 20), ("iota", 200)] {
            let world = World::create(env, name, small()).await?;
            world.fill(mib).await?;
            let before = world.workload().await?;
            let prober = Prober::start(world.api()?);
            let migration = story::succeed(&world, "move", SEEDS).await?;
            let etcd = story::duration(&migration, ("destination", "EtcdServes"))?;
            let (reported, measured) = (&migration["status"]["apiOutage"], prober.outage());
            println!("{mib} MiB: the etcd served after {etcd:?}; {reported}, a client measured {measured:?}");
            ensure!(etcd < LONGEST_START, "{mib} MiB: the etcd served after {etcd:?}");
            world.ensure_moved(&before, SEEDS).await?;
            world.stop(SEEDS.1).await?;
        }
        Ok(())
    });
}

/// `status.apiOutage` begins when the API servers are told to stop, so it is a little longer than what an independent client saw.
fn ensure_outage_is_as_measured(migration: &serde_json::Value, measured: Duration) -> Result<()> {
    let reported = &migration["status"]["apiOutage"];
    println!("{reported}, a client measured {measured:?}");
    let is_alone = std::env::var_os("REPOT_SOAK").is_some();
    let (longest, stop) = if is_alone { ALONE } else { BESIDE_OTHERS };
    ensure!(measured > Duration::ZERO && measured < longest, "a client measured {measured:?}");
    let (seconds, measured) = (reported["seconds"].as_u64().unwrap_or_default(), measured.as_secs());
    let is_near = measured <= seconds + 1 && seconds <= measured + stop.as_secs();
    ensure!(is_near, "{reported}, a client measured {measured} s");
    Ok(())
}
