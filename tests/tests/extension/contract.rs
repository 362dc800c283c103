//! What wakes a controller, what stops it, and what people see.

use anyhow::{Result, ensure};
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use repot_extension::annotations::Requested;
use repot_extension::request::Request;
use repot_extension::status::{OperationState, OperationType};
use repot_tests::run;
use serde_json::json;

use super::world::{Cloud, World, cluster, shared_seed};

const RECONCILE: (&str, &str) = ("gardener.cloud/operation", "reconcile");

async fn set_region(world: &World, name: &str, region: &str) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"region": region}}));
    world.infrastructures.patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

#[test]
fn nothing_happens_to_an_object_that_is_up_to_date() {
    run(async |_| {
        let shared = shared_seed()?;
        let world = World::make(&shared, "up-to-date").await?;
        let cloud = Cloud::new();
        let first = world.start(&cloud);
        world.create("a", &[RECONCILE]).await?;
        let done = world.until_last("a", OperationType::Create, OperationState::Succeeded).await?;
        world.until_quiet("quiet-1").await?;
        first.kill().await?;
        let _second = world.start(&cloud);
        world.until_quiet("quiet-2").await?;
        let now = world.get("a").await?;
        ensure!(now.resource_version() == done.resource_version(), "it became {now:?}");
        cloud.until_calls(&["reconcile a", "reconcile quiet-1", "reconcile quiet-2"]).await?;

        set_region(&world, "a", "other").await?;
        let changed = world.until_last("a", OperationType::Reconcile, OperationState::Succeeded).await?;
        ensure!(changed.metadata.generation == Some(2), "it is {changed:?}");
        ensure!(changed.status.is_some_and(|status| status.observed_generation == 2), "it was not observed");
        Ok(())
    });
}

#[test]
fn generation_alone_wakes_no_controller_that_waits_for_annotations() {
    run(async |_| {
        let shared = shared_seed()?;
        let world = World::make(&shared, "annotation-only").await?;
        let cloud = Cloud::new();
        let mut settings = world.settings();
        settings.trigger = repot_extension::decide::Trigger::Annotation;
        let _controller = world.start_with(settings, &cloud, true);
        world.create("a", &[RECONCILE]).await?;
        world.until_last("a", OperationType::Create, OperationState::Succeeded).await?;
        set_region(&world, "a", "other").await?;
        world.until_quiet("quiet").await?;
        cloud.until_calls(&["reconcile a", "reconcile quiet"]).await?;
        let request = Request::new(Requested::Reconcile, Timestamp::now());
        world.ask("a", &request).await?;
        world.until_done("a", &request).await.map(drop)
    });
}

#[test]
fn failed_shoot_stops_every_operation_and_an_ignored_one_none() {
    run(async |_| {
        let seed = shared_seed()?;
        let world = World::make(&seed, "failed-shoot").await?;
        let cloud = Cloud::new();
        let _controller = world.start(&cloud);
        world.create("a", &[RECONCILE]).await?;
        world.until_last("a", OperationType::Create, OperationState::Succeeded).await?;

        seed.apply(&[cluster(world.name, "Failed")]).await?;
        let request = Request::new(Requested::Reconcile, Timestamp::now());
        world.ask("a", &request).await?;
        let before = world.get("a").await?;
        // An object of the same controller, whose Shoot has not failed.
        let other = World::make_of_type(&seed, "failed-shoot-other", world.name).await?;
        other.until_quiet("quiet").await?;
        cloud.until_calls(&["reconcile a", "reconcile quiet"]).await?;
        let now = world.get("a").await?;
        ensure!(now.resource_version() == before.resource_version(), "it became {now:?}");

        seed.apply(&[cluster(world.name, "Processing")]).await?;
        let request = Request::new(Requested::Reconcile, Timestamp::now());
        world.ask("a", &request).await?;
        world.until_done("a", &request).await.map(drop)
    });
}

#[test]
fn objects_of_other_types_and_classes_are_left_alone() {
    run(async |_| {
        let seed = shared_seed()?;
        let world = World::make(&seed, "foreign").await?;
        let object = |name: &str, spec: serde_json::Value| {
            json!({
                "apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "Infrastructure", "spec": spec,
                "metadata": {"name": name, "namespace": "foreign", "annotations": {RECONCILE.0: RECONCILE.1}},
            })
        };
        let other = json!({"type": "other", "region": "r", "secretRef": {}});
        let class = json!({"type": "foreign", "class": "seed", "region": "r", "secretRef": {}});
        seed.apply(&[object("type", other), object("class", class)]).await?;
        let cloud = Cloud::new();
        let _controller = world.start(&cloud);
        world.until_quiet("quiet").await?;
        cloud.until_calls(&["reconcile quiet"]).await
    });
}

#[test]
fn columns_are_those_of_gardener() {
    run(async |_| {
        let seed = shared_seed()?;
        let world = World::make(&seed, "columns").await?;
        let cloud = Cloud::new();
        let _controller = world.start(&cloud);
        world.until_quiet("quiet").await?;
        let shown = seed.kubectl(["get", "infra", "-n", "columns"]).await?.text()?;
        let rows: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        ensure!(rows[0] == ["NAME", "TYPE", "REGION", "STATUS", "AGE"], "{shown}");
        ensure!(rows[1][..4] == ["quiet", "columns", "r", "Succeeded"], "{shown}");
        let object = world.get("quiet").await?;
        ensure!(object.finalizers().len() == 1, "its finalizers are {:?}", object.finalizers());
        Ok(())
    });
}
