//! Isolations that are called off, of zones that nobody knows, and of zones where machines are just being created.

use anyhow::{Context as _, Result, ensure};
use repot_tests::landscape::{DEADLINE, extensions};
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::{ISOLATIONS, MACHINES, MERGE, ZONE, annotate, in_three_zones, last, machines, until_shown};
use crate::migration::story;
use crate::migration::world::{SEEDS, World, run};

/// The steps on the way to an isolated zone that take time.
const STEPS: [&str; 4] = ["NodesCordoned", "WorkerUpdated", "MachinesGone", "SubnetIsolated"];
const CONFIRM: &str = "confirmation.gardener.cloud/isolated-zone";

#[test]
#[ignore = "minutes, in make soak"]
fn isolation_that_is_called_off_in_any_step_while_controllers_are_killed_leaves_everything_as_before() {
    run(async |env| {
        let world = World::create(env, "calledoff", in_three_zones()).await?;
        let healthy = |all: &std::collections::BTreeSet<(String, String)>| -> Vec<(String, String)> {
            all.iter().filter(|(_, zone)| zone != "z2").cloned().collect()
        };
        let before = machines(&world).await?;
        for (number, step) in (1..).zip(STEPS) {
            annotate(&world, &json!(ZONE.0)).await?;
            until_started(&world, number, step).await?;
            world.kill_controllers().await?;
            annotate(&world, &Value::Null).await?;
            until_shown(&world, ("Failback", "Done"))
                .await
                .with_context(|| format!("called off in {step}"))?;
            let after = until(&format!("machines as before {step}"), DEADLINE, async || {
                let after = machines(&world).await?;
                let in_zone = after.iter().filter(|(_, zone)| zone == "z2").count();
                ensure!(after.len() == 3 && in_zone == 1, "{after:?}");
                Ok(after)
            })
            .await?;
            ensure!(healthy(&before) == healthy(&after), "{step}: before {before:?}, after {after:?}");
            ensure_unmarked(&world).await.with_context(|| format!("called off in {step}"))?;
            until_thawed(&world).await?;
        }
        world.stop(SEEDS.0).await
    });
}

#[test]
#[ignore = "minutes, in make soak"]
fn zone_that_nobody_knows_changes_nothing_and_machines_that_are_being_created_leave_with_the_others() {
    run(async |env| {
        let world = World::create(env, "unknown", in_three_zones()).await?;
        let before = machines(&world).await?;
        let nobody_knows = json!("local2-eu-9z");
        let garden = story::garden_of(&world)?.cluster.api();
        let confirmed = json!({"metadata": {"annotations": {CONFIRM: nobody_knows}}});
        garden.patch(&story::shoot_path(&world), MERGE, &confirmed).await?.ok()?;
        annotate(&world, &nobody_knows).await?;
        until("the isolation to say what it waits for", DEADLINE, async || {
            let found = &last(&world).await?["status"];
            ensure!(found["message"].as_str().is_some_and(|text| text.starts_with("ZoneKnown: ")), "{found}");
            Ok(())
        })
        .await?;
        ensure_unmarked(&world).await?;
        ensure!(machines(&world).await? == before, "machines have changed");
        annotate(&world, &Value::Null).await?;
        until_shown(&world, ("Failback", "Done")).await?;

        grow(&world, 6).await?;
        annotate(&world, &json!(ZONE.0)).await?;
        until_shown(&world, ("Failover", "Done")).await?;
        until("six machines in two zones", DEADLINE, async || {
            let all = machines(&world).await?;
            ensure!(all.len() == 6 && all.iter().all(|(_, zone)| zone != "z2"), "{all:?}");
            Ok(())
        })
        .await?;
        let vms = world.landscape.cloud.client().vms_of(&world.name().technical_id()).await?;
        ensure!(vms.iter().all(|vm| vm.zone != ZONE.1), "VMs are in the zone: {vms:?}");
        world.stop(SEEDS.0).await
    });
}

#[test]
#[ignore = "minutes, in make soak"]
fn provider_that_never_answers_is_shown_as_failed_and_a_lost_subnet_isolation_is_made_again() {
    run(async |env| {
        let world = World::create(env, "silent", in_three_zones()).await?;
        let before = machines(&world).await?;
        let seed = world.landscape.seed(SEEDS.0)?;
        seed.stop_providers();
        create(&world, "silent-1").await?;
        until_shown(&world, ("Failover", "Failed")).await?;
        ensure!(
            last(&world).await?["status"]["reason"] == "WorkerPending",
            "{}",
            last(&world).await?["status"]
        );
        ensure!(machines(&world).await? == before, "machines have changed");
        annotate(&world, &Value::Null).await?;
        until_shown(&world, ("Failback", "Failed")).await?;
        seed.start_providers();
        until_shown(&world, ("Failback", "Done")).await?;
        ensure!(machines(&world).await? == before, "machines have changed");
        ensure_unmarked(&world).await?;

        create(&world, "silent-2").await?;
        until_shown(&world, ("Failover", "Done")).await?;
        let lost = lose_subnet_isolation(&world).await?;
        until("another SubnetIsolation to be ready", DEADLINE, async || {
            let found = seed.cluster.api().get(&subnet_path(&world)).await?.ok()?;
            let is_ready = found["status"]["lastOperation"]["state"] == "Succeeded";
            ensure!(found["metadata"]["uid"] != lost && is_ready, "{found}");
            Ok(())
        })
        .await?;
        let cluster = world.name().technical_id();
        let cut_off = world.landscape.providers.networks.isolated_of(&cluster);
        ensure!(cut_off.as_deref() == Some(ZONE.1), "cut off: {cut_off:?}");
        annotate(&world, &Value::Null).await?;
        until_shown(&world, ("Failback", "Done")).await?;
        ensure_unmarked(&world).await?;
        world.stop(SEEDS.0).await
    });
}

/// A ZoneIsolation whose steps are shown as failed soon.
async fn create(world: &World, name: &str) -> Result<()> {
    let object = json!({
        "apiVersion": "migration.gardener.cloud/v1alpha1", "kind": "ZoneIsolation", "metadata": {"name": name},
        "spec": {"shootRef": {"name": world.name().name}, "isolatedZoneID": ZONE.0, "stepTimeout": "15s"},
    });
    let all = format!("{ISOLATIONS}/{}/zoneisolations", world.name().project_namespace());
    story::garden_of(world)?.cluster.api().post(&all, &object).await?.ok().map(drop)
}

fn subnet_path(world: &World) -> String {
    extensions::path(&world.shoot.control_plane, "SubnetIsolation", "isolated-zone")
}

/// Removes it behind the back of its controller, and gives its UID.
async fn lose_subnet_isolation(world: &World) -> Result<Value> {
    let seed = world.landscape.seed(SEEDS.0)?;
    seed.stop_providers();
    let api = seed.cluster.api();
    let found = api.get(&subnet_path(world)).await?.ok()?;
    api.patch(&subnet_path(world), MERGE, &json!({"metadata": {"finalizers": null}})).await?.ok()?;
    api.delete(&subnet_path(world)).await?.ok()?;
    seed.start_providers();
    Ok(found["metadata"]["uid"].clone())
}

/// Waits until a step of the isolation of that number has begun.
async fn until_started(world: &World, number: u32, step: &str) -> Result<()> {
    until(&format!("{step} to begin"), 2 * DEADLINE, async || {
        let found = last(world).await?;
        let name = found["metadata"]["name"].as_str().unwrap_or_default();
        ensure!(name.ends_with(&format!("-{number}")), "the last one is {name}");
        let mut steps = found["status"]["seed"]["steps"].as_array().into_iter().flatten();
        let record = steps.find(|record| record["name"] == step);
        ensure!(
            record.is_some_and(|record| !record["startTime"].is_null()),
            "{}",
            found["status"]["message"]
        );
        Ok(())
    })
    .await
}

/// machine-controller-manager makes no machines for minutes in a zone where they come and go as often as here.
async fn until_thawed(world: &World) -> Result<()> {
    let path = format!("{MACHINES}/{}/machinesets", world.name().technical_id());
    let api = world.landscape.seed(SEEDS.0)?.cluster.api();
    until("no MachineSet to be frozen", 2 * DEADLINE, async || {
        let all = api.get(&path).await?.ok()?;
        let frozen = |one: &&Value| !one["metadata"]["labels"]["freeze"].is_null();
        let mut frozen = all["items"].as_array().into_iter().flatten().filter(frozen);
        ensure!(frozen.next().is_none(), "one is frozen");
        Ok(())
    })
    .await
}

/// The Worker leaves no zone out, no node is cordoned, and no networks are cut off.
async fn ensure_unmarked(world: &World) -> Result<()> {
    let plane = &world.shoot.control_plane;
    let worker = extensions::read(plane, world.landscape.seed(SEEDS.0)?, "Worker", &plane.shoot.name).await?;
    ensure!(worker["spec"]["isolatedZoneID"].is_null(), "{}", worker["spec"]);
    let annotations = &worker["metadata"]["annotations"];
    for end in ["isolated-zone-id", "isolated-zone-code", "isolated-since"] {
        ensure!(annotations[format!("migration.gardener.cloud/{end}")].is_null(), "{annotations}");
    }
    let nodes = world.api()?.get("/api/v1/nodes").await?.ok()?;
    let mut nodes = nodes["items"].as_array().into_iter().flatten();
    ensure!(nodes.all(|node| node["spec"]["unschedulable"] != true), "a node is cordoned");
    let networks = &world.landscape.providers.networks;
    ensure!(networks.isolated_of(&plane.shoot.technical_id()).is_none(), "the networks are cut off");
    Ok(())
}

/// As a gardenlet does that lets a pool grow; nobody waits for the machines.
async fn grow(world: &World, number: u32) -> Result<()> {
    let plane = &world.shoot.control_plane;
    let seed = world.landscape.seed(SEEDS.0)?;
    let worker = extensions::read(plane, seed, "Worker", &plane.shoot.name).await?;
    let mut pools = worker["spec"]["pools"].clone();
    (pools[0]["minimum"], pools[0]["maximum"]) = (number.into(), number.into());
    let reconcile = json!({"gardener.cloud/operation": "reconcile"});
    let patch = json!({"metadata": {"annotations": reconcile}, "spec": {"pools": pools}});
    let path = extensions::path(plane, "Worker", &plane.shoot.name);
    seed.cluster.api().patch(&path, MERGE, &patch).await?.ok()?;
    until("new machines to be wanted", DEADLINE, async || {
        let all = machines(world).await?;
        ensure!(all.len() > 3, "{all:?}");
        Ok(())
    })
    .await
}
