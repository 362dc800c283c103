//! A migration in the garden: created, watched, told when it goes wrong.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use repot_tests::landscape::{GardenCluster, garden};
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::world::World;

/// How long a whole migration may take on two cores.
pub const DEADLINE: Duration = Duration::from_secs(600);
const PATH: &str = "/apis/migration.gardener.cloud/v1alpha1/namespaces";

/// The garden of the landscape.
pub fn garden_of(world: &World) -> Result<&GardenCluster> {
    world.landscape.garden.as_ref().context("there is no garden")
}

/// Creates a migration of the Shoot, named after it.
pub async fn create(world: &World, name: &str, (from, to): (&str, &str)) -> Result<()> {
    let shoot = world.name();
    let object = json!({
        "apiVersion": "migration.gardener.cloud/v1alpha1", "kind": "ControlPlaneMigration",
        "metadata": {"name": format!("{}-{name}", shoot.name)},
        "spec": {
            "shootRef": {"name": shoot.name}, "sourceSeed": from, "destinationSeed": to, "stepTimeout": "5m",
        },
    });
    let path = format!("{PATH}/{}/controlplanemigrations", shoot.project_namespace());
    garden_of(world)?.cluster.api().post(&path, &object).await?.ok().map(drop)
}

/// Moves the Shoot, and gives the migration that has succeeded.
pub async fn succeed(world: &World, name: &str, seeds: (&str, &str)) -> Result<Value> {
    create(world, name, seeds).await?;
    let migration = until_end(world, name).await?;
    ensure_phase(&migration, "Succeeded")?;
    let moved = shoot(world).await?;
    ensure!(moved["status"]["seedName"] == seeds.1, "{moved}");
    ensure!(moved["status"]["lastOperation"]["type"] == "Restore", "{moved}");
    Ok(migration)
}

fn path(world: &World, name: &str) -> String {
    let shoot = world.name();
    format!("{PATH}/{}/controlplanemigrations/{}-{name}", shoot.project_namespace(), shoot.name)
}

/// A migration as it is stored.
pub async fn read(world: &World, name: &str) -> Result<Value> {
    garden_of(world)?.cluster.api().get(&path(world, name)).await?.ok()
}

/// Waits until a side has started a step.
pub async fn until_started(world: &World, name: &str, (side, step): (&str, &str)) -> Result<()> {
    until(&format!("{step} to be started"), DEADLINE, async || {
        let migration = read(world, name).await?;
        let steps = migration["status"][side]["steps"].as_array().into_iter().flatten();
        let started = steps.filter(|one| one["startTime"].is_string()).any(|one| one["name"] == step);
        ensure!(started, "{}", running(&migration["status"]));
        Ok(())
    })
    .await
}

/// Asks for a rollback.
pub async fn abort(world: &World, name: &str) -> Result<()> {
    let patch = json!({"spec": {"abort": "Abort"}});
    let api = garden_of(world)?.cluster.api();
    api.patch(&path(world, name), "application/merge-patch+json", &patch).await?.ok().map(drop)
}

/// Waits until the migration has ended, and gives it; how it ended is not judged.
pub async fn until_end(world: &World, name: &str) -> Result<Value> {
    let mut said = String::new();
    until("the migration to end", DEADLINE, async || {
        let migration = read(world, name).await?;
        let status = &migration["status"];
        let running = running(status);
        if running != said {
            println!("{} {running}", status["phase"]);
            said = running;
        }
        match status["phase"].as_str() {
            Some("Succeeded" | "RolledBack" | "Failed" | "Cancelled") => Ok(migration),
            _ => bail!("{said}"),
        }
    })
    .await
}

/// Steps that run, each with what it waits for.
fn running(status: &Value) -> String {
    let mut all = Vec::new();
    for side in ["garden", "source", "destination"] {
        let steps = status[side]["steps"].as_array().into_iter().flatten();
        for step in steps.filter(|step| step["state"] == "Running") {
            let text = |field: &str| step[field].as_str().unwrap_or_default().to_owned();
            all.push(format!("{side} {}: {}", text("name"), text("message")));
        }
    }
    all.join("; ")
}

/// The Shoot in the garden.
pub async fn shoot(world: &World) -> Result<Value> {
    let shoot = world.name();
    let path = format!("{}/namespaces/{}/shoots/{}", garden::CORE, shoot.project_namespace(), shoot.name);
    garden_of(world)?.cluster.api().get(&path).await?.ok()
}

/// Fails with all that is known unless the migration has this phase.
pub fn ensure_phase(migration: &Value, phase: &str) -> Result<()> {
    let status = serde_json::to_string_pretty(&migration["status"])?;
    ensure!(migration["status"]["phase"] == phase, "{status}");
    Ok(())
}
