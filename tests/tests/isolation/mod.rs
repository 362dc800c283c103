//! A zone of a Shoot is isolated, by real controllers: machines go to other zones, by the real machine-controller-manager, and come back.

mod deletion;
mod faults;
mod many;
mod workload;
mod writers;
mod zonal_etcd;

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use repot_tests::landscape::isolations::{
    ANNOTATION, ISOLATIONS, MACHINES, ZONE, ZONES, annotate, in_three_zones, last, machines, try_annotate,
    until_shown,
};
use repot_tests::landscape::{DEADLINE, extensions};
use repot_tests::wait::until;
use serde_json::{Value, json};

use crate::migration::story;
use crate::migration::world::{SEEDS, World, run};

const MERGE: &str = "application/merge-patch+json";

#[test]
#[ignore = "minutes, in make soak"]
fn zone_is_left_and_used_again_and_no_machine_of_another_zone_ends() {
    run(async |env| {
        let world = World::create(env, "zonal", in_three_zones()).await?;
        leave_and_use_again(&world).await?;
        world.stop(SEEDS.0).await
    });
}

/// gardenlet installs a kind Worker of its own, whose API server drops the fields of GEP-21.
#[test]
#[ignore = "minutes, in make soak"]
fn zone_is_left_and_used_again_where_the_kind_of_workers_has_no_field_for_it() {
    run(async |env| {
        let world = World::create(env, "dropped", in_three_zones()).await?;
        let seed = &world.landscape.seed(SEEDS.0)?.cluster;
        let workers =
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/workers.extensions.gardener.cloud";
        let former = seed.api().get(workers).await?.ok()?;
        let properties = "/spec/versions/0/schema/openAPIV3Schema/properties";
        let fields = ["spec/properties/isolatedZoneID", "status/properties/isolatedZoneCode"];
        let patch = fields.map(|field| json!({"op": "remove", "path": format!("{properties}/{field}")}));
        seed.api().patch(workers, "application/json-patch+json", &json!(patch)).await?.ok()?;
        let plane = &world.shoot.control_plane;
        let worker = extensions::path(plane, "Worker", &plane.shoot.name);
        until("the field to be dropped", DEADLINE, async || {
            let field = json!({"spec": {"isolatedZoneID": ZONE.0}});
            let tried = seed.api().patch(&format!("{worker}?dryRun=All"), MERGE, &field).await?.ok()?;
            ensure!(tried["spec"]["isolatedZoneID"].is_null(), "{}", tried["spec"]);
            Ok(())
        })
        .await?;
        leave_and_use_again(&world).await?;
        let schema = json!([{"op": "replace", "path": properties, "value": former.pointer(properties)}]);
        seed.api().patch(workers, "application/json-patch+json", &schema).await?.ok()?;
        world.stop(SEEDS.0).await
    });
}

async fn leave_and_use_again(world: &World) -> Result<()> {
    let before = machines(world).await?;
    ensure!(before.len() == 3, "{before:?}");
    annotate(world, &json!(ZONE.0)).await?;
    until_shown(world, ("Failover", "Done")).await?;
    let during = machines(world).await?;
    let others = |all: &BTreeSet<(String, String)>| -> BTreeSet<String> {
        all.iter().filter(|(_, zone)| zone != "z2").map(|(name, _)| name.clone()).collect()
    };
    ensure!(during.iter().all(|(_, zone)| zone != "z2"), "machines are in the zone: {during:?}");
    ensure!(during.len() == 3, "{during:?}");
    ensure!(others(&before).is_subset(&others(&during)), "before {before:?}, after {during:?}");
    let cluster = world.name().technical_id();
    let networks = &world.landscape.providers.networks;
    ensure!(networks.isolated_of(&cluster).as_deref() == Some(ZONE.1), "the networks are not cut off");
    ensure_one_zone_at_once(world).await?;

    annotate(world, &Value::Null).await?;
    until_shown(world, ("Failback", "Done")).await?;
    ensure!(networks.isolated_of(&cluster).is_none(), "the networks are cut off");
    let after = until("machines as before", DEADLINE, async || {
        let after = machines(world).await?;
        ensure!(after.len() == 3 && after.iter().any(|(_, zone)| zone == "z2"), "{after:?}");
        Ok(after)
    })
    .await?;
    // Machines that came in place of those of the zone end again, and no other one does.
    ensure!(others(&after) == others(&before), "before {before:?}, {during:?}, after {after:?}");
    Ok(())
}

/// A second zone is refused, by its annotation and by a ZoneIsolation, and changes nothing.
async fn ensure_one_zone_at_once(world: &World) -> Result<()> {
    let (other, name) = ("local-eu-1c", format!("0-second-of-{}", world.name().name));
    let answer = try_annotate(world, &json!(other)).await?;
    ensure!(answer.status == 403, "a second zone was taken by the annotation: {answer}");
    let object = json!({
        "apiVersion": "migration.gardener.cloud/v1alpha1", "kind": "ZoneIsolation",
        "metadata": {"name": name},
        "spec": {"shootRef": {"name": world.name().name}, "isolatedZoneID": other},
    });
    let all = format!("{ISOLATIONS}/{}/zoneisolations", world.name().project_namespace());
    let api = story::garden_of(world)?.cluster.api();
    let answer = api.post(&all, &object).await?;
    ensure!(answer.status == 201, "{answer}");
    let path = format!("{all}/{name}");
    until("the second isolation to end at once", DEADLINE, async || {
        let found = &api.get(&path).await?.ok()?["status"];
        let message = found["message"].as_str().unwrap_or_default();
        ensure!(message == "the annotation of the Shoot names another zone", "{found}");
        Ok(())
    })
    .await?;
    let shoot = story::shoot(world).await?;
    ensure!(shoot["metadata"]["annotations"][ANNOTATION] == ZONE.0, "{}", shoot["metadata"]);
    Ok(())
}
