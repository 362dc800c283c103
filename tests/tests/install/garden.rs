//! The chart of the garden, from the first install to the last word of uninstall.

use anyhow::{Result, ensure};
use repot_tests::install::{NAMESPACE, World};
use repot_tests::run;

const RELEASE: &str = "repot-garden";
const API: &str = "v1alpha1.core.gardener.cloud";

/// Small, and quick to end.
const VALUES: [&str; 3] = [
    "--set=storage.embedded.size=1Gi",
    "--set=apiserver.watchTerminationSeconds=1",
    "--set=storage.embedded.storageClassName=standard",
];

#[test]
fn shootstate_outlives_upgrade_rollback_uninstall_and_another_install() {
    run(async |env| {
        let world = World::start(env, 2).await?;
        world.apply_gardener_kinds().await?;
        world.deploy("install", RELEASE, &VALUES).await?;
        world.until_available(API).await?;
        let state = world.write(
            "state.yaml",
            "apiVersion: core.gardener.cloud/v1alpha1\nkind: ShootState\nmetadata: {name: one, namespace: default}\nspec: {gardener: [{name: a, type: secret, data: {k: dg==}}]}\n",
        )?;
        world.kubectl(&["create", "-f", &state]).await?;
        let said = world.helm(&["test", RELEASE, "--timeout=60s"]).await?;
        ensure!(said.contains("Phase:          Succeeded"), "{said}");
        // A collector that is not there keeps nobody from starting.
        let changed = [
            "--set=logLevel=debug",
            "--set=tracing.config.endpoint=localhost:4317",
            "--set=apiserver.profiling=false",
        ];
        let more = [&VALUES[..], &changed].concat();
        world.deploy("upgrade", RELEASE, &more).await?;
        holds_state(&world).await?;
        world.helm(&["rollback", RELEASE, "1", "--wait", "--timeout=180s"]).await?;
        holds_state(&world).await?;
        let said = world.helm(&["uninstall", RELEASE, "--wait"]).await?;
        ensure!(said.contains("uninstalled"), "{said}");
        for kept in ["secret/repot-encryption", "secret/repot-authorities", "pvc/data-repot-apiserver-0"] {
            world.kubectl(&["get", kept, "-n", NAMESPACE]).await?;
        }
        world.deploy("install", RELEASE, &VALUES).await?;
        holds_state(&world).await
    });
}

async fn holds_state(world: &World<'_>) -> Result<()> {
    world.until_available(API).await?;
    let state = world
        .kubectl(&["get", "shootstates.core.gardener.cloud", "one", "-n", "default", "-o", "json"])
        .await?;
    ensure!(state.contains("\"k\": \"dg==\""), "{state}");
    Ok(())
}
