//! An etcd of a user in the Shoot: a member in each zone, whose volume does not leave it.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use repot_tests::binaries;
use repot_tests::landscape::{DEADLINE, ShootNetwork};
use repot_tests::pods::Image;
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::ZONES;
use crate::migration::world::World;

/// The Service of all members that are ready.
pub const SERVICE: &str = "etcd-client.default.svc";
pub const CLIENT_PORT: u16 = 2379;
const IMAGE: &str = "etcd";
/// The Service by which members find one another.
const PEERS: &str = "etcd";

/// Creates it, and waits until all members are ready. Volumes are directories in `dir`.
pub async fn create(world: &World, network: &ShootNetwork, dir: &Path) -> Result<()> {
    network.images().add(IMAGE, Image::of(binaries::find("etcd")?));
    for zone in ZONES {
        std::fs::create_dir_all(dir.join(zone))?;
    }
    let api = world.api()?;
    for (path, object) in objects(dir) {
        api.post(path, &object).await?.ok().with_context(|| format!("{path}: {object}"))?;
    }
    until_ready(world, ZONES.len()).await
}

/// Waits until so many members are ready.
pub async fn until_ready(world: &World, members: usize) -> Result<()> {
    let api = world.api()?;
    until(&format!("{members} members to be ready"), DEADLINE, async || {
        let set = api.get("/apis/apps/v1/namespaces/default/statefulsets/etcd").await?.ok()?;
        ensure!(set["status"]["readyReplicas"] == members, "{}", set["status"]);
        Ok(())
    })
    .await
}

fn objects(dir: &Path) -> Vec<(&'static str, Value)> {
    let volumes = ZONES.iter().enumerate();
    let volumes = volumes.map(|(at, zone)| ("/api/v1/persistentvolumes", volume(at, zone, dir)));
    let services = [service(PEERS, true), service("etcd-client", false)];
    let services = services.map(|service| ("/api/v1/namespaces/default/services", service));
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "etcd"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "etcd"}}},
    });
    let rest = [
        ("/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget),
        ("/apis/apps/v1/namespaces/default/statefulsets", stateful_set()),
    ];
    volumes.chain(services).chain(rest).collect()
}

/// A disk of a zone, for the member of that number.
fn volume(at: usize, zone: &str, dir: &Path) -> Value {
    let expression = json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]});
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("disk-{zone}")},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "hostPath": {"path": dir.join(zone)},
            "claimRef": {"namespace": "default", "name": format!("data-etcd-{at}")},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
        },
    })
}

fn service(name: &str, of_all: bool) -> Value {
    let ports =
        [("client", CLIENT_PORT), ("peer", 2380)].map(|(name, port)| json!({"name": name, "port": port}));
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {
            "clusterIP": "None", "selector": {"app": "etcd"}, "ports": ports, "publishNotReadyAddresses": of_all,
        },
    })
}

fn stateful_set() -> Value {
    let host = |pod: &str| format!("{pod}.{PEERS}.default.svc.cluster.local");
    let members: Vec<_> =
        (0..ZONES.len()).map(|at| format!("etcd-{at}=http://{}:2380", host(&format!("etcd-{at}")))).collect();
    let own = host("$(POD)");
    let args = [
        "--name=$(POD)".to_owned(),
        "--data-dir=/var/lib/etcd/data".to_owned(),
        "--listen-peer-urls=http://0.0.0.0:2380".to_owned(),
        format!("--listen-client-urls=http://0.0.0.0:{CLIENT_PORT}"),
        format!("--advertise-client-urls=http://{own}:{CLIENT_PORT}"),
        format!("--initial-advertise-peer-urls=http://{own}:2380"),
        format!("--initial-cluster={}", members.join(",")),
        "--initial-cluster-token=of-a-user".to_owned(),
        "--log-level=warn".to_owned(),
    ];
    let probe =
        json!({"httpGet": {"path": "/health", "port": CLIENT_PORT}, "periodSeconds": 2, "timeoutSeconds": 3});
    let container = json!({
        "name": "etcd", "image": IMAGE, "args": args, "readinessProbe": probe,
        "env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "volumeMounts": [{"name": "data", "mountPath": "/var/lib/etcd"}],
        // A load balancer needs a moment to learn that a member ends.
        "lifecycle": {"preStop": {"exec": {"command": ["/bin/sleep", "5"]}}},
    });
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "etcd"},
        "spec": {
            "serviceName": PEERS, "replicas": ZONES.len(), "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "etcd"}},
            "template": {
                "metadata": {"labels": {"app": "etcd"}},
                "spec": {
                    "containers": [container], "automountServiceAccountToken": false,
                    "terminationGracePeriodSeconds": 20,
                },
            },
            "volumeClaimTemplates": [{
                "metadata": {"name": "data"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "storageClassName": "",
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            }],
        },
    })
}
