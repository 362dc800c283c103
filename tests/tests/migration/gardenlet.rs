//! Forced migrations that the gardenlet of the destination carries out: the source seed is dead, and runs no stand-in of a gardenlet.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use repot_tests::landscape::garden::CORE;
use repot_tests::landscape::{ControlPlaneOptions, Gardenlet, etcd};
use repot_tests::operator::apply_file;
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::forced::Frozen;
use super::story::{self, DEADLINE, garden_of};
use super::world::{SEEDS, World, run};

pub(super) const MERGE: &str = "application/merge-patch+json";
pub(super) const SOURCE_OFF: &str = "confirmation.gardener.cloud/source-seed-off";
pub(super) const LOSS: &str = "confirmation.gardener.cloud/forced-migration";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/gardener-system-seed-lease/leases";
/// gardener-controller-manager looks at Leases each second, and takes five for a seed to be dead.
const DEAD: Duration = Duration::from_secs(90);

/// Runs a part of a test while the gardenlet of the source is dead, and revives it: what tests share has to go on, however a test ends.
pub(super) async fn while_dead(world: &World, part: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
    renew(world, "2026-01-01T00:00:00.000000Z").await?;
    let path = format!("{CORE}/seeds/{}", SEEDS.0);
    let died = until("the source to be taken for dead", DEAD, async || {
        let seed = garden_of(world)?.cluster.api().get(&path).await?.ok()?;
        let mut conditions = seed["status"]["conditions"].as_array().into_iter().flatten();
        let ready = conditions.find(|one| one["type"] == "GardenletReady");
        ensure!(ready.is_some_and(|one| one["status"] != "True"), "{}", seed["status"]);
        Ok(())
    });
    let outcome = match died.await {
        Ok(()) => part().await,
        Err(error) => Err(error),
    };
    renew(world, "2199-01-01T00:00:00.000000Z").await?;
    set_condition(world, SEEDS.0, "GardenletReady", "True").await?;
    outcome
}

async fn renew(world: &World, time: &str) -> Result<()> {
    let api = garden_of(world)?.cluster.api();
    let lease = json!({"spec": {"renewTime": time}});
    api.patch(&format!("{LEASES}/{}", SEEDS.0), MERGE, &lease).await?.ok().map(drop)
}

/// Sets a condition of a Seed, as its gardenlet does.
pub(super) async fn set_condition(world: &World, seed: &str, kind: &str, status: &str) -> Result<()> {
    let (api, path) = (garden_of(world)?.cluster.api(), format!("{CORE}/seeds/{seed}"));
    until("the condition to be written", DEADLINE, async || {
        let mut seed = api.get(&path).await?.ok()?;
        let conditions = seed["status"]["conditions"].as_array_mut().context("the Seed has no conditions")?;
        let found = conditions.iter_mut().find(|one| one["type"] == kind);
        found.context("no such condition")?["status"] = status.into();
        let patch = json!({
            "metadata": {"resourceVersion": seed["metadata"]["resourceVersion"]},
            "status": {"conditions": seed["status"]["conditions"]},
        });
        api.patch(&format!("{path}/status"), MERGE, &patch).await?.ok().map(drop)
    })
    .await
}

/// Workers would only take time: gardenlet restores them.
pub(super) fn workerless() -> ControlPlaneOptions {
    ControlPlaneOptions {
        etcd_members: 1,
        api_servers: 1,
        pools: Vec::new(),
        ..ControlPlaneOptions::default()
    }
}

pub(super) async fn create(world: &World, name: &str, mode: &str) -> Result<()> {
    let shoot = world.name();
    let object = json!({
        "apiVersion": "migration.gardener.cloud/v1alpha1", "kind": "ControlPlaneMigration",
        "metadata": {"name": format!("{}-{name}", shoot.name)},
        "spec": {
            "shootRef": {"name": shoot.name}, "sourceSeed": SEEDS.0, "destinationSeed": SEEDS.1, "mode": mode,
            "executor": "Gardenlet", "stepTimeout": "5m",
        },
    });
    let path = format!(
        "/apis/migration.gardener.cloud/v1alpha1/namespaces/{}/controlplanemigrations",
        shoot.project_namespace()
    );
    let api = garden_of(world)?.cluster.api();
    let mut live = object.clone();
    live["spec"]["mode"] = "Live".into();
    let answer = api.post(&path, &live).await?;
    ensure!(
        answer.status == 422 && answer.to_string().contains("is for modes Classic and Forced"),
        "{answer}"
    );
    api.post(&path, &object).await?.ok().map(drop)
}

/// Waits until a step that runs says all of this.
pub(super) async fn until_says(world: &World, name: &str, step: (&str, &str), words: &[&str]) -> Result<()> {
    until(&format!("{} to say {words:?}", step.1), DEADLINE, async || {
        let said = story::step(world, name, step).await?["message"].to_string();
        ensure!(words.iter().all(|word| said.contains(word)), "{said}");
        Ok(())
    })
    .await
}

/// Waits until Repot has a ShootState of the Shoot, with Secrets.
pub(super) async fn until_state_is_stored(world: &World) -> Result<()> {
    until("a ShootState with Secrets", DEADLINE, async || {
        let state = story::state(world).await?;
        let secrets = state["spec"]["gardener"].as_array().map(Vec::len);
        ensure!(secrets.is_some_and(|secrets| secrets > 0), "{secrets:?} Secrets");
        Ok(())
    })
    .await
}

/// The snapshots of the Shoot in the bucket of a seed.
pub(super) fn snapshots(world: &World, seed: &str) -> Result<BTreeSet<String>> {
    let prefix = format!("{}/{}", world.name().backup_entry(), etcd::MAIN);
    let mut found = BTreeSet::new();
    let mut directories = vec![world.landscape.seed(seed)?.store.files(&prefix)];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten() {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // Which cluster wrote a snapshot is not copied.
            let is_copied = !name.ends_with(".cluster");
            let is_snapshot = (name.starts_with("Full-") || name.starts_with("Incr-")) && is_copied;
            match (path.is_dir() && !is_snapshot, is_snapshot) {
                (true, _) => directories.push(path),
                (false, true) => drop(found.insert(name)),
                (false, false) => {}
            }
        }
    }
    Ok(found)
}

pub(super) async fn backup_entry(world: &World) -> Result<Value> {
    let (namespace, name) = (world.name().project_namespace(), world.name().backup_entry());
    let path = format!("{CORE}/namespaces/{namespace}/backupentries/{name}");
    garden_of(world)?.cluster.api().get(&path).await?.ok()
}

/// The ShootState that gardenlet reads, of Gardener's API server.
pub(super) async fn state_of_gardener(world: &World) -> Result<Value> {
    let (namespace, name) = (world.name().project_namespace(), &world.name().name);
    let path = format!("{CORE}/namespaces/{namespace}/shootstates/{name}");
    garden_of(world)?.cluster.api().get(&path).await?.ok()
}

/// Says what is missing, waits for both confirmations, and the gardenlet of the destination restores: with the ShootState of Repot, and
/// with backups that Repot has copied.
#[test]
#[ignore = "minutes, in make soak"]
fn gardenlet_restores_a_shoot_whose_seed_is_dead() {
    run(async |env| {
        let world = World::create(env, "phi", workerless()).await?;
        until_state_is_stored(&world).await?;
        let (garden, destination) = (garden_of(&world)?, world.landscape.seed(SEEDS.1)?);
        for cluster in [&garden.cluster, &destination.cluster] {
            let role = ["delete", "clusterrolebinding", "repot-gardenlet-executor", "--ignore-not-found"];
            cluster.kubectl(role).await?.text()?;
        }
        let gardenlet = Gardenlet::start(garden, destination, world.name()).await?;

        // Bad input: a source that answers, a destination that is not ready, and no role.
        set_condition(&world, SEEDS.1, "SeedSystemComponentsHealthy", "False").await?;
        create(&world, "move", "Forced").await?;
        let refusals = [
            "the gardenlet of seed-a answers",
            "Seed seed-b: condition SeedSystemComponentsHealthy is False",
            "this controller may not restore-with-gardenlet controlplanemigrations; apply deploy/rbac/garden-gardenlet.yaml",
        ];
        until_says(&world, "move", ("garden", "DestinationReady"), &refusals).await?;
        set_condition(&world, SEEDS.1, "SeedSystemComponentsHealthy", "True").await?;
        apply_file(&garden.cluster, "rbac/garden-gardenlet.yaml").await?;

        let containers = world.containers(SEEDS.0).await?;
        let (mut state, mut stored) = (Value::Null, BTreeSet::new());
        while_dead(&world, async || {
            world.freeze(SEEDS.0, &containers, true)?;
            let frozen = Frozen::new(world.landscape.seed(SEEDS.0)?.cluster.apiserver_process());
            state = story::state(&world).await?;
            confirm(&world, &gardenlet).await?;
            let migration = story::until_success(&world, "move", SEEDS.1).await?;
            println!("outage {}, gardenlet: {:?}", migration["status"]["apiOutage"], gardenlet.told());
            ensure!(migration["status"]["apiOutage"]["seconds"].is_i64(), "{}", migration["status"]);
            // When the source goes on, it stores more.
            stored = snapshots(&world, SEEDS.0)?;
            drop(frozen);
            world.freeze(SEEDS.0, &containers, false)
        })
        .await?;
        ensure_restored(&world, &gardenlet, (&state, &stored)).await?;
        world.landscape.stop_shoot(world.name(), SEEDS.0).await?;
        world.stop(SEEDS.1).await
    });
}

/// The destination asks for its role, and people are asked for both confirmations; nothing is written to the Shoot before.
async fn confirm(world: &World, gardenlet: &Gardenlet) -> Result<()> {
    let destination = world.landscape.seed(SEEDS.1)?;
    let missing = ["may not patch etcdcopybackupstasks/status; apply deploy/rbac/seed-gardenlet.yaml"];
    until_says(world, "move", ("destination", "SourceBucketReadable"), &missing).await?;
    apply_file(&destination.cluster, "rbac/seed-gardenlet.yaml").await?;
    until_says(world, "move", ("garden", "SourceOff"), &["nobody fences the source"]).await?;
    story::annotate(world, "move", &json!({SOURCE_OFF: SEEDS.0})).await?;
    until_says(world, "move", ("destination", "LossConfirmed"), &[LOSS]).await?;
    let shoot = story::shoot(world).await?;
    ensure!(shoot["spec"]["seedName"] == SEEDS.0 && shoot["status"]["seedName"] == SEEDS.0, "{shoot}");
    ensure!(gardenlet.told().is_empty(), "{:?}", gardenlet.told());
    story::annotate(world, "move", &json!({LOSS: SEEDS.0})).await
}

/// The gardenlet of the destination has restored, and nothing else, with all that the source had stored.
async fn ensure_restored(
    world: &World,
    gardenlet: &Gardenlet,
    (state, stored): (&Value, &BTreeSet<String>),
) -> Result<()> {
    let told = gardenlet.told();
    ensure!(told.iter().filter(|what| *what == "Restore").count() == 1, "{told:?}");
    ensure!(!told.iter().any(|what| what == "Migrate" || what.starts_with("error")), "{told:?}");
    ensure!(told.iter().any(|what| what == "backups copied"), "{told:?}");
    let entry = backup_entry(world).await?;
    ensure!(entry["spec"]["seedName"] == SEEDS.1 && entry["status"]["seedName"] == SEEDS.1, "{entry}");
    let copied = snapshots(world, SEEDS.1)?;
    ensure!(!stored.is_empty() && *stored == copied, "source {stored:?}, destination {copied:?}");
    let gardener = state_of_gardener(world).await?;
    ensure!(state["spec"]["gardener"] == gardener["spec"]["gardener"], "the Secrets differ");
    let path = format!("/api/v1/namespaces/copy--{}", world.name().technical_id());
    let cluster = &world.landscape.seed(SEEDS.1)?.cluster;
    until("the namespace of the copy to be gone", DEADLINE, async || {
        let answer = cluster.api().get(&path).await?;
        ensure!(answer.status == 404, "{answer}");
        Ok(())
    })
    .await
}

/// Somebody has confirmed that the source is off, and it goes on to store snapshots: nothing is moved.
#[test]
#[ignore = "minutes, in make soak"]
fn source_that_writes_on_is_not_taken_for_dead() {
    run(async |env| {
        let world = World::create(env, "chi", workerless()).await?;
        until_state_is_stored(&world).await?;
        let (garden, destination) = (garden_of(&world)?, world.landscape.seed(SEEDS.1)?);
        let gardenlet = Gardenlet::start(garden, destination, world.name()).await?;
        apply_file(&garden.cluster, "rbac/garden-gardenlet.yaml").await?;
        apply_file(&destination.cluster, "rbac/seed-gardenlet.yaml").await?;
        let mut ended = Value::Null;
        while_dead(&world, async || {
            create(&world, "move", "Forced").await?;
            story::annotate(&world, "move", &json!({SOURCE_OFF: SEEDS.0})).await?;
            until_says(&world, "move", ("destination", "LossConfirmed"), &[LOSS]).await?;
            // The copy does not end before the source has written again.
            destination.store.relay.stall();
            let outcome = write_behind_the_confirmation(&world).await;
            destination.store.relay.heal();
            outcome?;
            ended = story::until_end(&world, "move").await?;
            Ok(())
        })
        .await?;
        let migration = ended;
        story::ensure_phase(&migration, "RolledBack")?;
        let said = migration["status"]["message"].to_string();
        ensure!(said.contains("the source is not off"), "{said}");
        let (shoot, entry) = (story::shoot(&world).await?, backup_entry(&world).await?);
        for object in [&shoot, &entry] {
            ensure!(
                object["spec"]["seedName"] == SEEDS.0 && object["status"]["seedName"] == SEEDS.0,
                "{object}"
            );
        }
        ensure!(gardenlet.told().is_empty(), "{:?}", gardenlet.told());
        world.stop(SEEDS.0).await
    });
}

/// Confirms the loss, and lets the source store another snapshot.
async fn write_behind_the_confirmation(world: &World) -> Result<()> {
    story::annotate(world, "move", &json!({LOSS: SEEDS.0})).await?;
    story::until_started(world, "move", ("destination", "SnapshotsCopied")).await?;
    let before = snapshots(world, SEEDS.0)?;
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "written-on"}});
    world.api()?.post("/api/v1/namespaces/default/configmaps", &object).await?.ok()?;
    until("another snapshot of the source", DEADLINE, async || {
        let count = snapshots(world, SEEDS.0)?.difference(&before).count();
        ensure!(count > 0, "there is none");
        Ok(())
    })
    .await
}
