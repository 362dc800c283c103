//! gardener-apiserver behind a garden, with every admission plugin that it enables by default, and what a Shoot needs there.
//!
//! No gardenlet runs: tests write the status of Seeds and Shoots, as gardenlets would.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::access::Access;
use crate::aggregate::Aggregation;
use crate::garden::Garden;
use crate::http::Api;
use crate::process::{Process, Spec};
use crate::test_env::TestEnv;
use crate::{binaries, port};

const START_DEADLINE: Duration = Duration::from_secs(120);
const NAMESPACE: &str = "garden";
const SERVICE: &str = "gardener-apiserver";
/// What it serves, as `pkg/apiserver/apis.go` of Gardener lists it.
pub(crate) const SERVED: &[(&str, &str)] = &[
    ("core.gardener.cloud", "v1beta1"),
    ("core.gardener.cloud", "v1"),
    ("seedmanagement.gardener.cloud", "v1alpha1"),
    ("operations.gardener.cloud", "v1alpha1"),
    ("security.gardener.cloud", "v1alpha1"),
];
/// API version of Shoots and Seeds.
pub const VERSION: &str = "core.gardener.cloud/v1beta1";
/// The release of Gardener that is built for tests, as in tests/go/gardener/go.mod.
pub const RELEASE: &str = "v1.150.0";
/// Name of the one CloudProfile, provider type and region.
pub const PROFILE: &str = "local";
/// A second provider type, of Seeds only.
pub const OTHER_PROVIDER: &str = "other";
/// Kinds of extensions that Seeds and Shoots of each provider type refer to.
const EXTENSIONS: [&str; 8] = [
    "BackupBucket",
    "BackupEntry",
    "ControlPlane",
    "DNSRecord",
    "Infrastructure",
    "Network",
    "OperatingSystemConfig",
    "Worker",
];

/// What kind of gardener-apiserver to start.
#[derive(Clone, Copy, Debug, Default)]
pub struct GardenerOptions {
    /// The feature gate LiveControlPlaneMigration.
    pub live_migration: bool,
}

/// A running gardener-apiserver, which stores in the garden's etcd.
pub struct Gardener {
    /// Its process, to kill, pause or restart it.
    pub process: Process,
}

impl Gardener {
    /// Starts it, registers its groups, and makes the CloudProfile, the ControllerRegistration and the credentials that the Seeds and
    /// Shoots of this module refer to.
    pub async fn start(env: &TestEnv, garden: &Garden, options: GardenerOptions) -> Result<Self> {
        let port = port::reserve()?;
        let mut process = Process::start(env, spec(env, garden, options, port)?)?;
        let server = format!("https://127.0.0.1:{port}");
        let ca_pem = garden.pki().serving.pem();
        let api = Api::new(&Access { server, ca_pem: ca_pem.clone(), ..garden.admin().clone() })?;
        process
            .ready(START_DEADLINE, async || {
                let answer = api.get("/readyz").await?;
                ensure!(answer.status == 200, "{answer}");
                Ok(())
            })
            .await?;
        for (group, version) in SERVED {
            let aggregation =
                Aggregation { group, version, namespace: NAMESPACE, service: SERVICE, port, ca_pem: &ca_pem };
            garden.apply(&aggregation.render()).await?;
        }
        for (group, version) in SERVED {
            let aggregation =
                Aggregation { group, version, namespace: NAMESPACE, service: SERVICE, port, ca_pem: &ca_pem };
            aggregation.wait_until_available(garden).await?;
        }
        garden.apply(&landscape()).await?;
        Ok(Self { process })
    }
}

fn spec(env: &TestEnv, garden: &Garden, options: GardenerOptions, port: u16) -> Result<Spec> {
    let dir = env.make_dir("gardener-pki")?;
    let serving = garden.pki().serve(NAMESPACE, SERVICE)?.write(&dir, "serving")?;
    let kubeconfig = garden.user_kubeconfig(SERVICE, &["system:masters"])?;
    Ok(Spec::new(SERVICE, binaries::find(SERVICE)?)
        .flag("bind-address", "127.0.0.1")
        .flag("secure-port", port.to_string())
        .flag("etcd-servers", garden.etcd_servers().join(","))
        .flag("tls-cert-file", &serving.0)
        .flag("tls-private-key-file", &serving.1)
        .flag("cluster-identity", "testbed")
        .flag("kubeconfig", &kubeconfig)
        .flag("authentication-kubeconfig", &kubeconfig)
        .flag("authorization-kubeconfig", &kubeconfig)
        .flag("feature-gates", format!("LiveControlPlaneMigration={}", options.live_migration)))
}

/// What Seeds and Shoots of this module refer to.
pub(crate) fn landscape() -> [Value; 4] {
    let kinds = [PROFILE, OTHER_PROVIDER]
        .map(|provider| EXTENSIONS.map(|kind| json!({"kind": kind, "type": provider})));
    let kinds = kinds.concat();
    [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": NAMESPACE, "name": "credentials"},
            "stringData": {"key": "value"},
        }),
        json!({
            "apiVersion": VERSION, "kind": "ControllerRegistration", "metadata": {"name": PROFILE},
            "spec": {"resources": kinds},
        }),
        profile(),
    ]
}

/// The CloudProfile of Shoots that name no other.
pub fn profile() -> Value {
    let zones = ["eu-1a", "eu-1b", "eu-1c"].map(|zone| json!({"name": zone}));
    let storage = json!({"class": "standard", "type": "default", "size": "20Gi"});
    let ids = json!({"eu": {"local-eu-1a": "eu-1a", "local-eu-1b": "eu-1b", "local-eu-1c": "eu-1c"}});
    let annotations = json!({"migration.gardener.cloud/zone-ids": ids.to_string()});
    json!({
        "apiVersion": VERSION, "kind": "CloudProfile",
        "metadata": {"name": PROFILE, "annotations": annotations},
        "spec": {
            "type": PROFILE, "kubernetes": {"versions": [{"version": "1.34.1"}]},
            "machineImages": [{"name": "local", "updateStrategy": "major", "versions": [
                {"version": "1.0.0", "architectures": ["amd64"], "cri": [{"name": "containerd"}]},
                {
                    "version": "1.1.0", "architectures": ["amd64"], "cri": [{"name": "containerd"}],
                    "classification": "preview",
                },
            ]}],
            "machineTypes": [{
                "name": "local", "cpu": "2", "gpu": "0", "memory": "8Gi", "architecture": "amd64", "usable": true,
                "storage": storage,
            }],
            "regions": [{"name": "eu", "zones": zones}, {"name": "us", "zones": zones}],
        },
    })
}

/// The namespace and the Project of that name, and the credentials with which its Shoots are made. At most ten characters.
pub fn project(name: &str) -> [Value; 4] {
    let namespace = format!("garden-{name}");
    [
        json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {
                "name": namespace,
                "labels": {"gardener.cloud/role": "project", "project.gardener.cloud/name": name},
            },
        }),
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": namespace, "name": "account"},
            "stringData": {"key": "value"},
        }),
        json!({
            "apiVersion": VERSION, "kind": "Project", "metadata": {"name": name}, "spec": {
                "namespace": namespace,
                "owner": {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "admin"},
            },
        }),
        json!({
            "apiVersion": "security.gardener.cloud/v1alpha1", "kind": "CredentialsBinding",
            "metadata": {"namespace": namespace, "name": "account"}, "provider": {"type": PROFILE},
            "credentialsRef": {"apiVersion": "v1", "kind": "Secret", "namespace": namespace, "name": "account"},
        }),
    ]
}

/// A Seed whose gardenlet, if there were one, would be fine.
pub fn seed(name: &str) -> Value {
    let credentials =
        json!({"apiVersion": "v1", "kind": "Secret", "namespace": NAMESPACE, "name": "credentials"});
    let domain = |domain: &str| json!({"type": PROFILE, "domain": domain, "credentialsRef": credentials});
    let condition = |kind: &str| {
        let time = "2026-01-01T00:00:00Z";
        json!({
            "type": kind, "status": "True", "reason": "Fine", "message": "fine", "lastTransitionTime": time,
            "lastUpdateTime": time,
        })
    };
    json!({
        "apiVersion": VERSION, "kind": "Seed", "metadata": {"name": name},
        "spec": {
            "provider": {"type": PROFILE, "region": "eu", "zones": ["eu-1a", "eu-1b", "eu-1c"]},
            "ingress": {"domain": format!("{name}.seed.example.com"), "controller": {"kind": "nginx"}},
            "backup": {"provider": PROFILE, "credentialsRef": credentials},
            "dns": {
                "provider": {"type": PROFILE, "credentialsRef": credentials},
                "internal": domain("internal.example.com"), "defaults": [domain("example.com")],
            },
            "networks": {
                "nodes": "10.0.0.0/16", "pods": "10.1.0.0/16", "services": "10.2.0.0/16",
                "shootDefaults": {"pods": "10.3.0.0/16", "services": "10.4.0.0/16"},
            },
            "settings": {"scheduling": {"visible": true}},
        },
        "status": {
            "observedGeneration": 99, "gardener": {"id": "x", "name": "gardenlet", "version": RELEASE},
            "allocatable": {"shoots": "100"},
            "conditions": [
                condition("GardenletReady"), condition("SeedSystemComponentsHealthy"), condition("BackupBucketsReady"),
            ],
        },
    })
}

/// A highly available Shoot of a [`project`] that has no seed yet.
pub fn shoot(project: &str, name: &str) -> Value {
    json!({
        "apiVersion": VERSION, "kind": "Shoot",
        "metadata": {"namespace": format!("garden-{project}"), "name": name},
        "spec": {
            "cloudProfile": {"kind": "CloudProfile", "name": PROFILE}, "credentialsBindingName": "account",
            "region": "eu", "purpose": "production",
            "controlPlane": {"highAvailability": {"failureTolerance": {"type": "zone"}}},
            "provider": {"type": PROFILE, "workers": [{
                "name": "w", "minimum": 1, "maximum": 2, "maxSurge": 1, "zones": ["eu-1a", "eu-1b"],
                "machine": {"type": "local", "image": {"name": "local"}},
            }]},
            "kubernetes": {"version": "1.34"}, "networking": {"type": PROFILE, "nodes": "10.5.0.0/16"},
        },
    })
}

/// An operation as a gardenlet records it.
pub fn operation(kind: &str, state: &str) -> Value {
    json!({
        "type": kind, "state": state, "progress": 100, "description": "by a test",
        "lastUpdateTime": "2026-01-01T00:00:00Z",
    })
}
