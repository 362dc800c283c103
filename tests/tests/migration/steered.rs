//! Classic migrations that the gardenlets of both seeds carry out, and that Repot prepares, begins, watches and measures.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use repot_tests::landscape::Gardenlet;
use repot_tests::landscape::garden::CORE;
use repot_tests::landscape::gardenlet::Druid;
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::gardenlet::{
    MERGE, backup_entry, create, set_condition, snapshots, until_says, until_state_is_stored, workerless,
};
use super::story::{self, DEADLINE, garden_of};
use super::world::{SEEDS, World, run};

/// The sides look every two seconds, and say whole seconds.
const PRECISION_SECONDS: f64 = 4.0;
/// How long the copy takes in the outage: far longer than the precision.
const COPY: Duration = Duration::from_secs(15);

async fn patch_status(world: &World, status: &Value) -> Result<()> {
    let (namespace, name) = (world.name().project_namespace(), &world.name().name);
    let path = format!("{CORE}/namespaces/{namespace}/shoots/{name}/status");
    garden_of(world)?.cluster.api().patch(&path, MERGE, &json!({"status": status})).await?.ok().map(drop)
}

fn operation(kind: &str, state: &str) -> Value {
    json!({"lastOperation": {
        "type": kind, "state": state, "progress": 40, "description": "words of gardenlet", "lastUpdateTime": "2026-01-01T00:00:00Z",
    }})
}

/// Everything that would stop gardenlets half-way is said before; then the snapshots are copied, an operation is waited for, the Shoot is
/// bound, and both gardenlets do the rest.
#[test]
#[ignore = "minutes, in make soak"]
fn gardenlets_migrate_a_shoot_whose_snapshots_were_copied_ahead() {
    run(async |env| {
        let world = World::create(env, "psi", workerless()).await?;
        until_state_is_stored(&world).await?;
        let garden = garden_of(&world)?;
        let (source, destination) = (world.landscape.seed(SEEDS.0)?, world.landscape.seed(SEEDS.1)?);

        // A seed that is not ready, and a Shoot that the webhooks would not let go.
        set_condition(&world, SEEDS.1, "SeedSystemComponentsHealthy", "False").await?;
        let rotation = |phase: Value| json!({"credentials": {"rotation": {"certificateAuthorities": phase}}});
        patch_status(&world, &rotation(json!({"phase": "Preparing"}))).await?;
        create(&world, "move", "Classic").await?;
        let unhealthy = ["Seed seed-b: condition SeedSystemComponentsHealthy is False"];
        until_says(&world, "move", ("garden", "SeedsReady"), &unhealthy).await?;
        set_condition(&world, SEEDS.1, "SeedSystemComponentsHealthy", "True").await?;
        let refused = ["the binding to seed-b is refused", "rotation-settled"];
        until_says(&world, "move", ("garden", "SeedsReady"), &refused).await?;
        patch_status(&world, &operation("Reconcile", "Processing")).await?;
        patch_status(&world, &rotation(Value::Null)).await?;

        // The copy goes on beside an operation of gardenlet, and the binding waits for its end.
        let busy = ["gardenlet says Reconcile, Processing, 40 %: words of gardenlet"];
        until_says(&world, "move", ("garden", "ShootIdle"), &busy).await?;
        let ahead = snapshots(&world, SEEDS.1)?;
        ensure!(!ahead.is_empty(), "nothing is copied ahead");
        ensure!(story::shoot(&world).await?["spec"]["seedName"] == SEEDS.0, "the Shoot is bound too early");

        let gardenlets = (
            Gardenlet::start(garden, source, world.name()).await?,
            Gardenlet::start(garden, destination, world.name()).await?,
        );
        let druid = Druid::start(source, destination, world.name(), COPY);
        patch_status(&world, &operation("Reconcile", "Succeeded")).await?;
        let migration = story::until_success(&world, "move", SEEDS.1).await?;
        ensure_as_measured(&migration, (&gardenlets.0, &gardenlets.1))?;
        ensure_moved(&world, (&gardenlets.0, &gardenlets.1), &druid, ahead.len()).await?;
        world.landscape.stop_shoot(world.name(), SEEDS.0).await?;
        world.stop(SEEDS.1).await
    });
}

/// A migration that is aborted before the Shoot is bound leaves nothing behind.
#[test]
#[ignore = "minutes, in make soak"]
fn migration_by_gardenlet_that_is_aborted_before_the_binding_leaves_nothing_behind() {
    run(async |env| {
        let world = World::create(env, "omega", workerless()).await?;
        until_state_is_stored(&world).await?;
        let source =
            Gardenlet::start(garden_of(&world)?, world.landscape.seed(SEEDS.0)?, world.name()).await?;
        patch_status(&world, &operation("Reconcile", "Processing")).await?;
        create(&world, "move", "Classic").await?;
        story::until_started(&world, "move", ("garden", "ShootIdle")).await?;
        story::abort(&world, "move").await?;
        let migration = story::until_end(&world, "move").await?;
        story::ensure_phase(&migration, "Cancelled")?;
        let shoot = story::shoot(&world).await?;
        ensure!(shoot["spec"]["seedName"] == SEEDS.0 && shoot["status"]["seedName"] == SEEDS.0, "{shoot}");
        ensure!(!source.told().iter().any(|what| what == "Migrate"), "{:?}", source.told());
        until_copy_is_gone(&world).await?;
        world.stop(SEEDS.0).await
    });
}

async fn until_copy_is_gone(world: &World) -> Result<()> {
    let path = format!("/api/v1/namespaces/copy--{}", world.name().technical_id());
    let cluster = &world.landscape.seed(SEEDS.1)?.cluster;
    until("the namespace of the copy to be gone", DEADLINE, async || {
        let answer = cluster.api().get(&path).await?;
        ensure!(answer.status == 404, "{answer}");
        Ok(())
    })
    .await
}

fn ensure_as_measured(migration: &Value, (source, destination): (&Gardenlet, &Gardenlet)) -> Result<()> {
    let outage = &migration["status"]["apiOutage"];
    println!("outage {outage}, gardenlets: {:?}, {:?}", source.told(), destination.told());
    let from = source.when("API stopped").context("the API of the source did not end")?;
    let until = destination.when("API serves").context("no API serves at the destination")?;
    let (measured, said) = ((until - from).as_secs_f64(), outage["seconds"].as_f64().context("no outage")?);
    ensure!(measured >= COPY.as_secs_f64(), "the API was away for {measured} s alone");
    ensure!((measured - said).abs() <= PRECISION_SECONDS, "{measured} s were measured, and {said} are said");
    Ok(())
}

/// Each gardenlet did its part once, and little was left to copy.
async fn ensure_moved(
    world: &World,
    (source, destination): (&Gardenlet, &Gardenlet),
    druid: &Druid,
    ahead: usize,
) -> Result<()> {
    let count =
        |gardenlet: &Gardenlet, what: &str| gardenlet.told().iter().filter(|told| *told == what).count();
    ensure!(count(source, "Migrate") == 1 && count(destination, "Restore") == 1, "{:?}", source.told());
    ensure!(!source.told().iter().chain(&destination.told()).any(|what| what.starts_with("error")));
    let copied = druid.copies();
    ensure!(copied.len() == 1 && copied[0].present >= ahead, "{copied:?}, and {ahead} were copied ahead");
    let entry = backup_entry(world).await?;
    ensure!(entry["spec"]["seedName"] == SEEDS.1 && entry["status"]["seedName"] == SEEDS.1, "{entry}");
    until_copy_is_gone(world).await
}
