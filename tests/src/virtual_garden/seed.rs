//! gardenlet and gardener-resource-manager of a seed, whose cluster is the runtime cluster. `tests/go/build` builds both when they are
//! named.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;

use super::component::{Component, deploy, file, flags};
use super::{HEALTH_PORT, VirtualGarden};
use crate::binaries;
use crate::install::World;
use crate::landscape::real_gardenlet::{configuration, prepare};

const GARDENLET: &str = "gardenlet";
const RESOURCE_MANAGER: &str = "gardener-resource-manager";
/// The kubeconfig of the seed, in both Pods.
const SEED_KUBECONFIG: &str = "seed.kubeconfig";

impl VirtualGarden {
    /// Starts both programs for the Seed of that name, and waits until they are ready. The Seed says that it has a cluster identity, as
    /// gardenlet would say after it has installed its components, which it does not get to.
    ///
    /// Errors: where one of them is not built.
    pub async fn start_gardenlet(&self, runtime: &World<'_>, seed: &str) -> Result<()> {
        for program in [GARDENLET, RESOURCE_MANAGER] {
            binaries::find(program).with_context(|| format!("build it by `tests/go/build {program}`"))?;
        }
        let path = format!("/apis/core.gardener.cloud/v1beta1/seeds/{seed}");
        let found = self.api.get(&path).await?.ok()?;
        prepare(&self.kubectl, runtime.garden.kubectl_tool(), &found).await?;
        let status = json!({"status": {"clusterIdentity": format!("{seed}-identity")}});
        self.api.patch(&format!("{path}/status"), "application/merge-patch+json", &status).await?.ok()?;
        deploy(runtime, &[self.gardenlet(runtime, &found)?, resource_manager(runtime)?]).await
    }

    fn gardenlet(&self, runtime: &World<'_>, seed: &serde_json::Value) -> Result<Component> {
        let listen = |port: u16| json!({"bindAddress": "0.0.0.0", "port": port});
        let server = json!({"healthProbes": listen(HEALTH_PORT), "metrics": listen(HEALTH_PORT + 1)});
        let (garden, cluster) = (file("garden.kubeconfig"), file(SEED_KUBECONFIG));
        let configuration = configuration(seed, (Path::new(&garden), Path::new(&cluster)), &server);
        let files = vec![
            ("garden.kubeconfig", self.kubeconfig_of(GARDENLET, &["system:masters"])?),
            (SEED_KUBECONFIG, seed_kubeconfig(runtime, GARDENLET)?),
            ("config.json", configuration.to_string()),
        ];
        let flags = flags(&[("config", file("config.json"))]);
        let probe = ("HTTP", HEALTH_PORT, "/healthz");
        Ok(Component { name: GARDENLET, program: GARDENLET, flags, files, probe })
    }
}

/// It applies what ManagedResources of the seed contain, and says whether that is healthy.
fn resource_manager(runtime: &World<'_>) -> Result<Component> {
    let serving = runtime.garden.pki().serving.server(&[RESOURCE_MANAGER])?;
    let connection = json!({"kubeconfig": file(SEED_KUBECONFIG), "qps": 100, "burst": 130});
    let configuration = json!({
        "apiVersion": "resourcemanager.config.gardener.cloud/v1alpha1", "kind": "ResourceManagerConfiguration",
        "sourceClientConnection": connection, "targetClientConnection": connection,
        "leaderElection": {"leaderElect": false}, "logLevel": "info", "logFormat": "json",
        "server": {
            "webhooks": {"port": 9449, "tls": {"serverCertDir": file("")}}, "healthProbes": {"port": HEALTH_PORT},
            "metrics": {"port": HEALTH_PORT + 1},
        },
        "controllers": {"resourceClass": "seed", "managedResources": {"syncPeriod": "1m"}, "health": {"syncPeriod": "15s"}},
    });
    let files = vec![
        (SEED_KUBECONFIG, seed_kubeconfig(runtime, RESOURCE_MANAGER)?),
        ("config.json", configuration.to_string()),
        ("tls.crt", serving.cert_pem),
        ("tls.key", serving.key_pem),
    ];
    let flags = flags(&[("config", file("config.json"))]);
    let probe = ("HTTP", HEALTH_PORT, "/readyz");
    Ok(Component { name: RESOURCE_MANAGER, program: RESOURCE_MANAGER, flags, files, probe })
}

/// A kubeconfig for the cluster of the seed, as Pods of it reach it.
fn seed_kubeconfig(runtime: &World<'_>, user: &str) -> Result<String> {
    let mut access = runtime.garden.user(user, &["system:masters"])?;
    "https://kubernetes.default.svc".clone_into(&mut access.server);
    Ok(access.to_kubeconfig())
}
