//! A migration in the garden: created, watched, told when it goes wrong.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use repot_tests::landscape::{GardenCluster, Landscape, ShootName, garden};
use repot_tests::wait::until;
use serde_json::{Value, json};

/// How long a whole migration may take on two cores.
pub const DEADLINE: Duration = Duration::from_secs(600);
const PATH: &str = "/apis/migration.gardener.cloud/v1alpha1/namespaces";

/// The garden of a landscape.
pub fn garden_of(landscape: &Landscape) -> Result<&GardenCluster> {
    landscape.garden.as_ref().context("there is no garden")
}

/// Creates a migration of a Shoot.
pub async fn create(
    landscape: &Landscape,
    name: &str,
    shoot: &ShootName,
    (from, to): (&str, &str),
) -> Result<()> {
    let object = json!({
        "apiVersion": "migration.gardener.cloud/v1alpha1", "kind": "ControlPlaneMigration",
        "metadata": {"name": name},
        "spec": {
            "shootRef": {"name": shoot.name}, "sourceSeed": from, "destinationSeed": to, "stepTimeout": "5m",
        },
    });
    let path = format!("{PATH}/{}/controlplanemigrations", shoot.project_namespace());
    garden_of(landscape)?.cluster.api().post(&path, &object).await?.ok().map(drop)
}

/// A migration as it is stored.
pub async fn read(landscape: &Landscape, name: &str, shoot: &ShootName) -> Result<Value> {
    let path = format!("{PATH}/{}/controlplanemigrations/{name}", shoot.project_namespace());
    garden_of(landscape)?.cluster.api().get(&path).await?.ok()
}

/// Waits until a side has started a step.
pub async fn until_started(
    landscape: &Landscape,
    name: &str,
    shoot: &ShootName,
    (side, step): (&str, &str),
) -> Result<()> {
    until(&format!("{step} to be started"), DEADLINE, async || {
        let migration = read(landscape, name, shoot).await?;
        let steps = migration["status"][side]["steps"].as_array().into_iter().flatten();
        let started = steps.filter(|one| one["startTime"].is_string()).any(|one| one["name"] == step);
        ensure!(started, "{}", running(&migration["status"]));
        Ok(())
    })
    .await
}

/// Asks for a rollback.
pub async fn abort(landscape: &Landscape, name: &str, shoot: &ShootName) -> Result<()> {
    let path = format!("{PATH}/{}/controlplanemigrations/{name}", shoot.project_namespace());
    let patch = json!({"spec": {"abort": "Abort"}});
    let api = garden_of(landscape)?.cluster.api();
    api.patch(&path, "application/merge-patch+json", &patch).await?.ok().map(drop)
}

/// Waits until the migration has ended, and gives it; how it ended is not judged.
pub async fn until_end(landscape: &Landscape, name: &str, shoot: &ShootName) -> Result<Value> {
    let mut said = String::new();
    until("the migration to end", DEADLINE, async || {
        let migration = read(landscape, name, shoot).await?;
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
pub async fn shoot(landscape: &Landscape, shoot: &ShootName) -> Result<Value> {
    let path = format!("{}/namespaces/{}/shoots/{}", garden::CORE, shoot.project_namespace(), shoot.name);
    garden_of(landscape)?.cluster.api().get(&path).await?.ok()
}

/// Fails with all that is known unless the migration has this phase.
pub fn ensure_phase(migration: &Value, phase: &str) -> Result<()> {
    let status = serde_json::to_string_pretty(&migration["status"])?;
    ensure!(migration["status"]["phase"] == phase, "{status}");
    Ok(())
}
