//! The destination dies while both seeds are one etcd.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::dead_source::{keep_source_members, let_source_members_go};
use super::whole::highly_available;
use crate::migration::faulty_seed::{Fault, FaultySeed};
use crate::migration::forced::{ensure_nothing_is_lost, force};
use crate::migration::prober::Prober;
use crate::migration::story::{self, DEADLINE};
use crate::migration::world::{SEEDS, THIRD_SEED, THREE_SEEDS, World, run, run_in};
use crate::migration::writer::Writer;

/// As long as an election takes, and a request that was lost with the member it went to.
const SHORT: Duration = Duration::from_secs(15);

/// Its members are two of five voters, and never leave by themselves. When somebody confirms that the destination is lost, the source
/// removes them, and is as it was before. A destination that comes back nevertheless removes what it has.
#[test]
#[ignore = "minutes, in make soak"]
fn source_removes_the_members_of_a_destination_that_is_lost() {
    run(async |env| {
        let world = World::create(env, "bereaved", highly_available()).await?;
        let before = world.workload().await?;
        let prober = Prober::start(world.api()?);
        story::create_live(&world, "move", SEEDS).await?;
        story::until_reached(&world, "move", ("destination", "ApiServes")).await?;
        let faulty = FaultySeed::new(&[&world], SEEDS.1, Fault::StandsStill).await?;
        let alone = go_on_without_destination(&world).await;
        faulty.heal(&[&world]).await?;
        alone?;
        println!("the API was away for {:?}", prober.outage());
        ensure!(prober.outage() < SHORT, "the API was away for {:?}", prober.outage());
        until("the destination to be removed", DEADLINE, async || world.ensure_gone(SEEDS.1).await).await?;
        ensure!(world.workload().await? == before, "the workload has changed");
        story::delete(&world, "move").await?;
        world.stop(SEEDS.0).await
    });
}

/// It dies past the point of no return, before its bucket has anything. The source stores a final snapshot of what its members hold, and
/// a forced migration to a third seed goes on from there, although the first one has committed. A destination that comes back removes
/// what it has.
#[test]
#[ignore = "minutes, in make soak"]
fn third_seed_takes_over_when_the_destination_is_lost_past_the_point_of_no_return() {
    run_in(&THREE_SEEDS, async |env| {
        let world = World::create_in(&THREE_SEEDS, env, "orphaned", highly_available()).await?;
        let before = world.workload().await?;
        keep_source_members(&world).await?;
        let writer = Writer::start(world.api()?);
        story::create_live(&world, "move", SEEDS).await?;
        story::until_started(&world, "move", ("destination", "SourceMembersRemoved")).await?;
        let faulty = FaultySeed::new(&[&world], SEEDS.1, Fault::StandsStill).await?;
        let moved = go_on_at_third_seed(&world).await;
        faulty.heal(&[&world]).await?;
        let migration = moved?;
        println!("{}, {}", migration["status"]["apiOutage"], migration["status"]["destination"]["loss"]);
        ensure_nothing_is_lost(&world, writer).await?;
        let_source_members_go(&world).await?;
        for seed in [SEEDS.0, SEEDS.1] {
            until("the seed to be cleaned up", DEADLINE, async || world.ensure_gone(seed).await).await?;
        }
        let first = story::read(&world, "move").await?;
        story::ensure_phase(&first, "RolledBack")?;
        ensure!(first["status"]["supersededBy"] == migration["metadata"]["name"], "{first}");
        ensure!(world.workload().await? == before, "the workload has changed");
        for name in ["move", "forced"] {
            story::delete(&world, name).await?;
        }
        world.stop(THIRD_SEED).await
    });
}

/// The confirmation counts once the destination has recorded nothing for a while. Until then the forced migration waits for the live one.
async fn go_on_at_third_seed(world: &World) -> Result<Value> {
    let confirmation = json!({"confirmation.gardener.cloud/destination-lost": SEEDS.1});
    story::annotate(world, "move", &confirmation).await?;
    force(world, "forced", (SEEDS.0, THIRD_SEED)).await?;
    let migration = story::until_success(world, "forced", THIRD_SEED).await?;
    if story::step(world, "move", ("garden", "StatusMoved")).await?["startTime"].is_string() {
        bail!("the garden has named a destination without snapshots");
    }
    Ok(migration)
}

async fn go_on_without_destination(world: &World) -> Result<()> {
    let confirmation = json!({"confirmation.gardener.cloud/destination-lost": SEEDS.1});
    story::annotate(world, "move", &confirmation).await?;
    let migration = story::until_end(world, "move").await?;
    println!("{}", story::timeline(&migration).join("\n"));
    story::ensure_phase(&migration, "Cancelled")?;
    let path = format!(
        "/apis/druid.gardener.cloud/v1alpha1/namespaces/{}/etcds/etcd-main",
        world.name().technical_id()
    );
    let etcd = world.landscape.seed(SEEDS.0)?.cluster.api().get(&path).await?.ok()?;
    ensure!(etcd["status"]["unknownMembers"].is_null(), "{etcd}");
    ensure!(etcd["status"]["members"].as_array().is_some_and(|members| members.len() == 3), "{etcd}");
    ensure!(etcd["status"]["ready"] == json!(true), "{etcd}");
    let shoot = story::shoot(world).await?;
    ensure!(shoot["spec"]["seedName"] == json!(SEEDS.0), "{}", shoot["spec"]["seedName"]);
    Ok(())
}
