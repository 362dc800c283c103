//! A Shoot of a landscape with what has to be the same after a migration, and the landscapes that tests share.

use std::ops::Deref;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};

use super::cloud::Counters;
use super::garden::CORE;
use super::members_gateway::GatewayKind;
use super::{ControlPlaneOptions, DEADLINE, Landscape, LandscapeOptions, Shoot, ShootName, etcd};
use crate::http::Api;
use crate::operator::SYSTEM;
use crate::wait::until;
use crate::{Shared, SharedRef, TestEnv, run_large, start_shared};

/// Where Shoots are at first, and where they move.
pub const SEEDS: (&str, &str) = ("seed-a", "seed-b");

const ENTRIES: &str = "/apis/extensions.gardener.cloud/v1alpha1/backupentries";
const MERGE: &str = "application/merge-patch+json";

static LANDSCAPE: Shared<Landscape> =
    Shared::new(|env| start_shared(Landscape::start(env, LandscapeOptions::default())));

/// A third seed, for tests whose destination dies as well.
pub const THIRD_SEED: &str = "seed-c";

/// The landscape with a third seed.
pub static THREE_SEEDS: Shared<Landscape> = Shared::new(|env| {
    let seeds = [SEEDS.0, SEEDS.1, THIRD_SEED].map(str::to_owned).into();
    start_shared(Landscape::start(env, LandscapeOptions { seeds, ..LandscapeOptions::default() }))
});

/// A landscape in whose seeds members of etcds are behind one Gateway: of Istio in the first one, of the Gateway API in the second.
pub static BEHIND_GATEWAY: Shared<Landscape> = Shared::new(|env| {
    let gateways =
        vec![(SEEDS.0.to_owned(), GatewayKind::Istio), (SEEDS.1.to_owned(), GatewayKind::GatewayApi)];
    start_shared(Landscape::start(env, LandscapeOptions { gateways, ..LandscapeOptions::default() }))
});

/// A landscape that lives for as long as somebody uses it.
#[derive(Clone)]
pub enum LandscapeRef {
    /// One that tests share: nobody stops anything in it but what belongs to the own Shoot.
    Shared(SharedRef<Landscape>),
    /// One of the caller's own.
    Owned(Arc<Landscape>),
}

impl Deref for LandscapeRef {
    type Target = Landscape;

    fn deref(&self) -> &Landscape {
        match self {
            Self::Shared(landscape) => landscape,
            Self::Owned(landscape) => landscape,
        }
    }
}

/// A Shoot in the first seed of a landscape.
pub struct World {
    /// The landscape with garden and seeds.
    pub landscape: LandscapeRef,
    /// The Shoot of this test.
    pub shoot: Shoot,
}

/// A control plane as small as it can be, with one node.
pub fn small() -> ControlPlaneOptions {
    ControlPlaneOptions {
        etcd_members: 1,
        api_servers: 1,
        pools: vec![("worker-a".to_owned(), 1)],
        ..ControlPlaneOptions::default()
    }
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

impl Workload {
    /// What there is, in one line.
    #[must_use]
    pub fn summary(&self) -> String {
        format!("{} nodes and {} VMs, each with its own name and UID", self.nodes.len(), self.vms.len())
    }
}

/// Runs one test, as [`run_large`] does. The shared landscape does not end while the test waits for its turn.
pub fn run(test: impl AsyncFnOnce(&TestEnv) -> Result<()>) {
    run_in(&LANDSCAPE, test);
}

/// The same in another landscape.
pub fn run_in(landscape: &'static Shared<Landscape>, test: impl AsyncFnOnce(&TestEnv) -> Result<()>) {
    let _claim = landscape.claim();
    run_large(test);
}

impl World {
    /// Creates a Shoot with an object of its own in it.
    pub async fn create(env: &TestEnv, name: &str, options: ControlPlaneOptions) -> Result<Self> {
        Self::create_in(&LANDSCAPE, env, name, options).await
    }

    /// The same in another landscape.
    pub async fn create_in(
        landscape: &'static Shared<Landscape>,
        env: &TestEnv,
        name: &str,
        options: ControlPlaneOptions,
    ) -> Result<Self> {
        Self::create_at(LandscapeRef::Shared(landscape.value()?), env, name, options).await
    }

    /// The same in a landscape that runs.
    pub async fn create_at(
        landscape: LandscapeRef,
        env: &TestEnv,
        name: &str,
        options: ControlPlaneOptions,
    ) -> Result<Self> {
        let shoot = landscape.create_shoot(env, ShootName::new("dev", name), SEEDS.0, options).await?;
        let world = Self { landscape, shoot };
        let marker = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "marker"}});
        world.api()?.post("/api/v1/namespaces/default/configmaps", &marker).await?.ok()?;
        Ok(world)
    }

    /// The Shoot's name and Project, and what follows from them.
    pub fn name(&self) -> &ShootName {
        &self.shoot.control_plane.shoot
    }

    /// Its API through the DNS name.
    pub fn api(&self) -> Result<Api> {
        self.shoot.control_plane.api(&self.landscape.dns)
    }

    /// Stores so many MiB in the etcd of the Shoot, which compress badly, four requests at a time.
    pub async fn fill(&self, mib: usize) -> Result<()> {
        let api = &self.api()?;
        let store = |at: usize| async move {
            let mut bytes = vec![0; 700 << 10];
            aws_lc_rs::rand::fill(&mut bytes)?;
            let (name, data) = (format!("data-{at}"), json!({"value": BASE64_STANDARD.encode(&bytes)}));
            let data =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
            api.post("/api/v1/namespaces/default/configmaps", &data).await?.ok().map(drop)
        };
        // In base64 they are 933 KiB each.
        stream::iter(0..mib * 1024 / 933 + 1)
            .map(store)
            .buffer_unordered(4)
            .try_collect::<Vec<()>>()
            .await
            .map(drop)
    }

    /// UID of an object that was made before.
    pub async fn marker(&self) -> Result<String> {
        let marker = self.api()?.get("/api/v1/namespaces/default/configmaps/marker").await?.ok()?;
        Ok(marker["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
    }

    /// Hibernates the Shoot, as a gardenlet does: no VM, no Pod, and the Shoot says so.
    pub async fn hibernate(&self, seed: &str) -> Result<()> {
        let cluster = &self.landscape.seed(seed)?.cluster;
        let namespace = self.name().technical_id();
        let all =
            cluster.kubectl(["get", "machinedeployments", "-n", &namespace, "-o", "name"]).await?.text()?;
        for name in all.lines() {
            let none = r#"{"spec":{"replicas":0}}"#;
            cluster.kubectl(["patch", name, "-n", &namespace, "--type=merge", "-p", none]).await?.text()?;
        }
        until("the VMs to be gone", DEADLINE, async || {
            let vms = self.landscape.cloud.client().vms_of(&namespace).await?;
            ensure!(vms.is_empty(), "{vms:?}");
            Ok(())
        })
        .await?;
        self.scale(seed, 0).await?;
        self.until_pods(seed, 0).await?;
        let garden = &self.landscape.garden.as_ref().context("there is no garden")?.cluster;
        let (name, project) = (self.name().name.as_str(), self.name().project_namespace());
        let path = format!("{CORE}/namespaces/{project}/shoots/{name}");
        let spec = json!({"spec": {"hibernation": {"enabled": true}}});
        garden.api().patch(&path, MERGE, &spec).await?.ok()?;
        let status = json!({"status": {"hibernated": true}});
        garden.api().patch(&format!("{path}/status"), MERGE, &status).await?.ok().map(drop)
    }

    /// Fails when a Pod of the Shoot runs in a seed, or is wanted there.
    pub async fn ensure_asleep(&self, seed: &str) -> Result<()> {
        let namespace = self.name().technical_id();
        let api = self.landscape.seed(seed)?.cluster.api();
        for (path, least) in [
            (format!("/apis/apps/v1/namespaces/{namespace}/deployments"), 4),
            (format!("/apis/druid.gardener.cloud/v1alpha1/namespaces/{namespace}/etcds"), 2),
        ] {
            let all = api.get(&path).await?.ok()?;
            let items = all["items"].as_array().context("no list")?;
            let wanted: Vec<_> = items.iter().map(|one| &one["spec"]["replicas"]).collect();
            ensure!(
                wanted.len() >= least && wanted.iter().all(|replicas| **replicas == 0),
                "{path}: {wanted:?}"
            );
        }
        self.until_pods(seed, 0).await
    }

    /// Starts the control plane again, and waits until its API is ready.
    pub async fn wake(&self, seed: &str) -> Result<()> {
        self.scale(seed, 1).await?;
        let api = self.api()?;
        until("the API of the Shoot to be ready", DEADLINE, async || {
            let answer = api.get("/readyz").await?;
            ensure!(answer.status == 200, "{answer}");
            Ok(())
        })
        .await
    }

    /// Gives each Deployment and each Etcd so many replicas.
    async fn scale(&self, seed: &str, replicas: u32) -> Result<()> {
        let (cluster, namespace) = (&self.landscape.seed(seed)?.cluster, self.name().technical_id());
        let flag = format!("--replicas={replicas}");
        cluster.kubectl(["scale", "deployments", "--all", "-n", &namespace, &flag]).await?.text()?;
        let patch = json!({"spec": {"replicas": replicas}}).to_string();
        for etcd in [etcd::MAIN, etcd::EVENTS] {
            let patch = ["patch", "etcd", etcd, "-n", &namespace, "--type=merge", "-p", &patch];
            cluster.kubectl(patch).await?.text()?;
        }
        Ok(())
    }

    /// Waits until so many Pods of the Shoot run; Pods of Jobs that have ended do not count.
    async fn until_pods(&self, seed: &str, wanted: usize) -> Result<()> {
        let path = format!("/api/v1/namespaces/{}/pods", self.name().technical_id());
        let api = self.landscape.seed(seed)?.cluster.api();
        until("the Pods of the Shoot", DEADLINE, async || {
            let all = api.get(&path).await?.ok()?;
            let pods = all["items"].as_array().context("no list")?.iter();
            let left: Vec<_> = pods
                .filter(|pod| pod["status"]["phase"] != "Succeeded")
                .filter_map(|pod| pod["metadata"]["name"].as_str())
                .collect();
            ensure!(left.len() == wanted, "there are {left:?}");
            Ok(())
        })
        .await
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
        let (cloud, cluster) = (self.landscape.cloud.client(), self.name().technical_id());
        Ok(Workload {
            nodes: nodes.collect(),
            vms: cloud.vms_of(&cluster).await?.into_iter().map(|vm| vm.provider_id).collect(),
            counters: cloud.counters_of(&cluster).await?,
            marker: self.marker().await?,
        })
    }

    /// Fails unless the Shoot is at the second of these seeds as it was before, and nothing of it is left at the first.
    pub async fn ensure_moved(&self, before: &Workload, (from, to): (&str, &str)) -> Result<()> {
        let after = self.workload().await?;
        ensure!(*before == after, "at {to}: before {before:?}, after {after:?}");
        self.ensure_backup_entry_moved(to).await?;
        self.ensure_gone(from).await
    }

    /// Fails unless the BackupEntry is at a seed, in the garden and in the seed, without that of the bucket it has left.
    async fn ensure_backup_entry_moved(&self, to: &str) -> Result<()> {
        let garden = self.landscape.garden.as_ref().context("there is no garden")?;
        let seed = self.landscape.seed(to)?;
        let name = self.name().backup_entry();
        let path = format!("{CORE}/namespaces/{}/backupentries/{name}", self.name().project_namespace());
        let entry = garden.cluster.api().get(&path).await?.ok()?;
        let wanted = json!([garden.bucket_of(to).await?, to, to]);
        let found =
            json!([entry["spec"]["bucketName"], entry["spec"]["seedName"], entry["status"]["seedName"]]);
        ensure!(found == wanted, "the BackupEntry in the garden has {found}, not {wanted}");
        let here = seed.cluster.api().get(&format!("{ENTRIES}/{name}")).await?.ok()?;
        let last = &here["status"]["lastOperation"];
        ensure!(last["type"] == "Restore" && last["state"] == "Succeeded", "the BackupEntry at {to}: {here}");
        let answer = seed.cluster.api().get(&format!("{ENTRIES}/source-{name}")).await?;
        ensure!(answer.status == 404, "the BackupEntry of the bucket that was left: {answer}");
        Ok(())
    }

    /// Fails when the seed has a namespace of this Shoot.
    pub async fn ensure_gone(&self, seed: &str) -> Result<()> {
        let path = format!("/api/v1/namespaces/{}", self.name().technical_id());
        let answer = self.landscape.seed(seed)?.cluster.api().get(&path).await?;
        ensure!(answer.status == 404, "the namespace is left at {seed}: {answer}");
        let entry = self.name().backup_entry();
        for path in [format!("{ENTRIES}/{entry}"), format!("/api/v1/namespaces/garden/secrets/entry-{entry}")]
        {
            let answer = self.landscape.seed(seed)?.cluster.api().get(&path).await?;
            ensure!(answer.status == 404, "{path} is left at {seed}: {answer}");
        }
        let calls = self.landscape.providers.journal.calls();
        let deleted = calls.iter().find(|call| call.kind == "BackupEntry" && call.function == "delete");
        ensure!(deleted.is_none(), "snapshots would have been deleted: {deleted:?}");
        Ok(())
    }

    /// Pods of the Shoot in a seed, each with a container.
    pub async fn containers(&self, seed: &str) -> Result<Vec<(String, String)>> {
        let path = format!("/api/v1/namespaces/{}/pods", self.name().technical_id());
        let all = self.landscape.seed(seed)?.cluster.api().get(&path).await?.ok()?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let of = |pod: &Value| {
            let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
            containers.map(|one| (text(&pod["metadata"]["name"]), text(&one["name"]))).collect::<Vec<_>>()
        };
        let running = all["items"].as_array().context("no list")?.iter();
        Ok(running.filter(|pod| pod["status"]["phase"] == "Running").flat_map(of).collect())
    }

    /// Lets containers of the Shoot in a seed stand still, or go on.
    pub fn freeze(&self, seed: &str, containers: &[(String, String)], frozen: bool) -> Result<()> {
        let (runner, namespace) = (&self.landscape.seed(seed)?.runner, self.name().technical_id());
        for (pod, container) in containers {
            match frozen {
                true => runner.freeze(&namespace, pod, container)?,
                // One that was killed meanwhile has nothing to go on with.
                false => drop(runner.resume(&namespace, pod, container)),
            }
        }
        Ok(())
    }

    /// Kills the controllers of all sides at once. They are started again.
    pub async fn kill_controllers(&self) -> Result<()> {
        for seed in [SEEDS.0, SEEDS.1] {
            self.kill_controllers_of_seed(seed).await?;
        }
        self.kill_controllers_of_garden()
    }

    /// Kills the controllers of a seed. They are started again.
    pub async fn kill_controllers_of_seed(&self, seed: &str) -> Result<()> {
        let cluster = &self.landscape.seed(seed)?.cluster;
        let kill = ["delete", "pods", "-l", "app=repot-controllers", "-n", SYSTEM, "--grace-period=0"];
        cluster.kubectl(kill.iter().chain(&["--force", "--wait=false"])).await?.text().map(drop)
    }

    /// Kills the controller of the garden. It is started again.
    pub fn kill_controllers_of_garden(&self) -> Result<()> {
        let garden = self.landscape.controllers.as_ref().context("there is no garden")?;
        let mut garden = garden.lock();
        garden.process.kill();
        garden.process.restart()
    }

    /// Ends the Pods of the Shoot, for the tests after this one.
    pub async fn stop(self, seed: &str) -> Result<()> {
        self.landscape.stop_shoot(self.name(), seed).await
    }
}
