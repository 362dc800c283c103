//! The classic migration from one seed to the other.

use anyhow::{Result, ensure};
use repot_tests::landscape::{ControlPlaneOptions, Landscape, LandscapeOptions, ShootName};
use repot_tests::run;
use serde_json::{Value, json};

use super::prober::Prober;
use super::story;

const SEEDS: (&str, &str) = ("seed-a", "seed-b");

#[test]
fn control_plane_moves_and_its_nodes_stay() {
    run(async |bed| {
        let landscape = Landscape::start(bed, LandscapeOptions::default()).await?;
        let name = ShootName::new("dev", "alpha");
        let shoot =
            landscape.create_shoot(bed, name.clone(), SEEDS.0, ControlPlaneOptions::default()).await?;
        let api = shoot.control_plane.api(&landscape.dns)?;
        let marker = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "marker"}});
        api.post("/api/v1/namespaces/default/configmaps", &marker).await?.ok()?;
        let before = Workload::read(&landscape, &shoot.control_plane.api(&landscape.dns)?).await?;
        let prober = Prober::start(shoot.control_plane.api(&landscape.dns)?);
        story::create(&landscape, "move", &name, SEEDS).await?;
        let migration = story::until_end(&landscape, "move", &name).await?;
        story::ensure_phase(&migration, "Succeeded")?;
        println!("{}, a client measured {:?}", migration["status"]["apiOutage"], prober.outage());
        let after = Workload::read(&landscape, &shoot.control_plane.api(&landscape.dns)?).await?;
        ensure!(before == after, "before {before:?}, after {after:?}");
        let moved = story::shoot(&landscape, &name).await?;
        ensure!(moved["status"]["seedName"] == SEEDS.1, "{moved}");
        ensure!(moved["status"]["lastOperation"]["type"] == "Restore", "{moved}");
        let path = format!("/api/v1/namespaces/{}", name.technical_id());
        let gone = landscape.seed(SEEDS.0)?.cluster.api().get(&path).await?;
        ensure!(gone.status == 404, "the namespace is left at the source: {gone}");
        Ok(())
    });
}

/// The etcd of the source has lost its ownership by then, so it is restored to new volumes.
#[test]
fn migration_that_is_aborted_in_the_outage_leaves_the_source_as_it_was() {
    run(async |bed| {
        let landscape = Landscape::start(bed, LandscapeOptions::default()).await?;
        let name = ShootName::new("dev", "beta");
        let shoot =
            landscape.create_shoot(bed, name.clone(), SEEDS.0, ControlPlaneOptions::default()).await?;
        let api = shoot.control_plane.api(&landscape.dns)?;
        let marker = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "marker"}});
        api.post("/api/v1/namespaces/default/configmaps", &marker).await?.ok()?;
        let before = Workload::read(&landscape, &api).await?;
        story::create(&landscape, "move", &name, SEEDS).await?;
        story::until_started(&landscape, "move", &name, ("destination", "OwnerRecordTaken")).await?;
        story::abort(&landscape, "move", &name).await?;
        let migration = story::until_end(&landscape, "move", &name).await?;
        story::ensure_phase(&migration, "Cancelled")?;
        let after = Workload::read(&landscape, &shoot.control_plane.api(&landscape.dns)?).await?;
        ensure!(before == after, "before {before:?}, after {after:?}");
        let stayed = story::shoot(&landscape, &name).await?;
        ensure!(stayed["spec"]["seedName"] == SEEDS.0, "{stayed}");
        ensure!(stayed["status"]["lastOperation"]["type"] == "Create", "{stayed}");
        let path = format!("/api/v1/namespaces/{}", name.technical_id());
        let gone = landscape.seed(SEEDS.1)?.cluster.api().get(&path).await?;
        ensure!(gone.status == 404, "the namespace is left at the destination: {gone}");
        Ok(())
    });
}

/// What has to be the same after a migration.
#[derive(Debug, PartialEq)]
struct Workload {
    /// Nodes by name, with UID and provider id.
    nodes: Vec<(String, String, String)>,
    /// VMs of the cloud by provider id.
    vms: Vec<String>,
    /// VMs that were created and deleted.
    counters: (u64, u64),
    /// UID of an object that was made before.
    marker: String,
}

impl Workload {
    async fn read(landscape: &Landscape, api: &repot_tests::http::Api) -> Result<Self> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let nodes = api.get("/api/v1/nodes").await?.ok()?;
        let nodes = nodes["items"].as_array().into_iter().flatten().map(|node| {
            let metadata = &node["metadata"];
            (text(&metadata["name"]), text(&metadata["uid"]), text(&node["spec"]["providerID"]))
        });
        let cloud = landscape.cloud.client();
        let counters = cloud.counters().await?;
        let marker = api.get("/api/v1/namespaces/default/configmaps/marker").await?.ok()?;
        Ok(Self {
            nodes: nodes.collect(),
            vms: cloud.vms().await?.into_iter().map(|vm| vm.provider_id).collect(),
            counters: (counters.created, counters.deleted),
            marker: text(&marker["metadata"]["uid"]),
        })
    }
}
