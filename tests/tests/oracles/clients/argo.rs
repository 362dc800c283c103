//! Argo CD's gitops-engine: its cache of a cluster, its diffs, its syncs.

use anyhow::{Result, ensure};
use repot_tests::clientgo::ClientGo;
use repot_tests::run;
use serde_json::{Value, json};

use super::{count, managers, published, state};
use crate::etcd_kinds::world::{World, path};
use crate::shootstate::world::path as state_path;

const MERGE_PATCH: &str = "application/merge-patch+json";

#[test]
fn argo_caches_compares_syncs_and_prunes() {
    run(async |env| {
        let world = World::garden(env).await?;
        let kubeconfig = world.kubectl.kubeconfig();
        published(&world).await?;
        let mut argo = ClientGo::library(env, "argo", kubeconfig)?;
        let known = argo.ask("kinds").await?;
        ensure!(
            known["discovered"] == json!(["EtcdBackup", "ShootState"])
                && known["typed"] == true
                && known["described"] == true,
            "{known}"
        );
        syncs(&world, &mut argo, "sync").await?;
        compares(&world, &mut argo).await?;
        syncs(&world, &mut argo, "server-sync").await?;
        caches(&world, &mut argo).await?;
        prunes(&world, &mut argo).await
    });
}

/// Both targets are made or brought up to date, by kubectl's apply or the server's.
async fn syncs(world: &World, argo: &mut ClientGo, step: &str) -> Result<()> {
    let said = argo.ask(step).await?;
    for kind in ["ShootState", "EtcdBackup"] {
        let result = said["results"][kind].as_str().unwrap_or_default();
        ensure!(result.starts_with("Synced: "), "{kind}: {said}");
    }
    let object = state(world, "argo").await?;
    match step {
        "sync" => {
            let last = &object["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"];
            ensure!(last.is_string(), "{}", object["metadata"]);
        }
        _ => {
            let owners = managers(&object, "Apply");
            ensure!(owners == ["argocd-controller"] && *count(&object) == 2, "{owners:?} {object}");
        }
    }
    Ok(())
}

/// Nothing differs after a sync, and a new commit does, by either sort of diff; none of them writes.
async fn compares(world: &World, argo: &mut ClientGo) -> Result<()> {
    let before = state(world, "argo").await?;
    for step in ["diff", "server-diff"] {
        let said = argo.ask(step).await?;
        ensure!(said["modified"] == false, "{step} after a sync: {said}");
    }
    argo.ask("change").await?;
    for step in ["diff", "server-diff"] {
        let said = argo.ask(step).await?;
        let predicted: Value = serde_json::from_str(said["predicted"].as_str().unwrap_or_default())?;
        ensure!(said["modified"] == true && *count(&predicted) == 2, "{step} of a new commit: {said}");
    }
    ensure!(state(world, "argo").await? == before, "a diff wrote");
    Ok(())
}

/// A change by somebody else comes into the cache by its watch.
async fn caches(world: &World, argo: &mut ClientGo) -> Result<()> {
    let change = json!({"metadata": {"labels": {"theirs": "stays"}}});
    world.api.patch(&state_path("argo"), MERGE_PATCH, &change).await?.ok()?;
    let live = argo.ask("cached").await?["live"].clone();
    let served = state(world, "argo").await?;
    ensure!(live["metadata"]["resourceVersion"] == served["metadata"]["resourceVersion"], "{live}");
    ensure!(live["metadata"]["labels"]["theirs"] == "stays" && live["spec"] == served["spec"], "{live}");
    Ok(())
}

/// What is no longer in the commit is being deleted.
async fn prunes(world: &World, argo: &mut ClientGo) -> Result<()> {
    argo.ask("drop").await?;
    let said = argo.ask("server-sync").await?;
    let result = said["results"]["EtcdBackup"].as_str().unwrap_or_default();
    ensure!(result.starts_with("Pruned: "), "{said}");
    // It prunes in the foreground: the garbage collector, which this garden has not, takes the last step.
    let left = world.api.get(&path("etcdbackups", "argo")).await?.ok()?;
    ensure!(left["metadata"]["deletionTimestamp"].is_string(), "the backup is not being deleted: {left}");
    ensure!(left["metadata"]["finalizers"] == json!(["foregroundDeletion"]), "{left}");
    ensure!(state(world, "argo").await?["metadata"]["labels"]["theirs"] == "stays", "what stays, stays");
    ensure!(said["asked"]["failures"] == 0, "{said}");
    Ok(())
}
