//! A migration in the garden: created, watched, told when it goes wrong.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::world::World;
use super::{GardenCluster, garden};
use crate::wait::until;

/// How long a whole migration may take on two cores.
pub const DEADLINE: Duration = Duration::from_secs(900);
/// How long a step may take where nothing else is said.
pub const STEP_TIMEOUT: &str = "5m";
/// Length of a time of day.
const TIME: usize = 8;
const PATH: &str = "/apis/migration.gardener.cloud/v1alpha1/namespaces";

/// The garden of the landscape.
pub fn garden_of(world: &World) -> Result<&GardenCluster> {
    world.landscape.garden.as_ref().context("there is no garden")
}

/// Creates a migration of the Shoot, named after it.
pub async fn create(world: &World, name: &str, seeds: (&str, &str)) -> Result<()> {
    create_in_mode(world, name, seeds, ("Classic", STEP_TIMEOUT)).await
}

/// Creates a forced migration of the Shoot, which nobody has confirmed.
pub async fn create_forced(world: &World, name: &str, seeds: (&str, &str)) -> Result<()> {
    create_in_mode(world, name, seeds, ("Forced", STEP_TIMEOUT)).await
}

/// Creates a live migration of the Shoot.
pub async fn create_live(world: &World, name: &str, seeds: (&str, &str)) -> Result<()> {
    create_in_mode(world, name, seeds, ("Live", STEP_TIMEOUT)).await
}

/// Creates a migration of the Shoot in a mode, each step of which may take so long.
pub async fn create_in_mode(
    world: &World,
    name: &str,
    (from, to): (&str, &str),
    (mode, step_timeout): (&str, &str),
) -> Result<()> {
    let shoot = world.name();
    let object = json!({
        "apiVersion": "migration.gardener.cloud/v1alpha1", "kind": "ControlPlaneMigration",
        "metadata": {"name": format!("{}-{name}", shoot.name)},
        "spec": {
            "shootRef": {"name": shoot.name}, "sourceSeed": from, "destinationSeed": to, "mode": mode,
            "stepTimeout": step_timeout,
        },
    });
    let path = format!("{PATH}/{}/controlplanemigrations", shoot.project_namespace());
    garden_of(world)?.cluster.api().post(&path, &object).await?.ok().map(drop)
}

/// Moves the Shoot, and gives the migration that has succeeded.
pub async fn succeed(world: &World, name: &str, seeds: (&str, &str)) -> Result<Value> {
    create(world, name, seeds).await?;
    until_success(world, name, seeds.1).await
}

/// Waits until the Shoot has moved to a seed.
pub async fn until_success(world: &World, name: &str, seed: &str) -> Result<Value> {
    let migration = until_end(world, name).await?;
    ensure_phase(&migration, "Succeeded")?;
    let moved = shoot(world).await?;
    ensure!(moved["spec"]["seedName"] == seed && moved["status"]["seedName"] == seed, "{moved}");
    ensure!(moved["status"]["lastOperation"]["type"] == "Restore", "{moved}");
    Ok(migration)
}

/// Changes `spec.seedName` of the Shoot, as its owner or a scheduler does, and gives the name of the migration that this makes.
pub async fn change_seed(world: &World, seed: &str) -> Result<String> {
    let shoot = world.name();
    let path =
        format!("{}/namespaces/{}/shoots/{}/binding", garden::CORE, shoot.project_namespace(), shoot.name);
    let patch = json!({"spec": {"seedName": seed}});
    garden_of(world)?.cluster.api().patch(&path, "application/merge-patch+json", &patch).await?.ok()?;
    until("a migration to be created", DEADLINE, async || {
        let names = names(world).await?;
        let own = names.first().and_then(|name| name.strip_prefix(&format!("{}-", shoot.name)));
        own.map(str::to_owned).with_context(|| format!("there is {names:?}"))
    })
    .await
}

/// Names of all migrations of the Shoot.
pub async fn names(world: &World) -> Result<Vec<String>> {
    let shoot = world.name();
    let path = format!("{PATH}/{}/controlplanemigrations", shoot.project_namespace());
    let all = garden_of(world)?.cluster.api().get(&path).await?.ok()?;
    let of_shoot = all["items"].as_array().into_iter().flatten();
    let of_shoot = of_shoot.filter(|one| one["spec"]["shootRef"]["name"] == shoot.name.as_str());
    Ok(of_shoot.filter_map(|one| one["metadata"]["name"].as_str().map(str::to_owned)).collect())
}

fn path(world: &World, name: &str) -> String {
    let shoot = world.name();
    format!("{PATH}/{}/controlplanemigrations/{}-{name}", shoot.project_namespace(), shoot.name)
}

/// A migration as it is stored.
pub async fn read(world: &World, name: &str) -> Result<Value> {
    garden_of(world)?.cluster.api().get(&path(world, name)).await?.ok()
}

/// The record of a step of a side; null where it was not started.
pub async fn step(world: &World, name: &str, (side, step): (&str, &str)) -> Result<Value> {
    let migration = read(world, name).await?;
    let mut steps = migration["status"][side]["steps"].as_array().into_iter().flatten();
    Ok(steps.find(|one| one["name"] == step).cloned().unwrap_or_default())
}

/// Sets annotations of a migration.
pub async fn annotate(world: &World, name: &str, annotations: &Value) -> Result<()> {
    change(world, name, &json!({"metadata": {"annotations": annotations}})).await
}

/// Changes a migration by a merge patch.
pub async fn change(world: &World, name: &str, patch: &Value) -> Result<()> {
    let api = garden_of(world)?.cluster.api();
    api.patch(&path(world, name), "application/merge-patch+json", patch).await?.ok().map(drop)
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

/// Waits until a side has reached a step.
pub async fn until_reached(world: &World, name: &str, (side, step): (&str, &str)) -> Result<()> {
    until(&format!("{step} to be reached"), DEADLINE, async || {
        let record = self::step(world, name, (side, step)).await?;
        ensure!(record["state"] == "Succeeded", "{record}");
        Ok(())
    })
    .await
}

/// Asks for a rollback.
pub async fn abort(world: &World, name: &str) -> Result<()> {
    change(world, name, &json!({"spec": {"abort": "Abort"}})).await
}

/// Asks to try again what has failed.
pub async fn retry(world: &World, name: &str, number: u32) -> Result<()> {
    change(world, name, &json!({"spec": {"retry": number}})).await
}

/// Stores a migration with another status; refused where it has changed since it was read.
pub async fn write_status(world: &World, name: &str, migration: &Value) -> Result<()> {
    let path = format!("{}/status", path(world, name));
    garden_of(world)?.cluster.api().put(&path, migration).await?.ok().map(drop)
}

/// Deletes a migration, and waits until it is gone: controllers have let it go.
pub async fn delete(world: &World, name: &str) -> Result<()> {
    let (api, path) = (garden_of(world)?.cluster.api(), path(world, name));
    api.delete(&path).await?.ok()?;
    until("the migration to be gone", DEADLINE, async || {
        let answer = api.get(&path).await?;
        ensure!(answer.status == 404, "{answer}");
        Ok(())
    })
    .await
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
        if has_ended(&migration) { Ok(migration) } else { bail!("{said}") }
    })
    .await
}

/// Whether the migration as a whole has ended.
pub fn has_ended(migration: &Value) -> bool {
    let phase = migration["status"]["phase"].as_str();
    matches!(phase, Some("Succeeded" | "RolledBack" | "Failed" | "Cancelled"))
}

/// Sides and names of the steps that run.
pub fn running_steps(status: &Value) -> BTreeSet<(&'static str, String)> {
    let sides = ["garden", "source", "destination"].into_iter();
    let running = sides.flat_map(|side| {
        let steps = status[side]["steps"].as_array().into_iter().flatten();
        let running = steps.filter(|step| step["state"] == "Running");
        running.map(move |step| (side, step["name"].as_str().unwrap_or_default().to_owned()))
    });
    running.collect()
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

/// How long a step of a side has taken, in whole seconds.
pub fn duration(migration: &Value, (side, step): (&str, &str)) -> Result<Duration> {
    let steps = migration["status"][side]["steps"].as_array().context("there are no steps")?;
    let record = steps.iter().find(|record| record["name"] == step).context("there is no such step")?;
    let time = |field: &str| record[field].as_str().unwrap_or_default().parse::<jiff::Timestamp>();
    Ok(Duration::try_from(time("completionTime")?.duration_since(time("startTime")?))?)
}

/// When the steps of the outage were started and reached, a line each, by the clocks of the sides.
pub fn outage_steps(migration: &Value) -> String {
    let all = timeline(migration);
    let started =
        |name: &str| all.iter().find(|line| line.ends_with(name)).map(|line| line[..TIME].to_owned());
    let (from, to) =
        (started(" SourceApiStopped").unwrap_or_default(), started(" ApiDnsSwitched").unwrap_or_default());
    let lines: Vec<_> = all.into_iter().filter(|line| (&*from..=&*to).contains(&&line[..TIME])).collect();
    lines.join("\n")
}

/// When the steps of source and destination were started and reached, a line each, by the clocks of the sides.
pub fn timeline(migration: &Value) -> Vec<String> {
    let time = |step: &Value, field: &str| {
        let time = step[field].as_str().unwrap_or_default().get(11..11 + TIME);
        time.unwrap_or("--:--:--").to_owned()
    };
    let sides = ["source", "destination"].into_iter();
    let of_side = |side: &'static str| {
        let steps = migration["status"][side]["steps"].as_array().into_iter().flatten();
        steps.map(move |step| {
            let name = step["name"].as_str().unwrap_or_default();
            format!("{} {} {side} {name}", time(step, "startTime"), time(step, "completionTime"))
        })
    };
    let mut lines: Vec<String> = sides.flat_map(of_side).collect();
    lines.sort();
    lines
}

/// The path of the Shoot in the garden.
pub fn shoot_path(world: &World) -> String {
    let shoot = world.name();
    format!("{}/namespaces/{}/shoots/{}", garden::CORE, shoot.project_namespace(), shoot.name)
}

/// The Shoot in the garden.
pub async fn shoot(world: &World) -> Result<Value> {
    garden_of(world)?.cluster.api().get(&shoot_path(world)).await?.ok()
}

/// The ShootState of the Shoot.
pub async fn state(world: &World) -> Result<Value> {
    let shoot = world.name();
    let path = format!("{PATH}/{}/shootstates/{}", shoot.project_namespace(), shoot.name);
    garden_of(world)?.cluster.api().get(&path).await?.ok()
}

/// Fails with all that is known unless the migration has this phase.
pub fn ensure_phase(migration: &Value, phase: &str) -> Result<()> {
    let status = serde_json::to_string_pretty(&migration["status"])?;
    ensure!(migration["status"]["phase"] == phase, "{status}");
    Ok(())
}
