//! A garden with Repot, a seed, and the objects of many Shoots.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use repot_extension::crds;
use repot_tests::TestEnv;
use repot_tests::garden::{Garden, GardenOptions};
use repot_tests::repot::{Repot, write_encryption_config};
use repot_tests::wait::until;
use serde_json::{Value, json};

/// Requests at a time while objects are made.
const AT_ONCE: usize = 16;
/// Namespace of the Shoots in the garden.
pub const PROJECT: &str = "garden-bench";
/// Name of the seed.
pub const SEED: &str = "bench";
/// Path of the ShootStates.
pub const STATES: &str = "/apis/migration.gardener.cloud/v1alpha1/namespaces/garden-bench/shootstates";
const SHOOTS: &str = "/apis/core.gardener.cloud/v1beta1/namespaces/garden-bench/shoots";
const EXTENSIONS: &str = "/apis/extensions.gardener.cloud/v1alpha1";
const MERGE: &str = "application/merge-patch+json";
const DEADLINE: Duration = Duration::from_secs(1800);

/// How much there is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Shoots of the seed.
    pub shoots: usize,
    /// Extension resources of each.
    pub extensions: usize,
    /// Bytes of the state of each.
    pub bytes: usize,
}

/// The clusters, and Repot behind the API server of the garden.
pub struct Clusters {
    /// The cluster with Shoots and ShootStates.
    pub garden: Garden,
    /// The cluster with extension resources.
    pub seed: Garden,
    /// Serves ShootStates to the garden.
    pub repot: Repot,
}

/// Name of a Shoot, by its number.
pub fn shoot(at: usize) -> String {
    format!("s-{at:04}")
}

/// Namespace of its control plane.
pub fn namespace(at: usize) -> String {
    format!("shoot--bench--{}", shoot(at))
}

impl Clusters {
    /// Starts them, with all kinds that controllers read.
    pub async fn start(env: &TestEnv) -> Result<Self> {
        // kube-apiserver compacts every five minutes: what changes until then needs more than etcd's default.
        let etcd_flags = vec![format!("--quota-backend-bytes={}", 8_u64 << 30)];
        let options = GardenOptions { etcd_flags, ..GardenOptions::default() };
        let (garden, seed) = (Garden::start(env).await?, Garden::start_with(env, options).await?);
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let files = [(&garden, root.join("crds/garden.yaml")), (&seed, root.join("crds/machines.yaml"))];
        for (cluster, file) in files.into_iter().chain([(&seed, root.join("../deploy/crds"))]) {
            let file = file.display().to_string();
            cluster.kubectl(["apply", "--server-side", "-f", &file]).await?.text()?;
        }
        seed.apply(&crds::definitions()).await?;
        for cluster in [&garden, &seed] {
            let wait = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"];
            cluster.kubectl(wait).await?.text()?;
        }
        let keys = write_encryption_config(env.path())?;
        let flags = [
            format!("--storage=embedded:{}", env.make_dir("store")?.display()),
            format!("--encryption-provider-config={}", keys.display()),
            "--shootstate-group=migration.gardener.cloud".to_owned(),
        ];
        let served = [("migration.gardener.cloud", "v1alpha1")];
        let repot = Repot::behind(env, &garden, &served, flags).await?;
        Ok(Self { garden, seed, repot })
    }

    /// Makes Shoots, their namespaces and their extension resources.
    pub async fn fill(&self, size: Size) -> Result<()> {
        let project = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PROJECT}});
        self.garden.apply(&[project]).await?;
        let all = stream::iter(0..size.shoots).map(|at| self.make(at, size));
        all.buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await.map(drop)
    }

    async fn make(&self, at: usize, size: Size) -> Result<()> {
        let (name, namespace) = (shoot(at), namespace(at));
        let object = json!({
            "apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot",
            "metadata": {
                "name": name, "namespace": PROJECT, "labels": {format!("name.seed.gardener.cloud/{SEED}"): "true"},
            },
            "spec": {"seedName": SEED},
        });
        let created = self.garden.api().post(SHOOTS, &object).await?.ok()?;
        let status = json!({"status": {
            "seedName": SEED, "technicalID": namespace, "lastOperation": {"type": "Reconcile", "state": "Succeeded"},
        }});
        self.garden.api().patch(&format!("{SHOOTS}/{name}/status"), MERGE, &status).await?.ok()?;
        let seed = self.seed.api();
        let cluster = json!({
            "apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "Cluster", "metadata": {"name": namespace},
            "spec": {"cloudProfile": {}, "seed": {}, "shoot": created},
        });
        seed.post(&format!("{EXTENSIONS}/clusters"), &cluster).await?.ok()?;
        let labels = json!({"gardener.cloud/role": "shoot"});
        let object = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels},
        });
        seed.post("/api/v1/namespaces", &object).await?.ok()?;
        for extension in 0..size.extensions {
            let object = json!({
                "apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "Extension",
                "metadata": {"name": format!("e-{extension}")}, "spec": {"type": "bench"},
            });
            seed.post(&format!("{EXTENSIONS}/namespaces/{namespace}/extensions"), &object).await?.ok()?;
            self.change((at, extension), "first", size.bytes).await?;
        }
        Ok(())
    }

    /// Gives an extension resource of a Shoot another state, with a mark in it.
    pub async fn change(&self, (at, extension): (usize, usize), mark: &str, bytes: usize) -> Result<()> {
        let path = format!("{EXTENSIONS}/namespaces/{}/extensions/e-{extension}/status", namespace(at));
        let mut random = vec![0; bytes.saturating_sub(mark.len()) / 2];
        aws_lc_rs::rand::fill(&mut random)?;
        let fill: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let status = json!({"status": {"state": {"mark": mark, "fill": fill}}});
        self.seed.api().patch(&path, MERGE, &status).await?.ok().map(drop)
    }

    /// Waits until the garden has a ShootState of each Shoot.
    pub async fn until_states(&self, size: Size) -> Result<()> {
        until("the ShootStates", DEADLINE, async || {
            let all = self.garden.api().get(&format!("{STATES}?limit=1")).await?.ok()?;
            let listed = all["items"].as_array().map_or(0, Vec::len);
            let left = all["metadata"]["remainingItemCount"].as_u64().unwrap_or_default();
            let found = listed + usize::try_from(left)?;
            ensure!(found == size.shoots, "{found} of {}", size.shoots);
            Ok(())
        })
        .await
    }

    /// A ShootState as the garden has it.
    pub async fn state(&self, at: usize) -> Result<Value> {
        self.garden.api().get(&format!("{STATES}/{}", shoot(at))).await?.ok()
    }
}
