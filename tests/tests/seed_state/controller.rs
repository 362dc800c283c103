//! The controller: what it writes first, what it writes after a change, and what not after a restart.

use anyhow::{Context as _, ensure};
use http::Method;
use repot_controllers::shootstate::machines::MachineState;
use repot_controllers::shootstate::secrets;
use repot_tests::run;
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::world::{DEADLINE, World, infrastructure, machines, secret};

/// Machines of a state, by name.
pub fn machine_names(entry: Option<&repot_controllers::shootstate::model::GardenerEntry>) -> Vec<String> {
    let state = entry.and_then(|entry| MachineState::read(entry).ok()).unwrap_or_default();
    let all = state.machine_deployments.values().flat_map(|pool| &pool.machines);
    let name = |machine: &repot_extension::RawJson| {
        let machine: Value = machine.decode().unwrap_or_default();
        machine["metadata"]["name"].as_str().unwrap_or_default().to_owned()
    };
    all.map(name).collect()
}

#[test]
fn everything_that_survives_is_written_once() {
    run(async |_| {
        let world = World::make("first").await?;
        let mut ca = secret("ca", &json!({"ca.crt": "AAE=", "ca.key": "/w=="}));
        ca["immutable"] = true.into();
        let other = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "other"}, "data": {"k": "AA=="},
        });
        let referenced = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tf"}, "data": {"k": "v"},
        });
        world.apply(&[ca, other, referenced, infrastructure("infra", &json!({}))]).await?;
        world.apply(&machines(2, &["m-1", "m-2"])).await?;
        let reference =
            json!({"name": "tf", "resourceRef": {"apiVersion": "v1", "kind": "ConfigMap", "name": "tf"}});
        let state = json!({"z": 1, "a": {"b": [1, 2.5, "ü"]}});
        world
            .set_extension_status(
                "infrastructures",
                "infra",
                &json!({"state": state, "resources": [reference]}),
            )
            .await?;

        let running = world.start()?;
        let state_found = world.until_state("all entries", |state| state.resources.len() == 1).await?;
        ensure!(state_found.secrets.len() == 1, "{state_found:?}");
        let content = secrets::content(&state_found.secrets[0])?;
        ensure!(content.data["ca.key"] == "/w==" && content.immutable == Some(true), "{content:?}");
        ensure!(state_found.secrets[0].labels["managed-by"] == "secrets-manager");
        ensure!(machine_names(state_found.machines.as_ref()) == ["m-1", "m-2"], "{state_found:?}");
        let extension = &state_found.extensions[0];
        let found: Value = extension.state.as_ref().context("a state")?.decode()?;
        ensure!((extension.kind.as_str(), &found) == ("Infrastructure", &state), "{found}");
        let carried: Value = state_found.resources[0].data.decode()?;
        ensure!(
            carried["data"] == json!({"k": "v"}) && carried["metadata"] == json!({"name": "tf"}),
            "{carried}"
        );

        let stored = world.stored().await?;
        let metadata = &stored["metadata"];
        let owner = json!([{
            "apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot", "name": "s", "uid": world.shoot.uid,
            "controller": true, "blockOwnerDeletion": true,
        }]);
        ensure!(metadata["ownerReferences"] == owner, "{metadata}");
        ensure!(metadata["annotations"]["gardener.cloud/timestamp"].is_string(), "{metadata}");
        ensure!(metadata.get("finalizers").is_none(), "{metadata}");

        // A restart writes nothing; the new controller reads and compares everything.
        running.stop().await?;
        world.writes.take();
        let running = world.start()?;
        running.until_looked(&world, world.writes.looks()).await?;
        ensure!(world.writes.take().is_empty(), "{:?}", world.stored().await);
        ensure!(world.stored().await? == stored);
        running.until_marker(&world, "marker").await?;
        let writes = world.writes.take();
        ensure!(writes.len() == 1 && writes[0].method == Method::PATCH, "{writes:?}");
        running.stop().await
    });
}

#[test]
fn change_of_one_secret_writes_one_entry() {
    run(async |_| {
        let world = World::make("one").await?;
        world.apply(&[secret("ca", &json!({"k": "AA=="})), secret("ssh", &json!({"k": "AA=="}))]).await?;
        world.apply(&[infrastructure("infra", &json!({}))]).await?;
        let state = json!({"payload": "x".repeat(1 << 20)});
        world.set_extension_status("infrastructures", "infra", &json!({"state": state})).await?;
        let running = world.start()?;
        world.until_state("all", |state| state.secrets.len() == 2 && state.extensions.len() == 1).await?;
        let before = world.stored().await?;
        world.writes.take();
        world.apply(&[secret("ssh", &json!({"k": "AQ=="}))]).await?;
        let changed = |name: &str| {
            let name = name.to_owned();
            move |state: &repot_controllers::shootstate::State| {
                let entry = state.secrets.iter().find(|entry| entry.name == name);
                entry.is_some_and(|entry| entry.data.get().contains("AQ=="))
            }
        };
        world.until_state("the new value", changed("ssh")).await?;
        let writes = world.writes.take();
        ensure!(writes.len() == 1 && writes[0].bytes < 2048, "{writes:?}");
        let after = world.stored().await?;
        for path in ["/spec/extensions", "/spec/gardener/0"] {
            ensure!(after.pointer(path) == before.pointer(path), "{path} has changed");
        }
        running.stop().await
    });
}

#[test]
fn changed_reference_and_removed_entries_are_written() {
    run(async |_| {
        let world = World::make("reference").await?;
        let config = |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tf"}, "data": {"k": value}});
        world.apply(&[secret("ca", &json!({})), secret("old", &json!({})), config("1")]).await?;
        world.apply(&[infrastructure("infra", &json!({}))]).await?;
        let reference =
            json!({"name": "tf", "resourceRef": {"apiVersion": "v1", "kind": "ConfigMap", "name": "tf"}});
        world.set_extension_status("infrastructures", "infra", &json!({"resources": [reference]})).await?;
        let running = world.start()?;
        world.until_state("the reference", |state| state.resources.len() == 1).await?;
        world.apply(&[config("2")]).await?;
        let is_new = |state: &repot_controllers::shootstate::State| {
            state.resources.iter().any(|entry| entry.data.get().contains(r#""k":"2""#))
        };
        world.until_state("the new object", is_new).await?;
        world.delete("secrets", "old").await?;
        world.until_state("one secret", |state| state.secrets.len() == 1).await?;
        running.stop().await
    });
}

#[test]
fn failure_is_an_event_on_the_shoot() {
    run(async |_| {
        let world = World::make("failure").await?;
        world.apply(&[secret("ca", &json!({})), infrastructure("infra", &json!({}))]).await?;
        let reference =
            json!({"name": "x", "resourceRef": {"apiVersion": "v1", "kind": "Secret", "name": "missing"}});
        world.set_extension_status("infrastructures", "infra", &json!({"resources": [reference]})).await?;
        let running = world.start()?;
        let path = format!("/apis/events.k8s.io/v1/namespaces/{}/events", world.shoot.namespace);
        let event = until("an Event", DEADLINE, async || {
            let events = world.garden_api.get(&path).await?.ok()?;
            let found = events["items"].as_array().and_then(|items| items.first()).cloned();
            found.context("there is none")
        })
        .await?;
        ensure!(
            event["reason"] == "ShootStateSyncFailed" && event["regarding"]["kind"] == "Shoot",
            "{event}"
        );
        let note = event["note"].as_str().unwrap_or_default();
        ensure!(note.contains("Infrastructure infra refers to Secret missing"), "{note}");
        // It goes on by itself once the object is there.
        let missing = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "missing"}});
        world.apply(&[missing]).await?;
        world.until_state("the reference", |state| state.resources.len() == 1).await?;
        running.stop().await
    });
}
