//! A controller of controller-runtime that watches EtcdBackups and owns ShootStates.

use anyhow::{Context, Result, ensure};
use repot_tests::clientgo::ClientGo;
use repot_tests::run;
use serde_json::{Value, json};

use super::{backup, once, state};
use crate::etcd_kinds::world::{self, World, path};
use crate::shootstate::world::path as state_path;

const FINALIZER: &str = "tests.repot.dev/kept";
const BACKUPS: usize = 5;

#[test]
fn manager_of_controller_runtime_reconciles_and_finalizes() {
    run(async |env| {
        let world = World::garden(env).await?;
        // One is there before the manager is, the others come while it watches.
        world.create("etcdbackups", &world::backup("b-0", "main")).await?;
        let mut manager = ClientGo::library(env, "manager", world.kubectl.kubeconfig())?;
        manager.ask("synced").await?;
        for n in 1..BACKUPS {
            world.create("etcdbackups", &world::backup(&format!("b-{n}"), "main")).await?;
        }
        for n in 0..BACKUPS {
            reconciles(&world, &format!("b-{n}")).await?;
        }
        makes_again(&world).await?;
        finalizes(&world).await?;
        let asked = manager.ask("synced").await?;
        // One of each kind: the detector that holds a WatchList against a list. The controller itself reads its informers.
        ensure!(asked["failures"] == 0 && asked["watchLists"] == 2 && asked["lists"] == 2, "{asked}");
        Ok(())
    });
}

/// The status names the child, and the child its owner.
async fn reconciles(world: &World, name: &str) -> Result<String> {
    let is = |object: &Value| object["status"]["message"].is_string();
    let answer =
        once(world, &path("etcdbackups", name), "a status", |a| a.json().is_ok_and(|o| is(&o))).await?;
    let owner = answer.json()?;
    ensure!(owner["metadata"]["finalizers"] == json!([FINALIZER]), "{}", owner["metadata"]);
    let child = state(world, &format!("of-{name}")).await?;
    let uid = child["metadata"]["uid"].as_str().context("a uid")?;
    ensure!(owner["status"]["message"] == uid, "the status names {}", owner["status"]);
    let expected = json!([{
        "apiVersion": "migration.gardener.cloud/v1alpha1", "kind": "EtcdBackup", "name": name,
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    }]);
    ensure!(child["metadata"]["ownerReferences"] == expected, "{}", child["metadata"]);
    Ok(uid.to_owned())
}

/// A child that somebody deletes or changes is made again: the event of one kind leads to the object of another.
async fn makes_again(world: &World) -> Result<()> {
    let first = reconciles(world, "b-1").await?;
    world.api.delete(&state_path("of-b-1")).await?.ok()?;
    let renewed = |object: Value| object["status"]["message"].as_str().is_some_and(|uid| uid != first);
    once(world, &path("etcdbackups", "b-1"), "another child", |a| a.json().is_ok_and(renewed)).await?;
    reconciles(world, "b-1").await?;
    let change = json!({"spec": {"extensions": [{"kind": "Worker", "name": "w", "state": {"count": 7}}]}});
    world.api.patch(&state_path("of-b-1"), "application/merge-patch+json", &change).await?.ok()?;
    let restored = |object: Value| *super::count(&object) == 1;
    once(world, &state_path("of-b-1"), "the old state", |a| a.json().is_ok_and(restored)).await?;
    Ok(())
}

/// Deletion waits for the finalizer, which goes after the child.
async fn finalizes(world: &World) -> Result<()> {
    let deleted = world.api.delete(&path("etcdbackups", "b-2")).await?.ok()?;
    ensure!(deleted["metadata"]["deletionTimestamp"].is_string(), "it went without its finalizer: {deleted}");
    once(world, &path("etcdbackups", "b-2"), "the object to go", |a| a.status == 404).await?;
    ensure!(world.api.get(&state_path("of-b-2")).await?.status == 404, "the child is left behind");
    ensure!(backup(world, "b-3").await?["metadata"]["finalizers"] == json!([FINALIZER]), "others stay");
    Ok(())
}
