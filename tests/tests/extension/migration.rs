//! An Infrastructure moves from one API server to another.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use repot_extension::annotations::Requested;
use repot_extension::kinds::Infrastructure;
use repot_extension::request::{Progress, Request, Waiting, has_state, is_released};
use repot_extension::status::{OperationState, OperationType};
use repot_tests::run;
use serde_json::{Value, json};

use super::world::{Cloud, FINALIZER, TERRAFORM, World, hash, shared_seed, start_seed};

const RECONCILE: (&str, &str) = ("gardener.cloud/operation", "reconcile");

/// Gives the object up and deletes it, as a flow does at the source; gives what a ShootState carries.
async fn leave(source: &World, name: &str) -> Result<Value> {
    let request = Request::new(Requested::Migrate, Timestamp::now());
    source.ask(name, &request).await?;
    let object = source.until_done(name, &request).await?;
    ensure!(is_released(&object) && has_state(&object), "it is {object:?}");
    let carried = serde_json::to_value(&object)?["status"]["state"].clone();
    source.confirm_deletion(name).await?;
    source.delete(name).await?;
    source.until_gone(name).await?;
    Ok(carried)
}

/// Creates the object at the destination with the state, as a flow does.
async fn arrive(destination: &World, name: &str, state: &Value) -> Result<Infrastructure> {
    destination.create(name, &[("gardener.cloud/operation", "wait-for-state")]).await?;
    let patch = Patch::Merge(json!({"status": {"state": state}}));
    destination.infrastructures.patch_status(name, &PatchParams::default(), &patch).await?;
    let request = Request::new(Requested::Restore, Timestamp::now());
    destination.ask(name, &request).await?;
    destination.until_done(name, &request).await
}

async fn move_with_state(
    source: &World,
    destination: &World,
    name: &str,
    clouds: [&Arc<Cloud>; 2],
    bytes: &[u8],
) -> Result<()> {
    let [old, new] = clouds;
    let _controllers = [source.start(old), destination.start(new)];
    source.create(name, &[RECONCILE]).await?;
    source.until_last(name, OperationType::Create, OperationState::Succeeded).await?;
    let carried = leave(source, name).await?;
    old.until_calls(&[&format!("reconcile {name}"), &format!("migrate {name}")]).await?;
    ensure!(old.networks() == 1, "the network is gone");

    let object = arrive(destination, name, &carried).await?;
    new.until_calls(&[&format!("restore {name}"), &format!("state {}", hash(bytes))]).await?;
    ensure!(new.networks() == 0, "the destination made a network of its own");
    let status = object.status.as_ref().context("a status")?;
    let state = repot_extension::State::read(status.state.as_ref().context("a state")?)?;
    ensure!(state == Some(repot_extension::State::bytes(bytes)), "the state is {state:?}");
    ensure!(object.finalizers() == [FINALIZER], "its finalizers are {:?}", object.finalizers());
    Ok(())
}

#[test]
fn state_comes_back_byte_for_byte_from_another_api_server() {
    run(async |env| {
        let other = start_seed(env).await?;
        let shared = shared_seed()?;
        let source = World::make(&shared, "state-moves").await?;
        let destination = World::make(&other, "state-moves").await?;
        let text = format!("network 0: {TERRAFORM}").into_bytes();
        let clouds = [&Cloud::new(), &Cloud::new()];
        move_with_state(&source, &destination, "text", clouds, &text).await?;

        let binary: fn(usize) -> Vec<u8> = |_| (0..=255).rev().collect();
        let clouds = [&Cloud::with_state(binary), &Cloud::with_state(binary)];
        move_with_state(&source, &destination, "binary", clouds, &binary(0)).await
    });
}

#[test]
fn nothing_happens_to_an_object_that_waits_for_its_state() {
    run(async |_| {
        let shared = shared_seed()?;
        let world = World::make(&shared, "waits-for-state").await?;
        let cloud = Cloud::new();
        let _controller = world.start(&cloud);
        for key in ["gardener.cloud/operation", "core.gardener.cloud/operation"] {
            let name = key.replace(['.', '/'], "-");
            let created = world.create(&name, &[(key, "wait-for-state")]).await?;
            world.until_quiet(&format!("quiet-{name}")).await?;
            let now = world.get(&name).await?;
            ensure!(now.resource_version() == created.resource_version(), "it became {now:?}");
        }
        ensure!(cloud.calls().iter().all(|call| call.starts_with("reconcile quiet-")), "{:?}", cloud.calls());
        Ok(())
    });
}

#[test]
fn object_without_state_is_restored_by_a_reconciliation() {
    run(async |_| {
        let shared = shared_seed()?;
        let world = World::make(&shared, "restores-nothing").await?;
        let cloud = Cloud::new();
        let _controller = world.start_with(world.settings(), &cloud, false);
        world.create("a", &[("core.gardener.cloud/operation", "restore")]).await?;
        let object = world.until_last("a", OperationType::Restore, OperationState::Succeeded).await?;
        cloud.until_calls(&["reconcile a"]).await?;
        ensure!(!has_state(&object), "it has a state");
        Ok(())
    });
}

#[test]
fn migrated_object_is_left_alone_until_it_is_restored() {
    run(async |_| {
        let shared = shared_seed()?;
        let world = World::make(&shared, "left-alone").await?;
        let cloud = Cloud::new();
        let _controller = world.start(&cloud);
        world.create("a", &[RECONCILE]).await?;
        world.until_last("a", OperationType::Create, OperationState::Succeeded).await?;
        let first = Request::new(Requested::Migrate, Timestamp::now());
        world.ask("a", &first).await?;
        world.until_done("a", &first).await?;

        // A second request must not be satisfied by the first migration.
        let second = Request::new(Requested::Migrate, Timestamp::now());
        let progress = second.progress(&world.get("a").await?);
        ensure!(progress == Progress::Waiting(Waiting::RequestNotVisible), "it is {progress:?}");

        let reconcile = Request::new(Requested::Reconcile, Timestamp::now());
        world.ask("a", &reconcile).await?;
        world.until_quiet("quiet").await?;
        cloud.until_calls(&["reconcile a", "migrate a", "reconcile quiet"]).await?;

        let restore = Request::new(Requested::Restore, Timestamp::now());
        world.ask("a", &restore).await?;
        let object = world.until_done("a", &restore).await?;
        ensure!(object.finalizers() == [FINALIZER], "its finalizers are {:?}", object.finalizers());
        Ok(())
    });
}
