//! Velero's discovery and clients, called as its item collector and its restorer call them.

use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use repot_tests::clientgo::ClientGo;
use repot_tests::run;
use serde_json::{Value, json};

use super::{backup, state};
use crate::etcd_kinds::world::{self, MERGE_PATCH, World, path};
use crate::shootstate::world::{collection, path as state_path, small};

/// More than one page of Velero's.
const STATES: usize = 510;

#[test]
fn velero_backs_up_by_pages_and_restores_with_status_and_managers() {
    run(async |env| {
        let world = World::garden(env).await?;
        let (kept, backup_kept) = fill(&world).await?;
        let mut velero = ClientGo::library(env, "velero", world.kubectl.kubeconfig())?;
        discovers(&mut velero).await?;
        let said = velero.ask("backup").await?;
        ensure!(said["kept"] == json!({"ShootState": STATES, "EtcdBackup": 1}), "{said}");
        // A first page of each kind, and one more of ShootStates: nothing is read by itself.
        ensure!(said["asked"]["lists"] == 2 && said["asked"]["pages"] == 1, "{said}");
        world.api.delete(&collection("default")).await?.ok()?;
        world.api.delete(&path("etcdbackups", "kept")).await?.ok()?;
        let said = velero.ask("restore").await?;
        ensure!(said["made"] == json!({"ShootState": STATES, "EtcdBackup": 1}), "{said}");
        is_as_before(&kept, &state(&world, "s-000").await?)?;
        is_as_before(&backup_kept, &backup(&world, "kept").await?)?;
        let listed = world.api.get(&collection("default")).await?.ok()?;
        ensure!(listed["items"].as_array().map(Vec::len) == Some(STATES), "not all of them came back");
        let said = velero.ask("restore").await?;
        ensure!(said["there"] == json!({"ShootState": STATES, "EtcdBackup": 1}), "{said}");
        Ok(())
    });
}

async fn discovers(velero: &mut ClientGo) -> Result<()> {
    let known = velero.ask("kinds").await?;
    let expected = json!([
        "core.gardener.cloud/v1alpha1, Resource=shootstates",
        "migration.gardener.cloud/v1alpha1, Resource=etcdbackups",
    ]);
    ensure!(known["kinds"] == expected && known["short"] == "etcdbackups", "{known}");
    let mut preferred: Vec<&str> =
        known["preferred"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    preferred.sort_unstable();
    ensure!(preferred == ["core.gardener.cloud/v1alpha1", "migration.gardener.cloud/v1alpha1"], "{known}");
    let taken = known["taken"].as_array().cloned().unwrap_or_default();
    ensure!(
        ["shootstates", "etcdbackups"].iter().all(|name| taken.contains(&json!(name)))
            && !taken.iter().any(|name| name.as_str().is_some_and(|name| name.contains('/'))),
        "{known}"
    );
    Ok(())
}

/// Many states, and a backup with a status; one state and the backup as they are.
async fn fill(world: &World) -> Result<(Value, Value)> {
    stream::iter(0..STATES)
        .map(async |n| {
            let mut object = small(&format!("s-{n:03}"), &json!({"count": n}));
            object["metadata"]["finalizers"] = json!([]);
            world.api.post(&collection("default"), &object).await?.ok()
        })
        .buffer_unordered(8)
        .try_collect::<Vec<_>>()
        .await?;
    let label = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}});
    world.api.patch(&state_path("s-000"), MERGE_PATCH, &label).await?.ok()?;
    world.create("etcdbackups", &world::backup("kept", "main")).await?;
    let status = json!({"status": {"phase": "Succeeded", "message": "done", "backupName": "n-1"}});
    let path = format!("{}/status", path("etcdbackups", "kept"));
    world.api.patch(&path, MERGE_PATCH, &status).await?.ok()?;
    Ok((state(world, "s-000").await?, backup(world, "kept").await?))
}

/// All is back but what belongs to one life of an object; and there is Velero's label.
fn is_as_before(before: &Value, after: &Value) -> Result<()> {
    ensure!(before["metadata"]["uid"] != after["metadata"]["uid"], "it is the same object");
    ensure!(before["spec"] == after["spec"] && before["status"] == after["status"], "{before} {after}");
    let mut labels = before["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    labels.insert("velero.io/restore-name".into(), json!("restore"));
    ensure!(after["metadata"]["labels"] == json!(labels), "{}", after["metadata"]);
    ensure!(before["metadata"]["annotations"] == after["metadata"]["annotations"], "{}", after["metadata"]);
    let managers = |object: &Value| -> Vec<Value> {
        let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        entries.iter().map(|e| json!([e["manager"], e["operation"], e["subresource"]])).collect()
    };
    for manager in managers(before) {
        ensure!(managers(after).contains(&manager), "{manager} is not a manager in {}", after["metadata"]);
    }
    Ok(())
}
