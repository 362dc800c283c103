//! Zones of Shoots that are left and used again: what a person does, and what is seen of it.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::story;
use super::world::{SEEDS, World, small};
use super::{ControlPlaneOptions, DEADLINE};
use crate::http::Answer;
use crate::wait::until;

/// The annotation of a Shoot that names the zone.
pub const ANNOTATION: &str = "shoot.gardener.cloud/isolated-zone";
const MERGE: &str = "application/merge-patch+json";
/// ID and code of the zone.
pub const ZONE: (&str, &str) = ("local-eu-1b", "eu-1b");
/// Codes of all zones.
pub const ZONES: [&str; 3] = ["eu-1a", "eu-1b", "eu-1c"];
/// Where ZoneIsolations are in the garden.
pub const ISOLATIONS: &str = "/apis/migration.gardener.cloud/v1alpha1/namespaces";
/// Where Machines are in a seed.
pub const MACHINES: &str = "/apis/machine.sapcloud.io/v1alpha1/namespaces";

/// A small control plane with a machine in each zone.
pub fn in_three_zones() -> ControlPlaneOptions {
    let zones = ZONES.map(str::to_owned).into();
    ControlPlaneOptions { pools: vec![("worker-a".to_owned(), 3)], zones, ..small() }
}

/// Machines of the Shoot, each with the end of the name of its MachineDeployment, which is the number of its zone.
pub async fn machines(world: &World) -> Result<BTreeSet<(String, String)>> {
    let path = format!("{MACHINES}/{}/machines", world.name().technical_id());
    let all = world.landscape.seed(SEEDS.0)?.cluster.api().get(&path).await?.ok()?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let machine = |one: &Value| {
        let zone = text(&one["metadata"]["labels"]["name"]);
        (text(&one["metadata"]["name"]), zone.rsplit('-').next().unwrap_or_default().to_owned())
    };
    Ok(all["items"].as_array().into_iter().flatten().map(machine).collect())
}

/// Sets the annotation of the Shoot, or removes it where `zone` is null.
pub async fn annotate(world: &World, zone: &Value) -> Result<()> {
    try_annotate(world, zone).await?.ok().map(drop)
}

/// The same with the answer, whatever it is.
pub async fn try_annotate(world: &World, zone: &Value) -> Result<Answer> {
    let patch = json!({"metadata": {"annotations": {ANNOTATION: zone}}});
    story::garden_of(world)?.cluster.api().patch(&story::shoot_path(world), MERGE, &patch).await
}

/// Waits until the last ZoneIsolation of the Shoot says this.
pub async fn until_shown(world: &World, (phase, status): (&str, &str)) -> Result<()> {
    until(&format!("{phase} to be {status}"), DEADLINE, async || {
        let found = &last(world).await?["status"];
        let is_there = found["phase"] == phase && found["status"] == status;
        ensure!(is_there, "{} {}: {}", found["phase"], found["status"], found["message"]);
        Ok(())
    })
    .await
}

/// The last ZoneIsolation of the Shoot.
pub async fn last(world: &World) -> Result<Value> {
    let shoot = world.name();
    let path = format!("{ISOLATIONS}/{}/zoneisolations", shoot.project_namespace());
    let all = story::garden_of(world)?.cluster.api().get(&path).await?.ok()?;
    let mut own = all["items"].as_array().into_iter().flatten();
    let last = own.rfind(|one| one["spec"]["shootRef"]["name"] == shoot.name.as_str());
    last.cloned().context("there is no ZoneIsolation")
}
