//! A Shoot that a gardenlet may reconcile: Repot moves it only where that gardenlet leaves it alone.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use repot_tests::http::Api;
use repot_tests::landscape::garden::CORE;
use repot_tests::wait::until;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::story;
use super::world::{SEEDS, World, run, small};

const IGNORE: &str = "shoot.gardener.cloud/ignore";
const MARK: &str = "migration.gardener.cloud/ignored-for";
const RECONCILES: &str = "Reconciliation of the Shoot in progress.";
const MERGE: &str = "application/merge-patch+json";

/// A gardenlet that does not honour the annotation, as far as the garden sees it: it begins an operation for each generation, and writes
/// both in one update. It ends with this.
struct DefiantGardenlet(JoinHandle<()>);

impl Drop for DefiantGardenlet {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn path(world: &World) -> String {
    let shoot = world.name();
    format!("{CORE}/namespaces/{}/shoots/{}", shoot.project_namespace(), shoot.name)
}

impl DefiantGardenlet {
    fn start(world: &World) -> Result<Self> {
        let api = story::garden_of(world)?.cluster.api().clone();
        Ok(Self(tokio::spawn(observe_all(api, path(world)))))
    }
}

async fn observe_all(api: Api, path: String) {
    loop {
        // What fails is tried again, as gardenlet does.
        let _ = observe(&api, &path).await;
        sleep(Duration::from_millis(500)).await;
    }
}

async fn observe(api: &Api, path: &str) -> Result<()> {
    let shoot = api.get(path).await?.ok()?;
    let generation = &shoot["metadata"]["generation"];
    if shoot["status"]["observedGeneration"] == *generation {
        return Ok(());
    }
    let operation = json!({
        "type": "Reconcile", "state": "Processing", "progress": 5, "description": RECONCILES,
        "lastUpdateTime": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    });
    let status = json!({"status": {"observedGeneration": generation, "lastOperation": operation}});
    api.patch(&format!("{path}/status"), MERGE, &status).await?.ok().map(drop)
}

/// A request of a migration that has ended sets the annotation after all: the garden takes it away.
pub async fn ensure_late_request_is_undone(world: &World, name: &str) -> Result<()> {
    let uid = story::read(world, name).await?["metadata"]["uid"].clone();
    let late = json!({"metadata": {"annotations": {IGNORE: "true", MARK: uid}}});
    story::garden_of(world)?.cluster.api().patch(&path(world), MERGE, &late).await?.ok()?;
    until("the annotation to be taken away", story::DEADLINE, async || {
        let shoot = story::shoot(world).await?;
        let annotations = &shoot["metadata"]["annotations"];
        ensure!(annotations[IGNORE].is_null() && annotations[MARK].is_null(), "{annotations}");
        Ok(())
    })
    .await
}

#[test]
#[ignore = "minutes, in make soak"]
fn shoot_that_a_gardenlet_reconciles_is_left_where_it_is() {
    run(async |env| {
        let world = World::create(env, "tau", small()).await?;
        let before = world.workload().await?;
        let gardenlet = DefiantGardenlet::start(&world)?;
        story::create(&world, "refused", SEEDS).await?;
        let migration = story::until_end(&world, "refused").await?;
        drop(gardenlet);
        story::ensure_phase(&migration, "RolledBack")?;
        ensure!(migration["status"]["reason"] == "GardenletReconciles", "{}", migration["status"]);
        ensure!(migration["status"]["message"].as_str().unwrap_or_default().contains("respectSyncPeriod"));
        let shoot = story::shoot(&world).await?;
        ensure!(shoot["spec"]["seedName"] == SEEDS.0, "{shoot}");
        let annotations = &shoot["metadata"]["annotations"];
        ensure!(annotations[IGNORE].is_null() && annotations[MARK].is_null(), "{annotations}");
        ensure!(before == world.workload().await?);
        // What gardenlet does goes on, and its operation is not overwritten.
        let last = &shoot["status"]["lastOperation"];
        ensure!(last["description"] == RECONCILES && last["state"] == "Processing", "{last}");

        // Its operation ends, and somebody else wants the Shoot to be left alone for good.
        let api = story::garden_of(&world)?.cluster.api();
        let ended = json!({"status": {"lastOperation": {"state": "Succeeded", "progress": 100}}});
        api.patch(&format!("{}/status", path(&world)), MERGE, &ended).await?.ok()?;
        let ignore = json!({"metadata": {"annotations": {IGNORE: "true"}}});
        api.patch(&path(&world), MERGE, &ignore).await?.ok()?;
        story::succeed(&world, "move", SEEDS).await?;
        world.ensure_moved(&before, SEEDS).await?;
        let shoot = story::shoot(&world).await?;
        let annotations = shoot["metadata"]["annotations"].as_object().context("no annotations")?;
        ensure!(annotations.get(IGNORE).is_some_and(|value| value == "true"), "{annotations:?}");
        ensure!(!annotations.contains_key(MARK), "{annotations:?}");
        world.stop(SEEDS.1).await
    });
}
