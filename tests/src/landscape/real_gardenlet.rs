//! The gardenlet of Gardener itself, for a seed of a landscape. It computes and begins operations on Shoots, and gets as far as its seed
//! lets it: nothing deploys its components there.
//!
//! It changes the seed, so it is for landscapes that no other test shares. `tests/go/build gardenlet` builds it.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::control_plane::DEADLINE;
use super::garden::{CORE, GardenCluster};
use super::seed::{GARDEN, Seed};
use crate::kubectl::Kubectl;
use crate::process::{Process, Spec};
use crate::test_env::TestEnv;
use crate::wait::until;
use crate::{binaries, gardener, port};

/// Where gardener-operator says which version of Gardener runs.
const PUBLIC: &str = "gardener-system-public";
/// So rarely does it do anything by itself.
const NEVER: &str = "87600h";
const RESOURCES: &str = "/apis/resources.gardener.cloud/v1alpha1/namespaces";
const MERGE: &str = "application/merge-patch+json";

/// A running gardenlet. It ends when it is dropped.
pub struct RealGardenlet {
    process: Process,
}

impl RealGardenlet {
    /// Starts the gardenlet of a seed, and waits until it says that it is healthy and the Seed is ready.
    ///
    /// Errors: where it is not built, or ends.
    pub async fn start(env: &TestEnv, garden: &GardenCluster, seed: &Seed) -> Result<Self> {
        let program = binaries::find("gardenlet").context("build it by `tests/go/build gardenlet`")?;
        let object = garden.cluster.api().get(&format!("{CORE}/seeds/{}", seed.name)).await?.ok()?;
        prepare(garden.cluster.kubectl_tool(), seed.cluster.kubectl_tool(), &object).await?;
        let (dir, health) = (env.make_dir("gardenlet")?, port::reserve()?);
        let file = dir.join("config.json");
        let garden_file = garden.cluster.admin().write(dir.join("garden.kubeconfig"))?;
        let seed_file = seed.cluster.admin().write(dir.join("seed.kubeconfig"))?;
        let listen = |port: u16| json!({"bindAddress": "127.0.0.1", "port": port});
        let server = json!({"healthProbes": listen(health), "metrics": listen(port::reserve()?)});
        let configuration = configuration(&object, (&garden_file, &seed_file), &server);
        std::fs::write(&file, configuration.to_string())?;
        // Each of these variables would change what it does.
        let without = ["KUBECONFIG", "GARDEN_KUBECONFIG", "NAMESPACE"].map(|name| format!("--unset={name}"));
        let spec = Spec::new("gardenlet", "env").args(without).arg(program).flag("config", &file);
        let mut process = Process::start(env, spec)?;
        let probe = async || {
            let answer = reqwest::get(format!("http://127.0.0.1:{health}/healthz")).await?;
            ensure!(answer.status().is_success(), "{}", answer.status());
            Ok(())
        };
        process.ready(DEADLINE, probe).await?;
        until("the Seed to be ready for gardenlet", DEADLINE, async || {
            install(garden, seed).await?;
            let found = garden.cluster.api().get(&format!("{CORE}/seeds/{}", seed.name)).await?.ok()?;
            let conditions =
                found["status"]["conditions"].as_array().context("the Seed has no conditions")?;
            let ready =
                |kind: &str| conditions.iter().any(|one| one["type"] == kind && one["status"] == "True");
            ensure!(ready("GardenletReady") && ready("ExtensionsReady"), "{conditions:?}");
            Ok(())
        })
        .await?;
        Ok(Self { process })
    }

    /// All that it has logged so far.
    pub fn log(&self) -> String {
        self.process.log()
    }
}

/// What gardener-operator and the installation of a seed would have made; `seed` is the Seed, `cluster` is for its cluster.
pub(crate) async fn prepare(garden: &Kubectl, cluster: &Kubectl, seed: &Value) -> Result<()> {
    let version = format!("version: {}\n", gardener::RELEASE);
    let info = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "gardener-info", "namespace": PUBLIC},
        "data": {"gardenerAPIServer": version},
    });
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PUBLIC}});
    garden.apply(&[namespace, info]).await?;
    for file in ["gardenlet.yaml", "copy-tasks.yaml"] {
        let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("crds").join(file).display().to_string();
        cluster.run(["apply", "--server-side", "-f", &crds]).await?.text()?;
    }
    let networks = &seed["spec"]["networks"];
    // Otherwise it guesses them from nodes, Pods and Services.
    let info = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shoot-info", "namespace": "kube-system"},
        "data": {
            "podNetwork": networks["pods"], "serviceNetwork": networks["services"], "nodeNetwork": networks["nodes"],
        },
    });
    let ingress = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "istio-ingress"}});
    let labels = json!({"app": "istio-ingressgateway", "istio": "ingressgateway"});
    let balancer = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "istio-ingressgateway", "namespace": "istio-ingress", "labels": labels},
        "spec": {"type": "LoadBalancer", "selector": {"app": "istio-ingressgateway"}, "ports": [{"name": "tls", "port": 443}]},
    });
    cluster.apply(&[info, ingress, balancer]).await
}

/// Says of the extensions of the seed that they are installed, as gardener-resource-manager does.
async fn install(garden: &GardenCluster, seed: &Seed) -> Result<()> {
    let all = garden.cluster.api().get(&format!("{CORE}/controllerinstallations")).await?.ok()?;
    let condition = |(kind, status): (&str, &str)| {
        let time = "2026-01-01T00:00:00Z";
        json!({
            "type": kind, "status": status, "reason": "Fine", "message": "fine", "lastTransitionTime": time,
            "lastUpdateTime": time,
        })
    };
    let conditions =
        [("ResourcesApplied", "True"), ("ResourcesHealthy", "True"), ("ResourcesProgressing", "False")]
            .map(condition);
    let status = json!({"status": {"observedGeneration": 1, "conditions": conditions}});
    let of_seed = all["items"].as_array().into_iter().flatten();
    for one in of_seed.filter(|one| one["spec"]["seedRef"]["name"] == seed.name.as_str()) {
        let name = &one["metadata"]["name"];
        let resource = json!({
            "apiVersion": "resources.gardener.cloud/v1alpha1", "kind": "ManagedResource",
            "metadata": {"name": name, "namespace": GARDEN}, "spec": {"class": "seed", "secretRefs": [{"name": "none"}]},
        });
        seed.cluster.apply(&[resource]).await?;
        let name = name.as_str().unwrap_or_default();
        let path = format!("{RESOURCES}/{GARDEN}/managedresources/{name}/status");
        seed.cluster.api().patch(&path, MERGE, &status).await?.ok()?;
    }
    Ok(())
}

/// Only the controllers of Shoots, backups, extensions and the Seed work, and only when something changes. The kubeconfig files are
/// those of the garden and of the cluster of the seed.
pub(crate) fn configuration(seed: &Value, (garden, cluster): (&Path, &Path), server: &Value) -> Value {
    let connection = |file: &Path| json!({"kubeconfig": file, "qps": 100, "burst": 130});
    let metadata = &seed["metadata"];
    let map = |name: &str| metadata[name].as_object().cloned().unwrap_or_default();
    // It replaces the labels of the Seed by these.
    let registered =
        json!({"name": metadata["name"], "annotations": map("annotations"), "labels": map("labels")});
    json!({
        "apiVersion": "gardenlet.config.gardener.cloud/v1alpha1", "kind": "GardenletConfiguration",
        "gardenClientConnection": connection(garden),
        "seedClientConnection": connection(cluster),
        // Without these numbers it ends with a null pointer.
        "shootClientConnection": {"qps": 25, "burst": 50},
        "leaderElection": {"leaderElect": false},
        "server": server,
        "logLevel": "debug", "logFormat": "json",
        "controllers": {
            "shoot": {
                "concurrentSyncs": 1, "syncPeriod": NEVER, "respectSyncPeriodOverwrite": true, "progressReportPeriod": "1s",
            },
            "shootState": {"concurrentSyncs": 0}, "shootStatus": {"concurrentSyncs": 1},
             "shootCare": {"concurrentSyncs": 1, "syncPeriod": NEVER},
            "seed": {"syncPeriod": NEVER, "leaseResyncSeconds": 2}, "seedCare": {"syncPeriod": "30s"},
            "controllerInstallationCare": {"syncPeriod": "5s"},
        },
        "resources": {"capacity": {"shoots": "100"}},
        "logging": {"enabled": false}, "monitoring": {"shoot": {"enabled": false}},
        "seedConfig": {"metadata": registered, "spec": seed["spec"]},
    })
}
