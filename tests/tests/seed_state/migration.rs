//! While a Shoot moves nothing is removed, and a seed that has lost the Shoot writes nothing.

use anyhow::ensure;
use repot_controllers::shootstate::State;
use repot_tests::run;
use repot_tests::wait::until;
use serde_json::json;

use super::controller::machine_names;
use super::world::{DEADLINE, World, infrastructure, machines, secret};

fn names(state: &State) -> Vec<&str> {
    state.secrets.iter().map(|entry| entry.name.as_str()).collect()
}

#[test]
fn moving_shoot_keeps_what_its_source_loses() {
    run(async |_| {
        let world = World::make("move").await?;
        world.apply(&[secret("ca", &json!({})), secret("ssh", &json!({}))]).await?;
        world.apply(&[infrastructure("infra", &json!({}))]).await?;
        world.set_extension_status("infrastructures", "infra", &json!({"state": {"a": 1}})).await?;
        world.apply(&machines(2, &["m-1", "m-2"])).await?;
        let running = world.start()?;
        world
            .until_state("all", |state| {
                state.secrets.len() == 2
                    && machine_names(state.machines.as_ref()).len() == 2
                    && state.extensions.len() == 1
            })
            .await?;

        world.set_spec(&json!({"seedName": "elsewhere"})).await?;
        world.set_status(&json!({"lastOperation": {"type": "Migrate", "state": "Processing"}})).await?;
        until("the finalizer", DEADLINE, async || {
            let stored = world.stored().await?;
            ensure!(
                stored["metadata"]["finalizers"] == json!(["core.gardener.cloud/shootstate"]),
                "{}",
                stored["metadata"]
            );
            Ok(())
        })
        .await?;
        world.delete("secrets", "ssh").await?;
        world.delete("infrastructures.extensions.gardener.cloud", "infra").await?;
        world.delete("machines.machine.sapcloud.io", "m-1").await?;
        running.until_marker(&world, "marker-1").await?;
        world.delete("machines.machine.sapcloud.io", "m-2").await?;
        world.delete("machinesets.machine.sapcloud.io", "set").await?;
        world.delete("machinedeployments.machine.sapcloud.io", "pool").await?;
        running.until_marker(&world, "marker-2").await?;
        let state = world.state().await?;
        ensure!(names(&state) == ["ca", "ssh", "marker-1", "marker-2"], "{:?}", names(&state));
        ensure!(state.extensions.len() == 1, "{state:?}");
        ensure!(machine_names(state.machines.as_ref()) == ["m-1", "m-2"], "{state:?}");
        running.stop().await
    });
}

#[test]
fn seed_without_the_shoot_writes_nothing() {
    run(async |_| {
        let world = World::make("stale").await?;
        world.apply(&[secret("ca", &json!({}))]).await?;
        let running = world.start()?;
        world.until_state("the secret", |state| state.secrets.len() == 1).await?;
        world.set_spec(&json!({"seedName": "elsewhere"})).await?;
        world.set_status(&json!({"seedName": "elsewhere"})).await?;
        let before = running.until_quiet(&world).await?;
        world.writes.take();
        world.apply(&[secret("late", &json!({}))]).await?;
        running.until_looked(&world, before).await?;
        ensure!(world.writes.take().is_empty(), "{:?}", world.stored().await);
        ensure!(names(&world.state().await?) == ["ca"]);
        // Back again, and being restored: nothing until that has succeeded.
        let restore = json!({"type": "Restore", "state": "Processing"});
        world.set_spec(&json!({"seedName": world.seed_name})).await?;
        world.set_status(&json!({"seedName": world.seed_name, "lastOperation": restore})).await?;
        let before = running.until_quiet(&world).await?;
        world.apply(&[secret("later", &json!({}))]).await?;
        running.until_looked(&world, before).await?;
        ensure!(world.writes.take().is_empty(), "{:?}", world.stored().await);
        world.set_status(&json!({"lastOperation": {"type": "Restore", "state": "Succeeded"}})).await?;
        world.until_state("both", |state| state.secrets.len() == 3).await?;
        running.stop().await
    });
}
