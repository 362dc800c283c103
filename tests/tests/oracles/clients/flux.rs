//! Flux's manager of server-side apply: dry runs, applies, waits, prunes.

use anyhow::{Result, ensure};
use repot_tests::clientgo::ClientGo;
use repot_tests::run;
use serde_json::{Value, json};

use super::{backup, count, managers, state};
use crate::etcd_kinds::world::{World, path};
use crate::shootstate::world::path as state_path;

#[test]
fn flux_compares_applies_waits_and_deletes() {
    run(async |env| {
        let world = World::garden(env).await?;
        let mut flux = ClientGo::library(env, "flux", world.kubectl.kubeconfig())?;
        creates(&world, &mut flux).await?;
        configures(&world, &mut flux).await?;
        corrects(&world, &mut flux).await?;
        deletes(&world, &mut flux).await
    });
}

async fn actions(flux: &mut ClientGo, step: &str, state: &str, backup: &str) -> Result<Value> {
    let said = flux.ask(step).await?;
    let expected = match step {
        "diff" => json!([state, backup]),
        _ => json!({"ShootState/default/flux": state, "EtcdBackup/default/flux": backup}),
    };
    ensure!(said["actions"] == expected, "{step} did {} and not {expected}", said["actions"]);
    Ok(said)
}

/// A dry run leaves nothing behind; what is applied twice is not written twice.
async fn creates(world: &World, flux: &mut ClientGo) -> Result<()> {
    let said = actions(flux, "diff", "created", "created").await?;
    ensure!(said["asked"]["dryRuns"] == 2 && said["asked"]["applies"] == 0, "{said}");
    for path in [state_path("flux"), path("etcdbackups", "flux")] {
        ensure!(world.api.get(&path).await?.status == 404, "the dry run made {path}");
    }
    actions(flux, "apply", "created", "created").await?;
    flux.ask("wait").await?;
    let (state, backup) = (state(world, "flux").await?, backup(world, "flux").await?);
    for object in [&state, &backup] {
        let owners = managers(object, "Apply");
        ensure!(owners == ["kustomize-controller"], "{owners:?}");
        ensure!(object["metadata"]["labels"]["kustomize.toolkit.fluxcd.io/name"] == "app", "{object}");
    }
    actions(flux, "diff", "unchanged", "unchanged").await?;
    actions(flux, "apply", "unchanged", "unchanged").await?;
    ensure!(self::state(world, "flux").await? == state, "an apply without a change wrote");
    Ok(())
}

async fn configures(world: &World, flux: &mut ClientGo) -> Result<()> {
    flux.ask("change").await?;
    actions(flux, "diff", "configured", "unchanged").await?;
    ensure!(*count(&state(world, "flux").await?) == 1, "the dry run wrote");
    actions(flux, "apply", "configured", "unchanged").await?;
    ensure!(*count(&state(world, "flux").await?) == 2, "it was not applied");
    Ok(())
}

/// What somebody changed by hand is found and set right; what Flux does not own stays.
async fn corrects(world: &World, flux: &mut ClientGo) -> Result<()> {
    let change = json!({
        "metadata": {"labels": {"theirs": "stays"}},
        "spec": {"extensions": [{"kind": "Worker", "name": "w", "state": {"count": 9}}]},
    });
    world.api.patch(&state_path("flux"), "application/merge-patch+json", &change).await?.ok()?;
    actions(flux, "diff", "configured", "unchanged").await?;
    actions(flux, "apply", "configured", "unchanged").await?;
    let state = state(world, "flux").await?;
    ensure!(*count(&state) == 2 && state["metadata"]["labels"]["theirs"] == "stays", "{state}");
    Ok(())
}

async fn deletes(world: &World, flux: &mut ClientGo) -> Result<()> {
    actions(flux, "delete", "deleted", "deleted").await?;
    for path in [state_path("flux"), path("etcdbackups", "flux")] {
        ensure!(world.api.get(&path).await?.status == 404, "{path} is left");
    }
    Ok(())
}
