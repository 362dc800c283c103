//! The landscape that these tests share, and a Shoot of it with what has to be the same after a migration.

use anyhow::{Result, ensure};
use repot_tests::http::Api;
use repot_tests::landscape::cloud::Counters;
use repot_tests::landscape::{ControlPlaneOptions, Landscape, LandscapeOptions, Shoot, ShootName};
use repot_tests::{Shared, TestEnv, start_shared};
use serde_json::{Value, json};

/// Where Shoots are at first, and where they move.
pub const SEEDS: (&str, &str) = ("seed-a", "seed-b");

static LANDSCAPE: Shared<Landscape> =
    Shared::new(|bed| start_shared(Landscape::start(bed, LandscapeOptions::default())));

/// A Shoot in the first seed of the shared landscape.
pub struct World {
    /// The landscape that all tests of migrations share: nobody stops anything in it but what belongs to the own Shoot.
    pub landscape: &'static Landscape,
    /// The Shoot of this test.
    pub shoot: Shoot,
}

/// What has to be the same after a migration.
#[derive(Debug, PartialEq)]
pub struct Workload {
    /// Nodes by name, with UID and provider id.
    nodes: Vec<(String, String, String)>,
    /// VMs of this Shoot by provider id.
    vms: Vec<String>,
    /// VMs of this Shoot that were created and deleted.
    counters: Counters,
    /// UID of an object that was made before.
    marker: String,
}

impl World {
    /// Creates a Shoot with an object of its own in it.
    pub async fn create(bed: &TestEnv, name: &str, options: ControlPlaneOptions) -> Result<Self> {
        let landscape = LANDSCAPE.value()?;
        let shoot = landscape.create_shoot(bed, ShootName::new("dev", name), SEEDS.0, options).await?;
        let world = Self { landscape, shoot };
        let marker = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "marker"}});
        world.api()?.post("/api/v1/namespaces/default/configmaps", &marker).await?.ok()?;
        Ok(world)
    }

    /// Its names.
    pub fn name(&self) -> &ShootName {
        &self.shoot.control_plane.shoot
    }

    /// Its API through the DNS name.
    pub fn api(&self) -> Result<Api> {
        self.shoot.control_plane.api(&self.landscape.dns)
    }

    /// What its nodes, its VMs and its objects are now.
    pub async fn workload(&self) -> Result<Workload> {
        let api = self.api()?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let nodes = api.get("/api/v1/nodes").await?.ok()?;
        let nodes = nodes["items"].as_array().into_iter().flatten().map(|node| {
            let metadata = &node["metadata"];
            (text(&metadata["name"]), text(&metadata["uid"]), text(&node["spec"]["providerID"]))
        });
        let marker = api.get("/api/v1/namespaces/default/configmaps/marker").await?.ok()?;
        let (cloud, cluster) = (self.landscape.cloud.client(), self.name().technical_id());
        Ok(Workload {
            nodes: nodes.collect(),
            vms: cloud.vms_of(&cluster).await?.into_iter().map(|vm| vm.provider_id).collect(),
            counters: cloud.counters_of(&cluster).await?,
            marker: text(&marker["metadata"]["uid"]),
        })
    }

    /// Fails when the seed has a namespace of this Shoot.
    pub async fn ensure_gone(&self, seed: &str) -> Result<()> {
        let path = format!("/api/v1/namespaces/{}", self.name().technical_id());
        let answer = self.landscape.seed(seed)?.cluster.api().get(&path).await?;
        ensure!(answer.status == 404, "the namespace is left at {seed}: {answer}");
        Ok(())
    }

    /// Ends the Pods of the Shoot, for the tests after this one.
    pub async fn stop(self, seed: &str) -> Result<()> {
        self.landscape.stop_shoot(self.name(), seed).await
    }
}
