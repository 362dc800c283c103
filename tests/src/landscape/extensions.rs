//! The extension resources of a control plane, and the Cluster that their controllers read.

use std::net::Ipv4Addr;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::carry::{self, carried};
use super::control_plane::{ControlPlane, DEADLINE, secret};
use super::machines::{USER_DATA, USER_DATA_KEY};
use super::provider::TYPE;
use super::seed::Seed;
use super::shoot::ShootName;
use crate::s3::BUCKET;
use crate::wait::until;

const API_VERSION: &str = "extensions.gardener.cloud/v1alpha1";
/// The Secret with credentials of the cloud and of the zone.
const CREDENTIALS: &str = "cloudprovider";
/// Seconds that the owner record may be cached.
pub const OWNER_TTL: u32 = 5;
/// The Extension that is reconciled before kube-apiserver is deployed.
pub const BEFORE_API_SERVER: &str = "local-before";
/// The Extension that is reconciled after kube-apiserver is ready.
pub const AFTER_API_SERVER: &str = "local-after";

/// The Cluster of a Shoot; `spec` has its Shoot, Seed and CloudProfile.
pub(super) fn cluster(plane: &ControlPlane, spec: &Value) -> Value {
    let name = plane.shoot.technical_id();
    json!({"apiVersion": API_VERSION, "kind": "Cluster", "metadata": {"name": name}, "spec": spec})
}

/// The part of the seed's bucket that belongs to the Shoot, and the Secret that it refers to.
pub(super) fn backup_entry(shoot: &ShootName, seed: &Seed) -> [Value; 2] {
    let (name, namespace) = (shoot.backup_entry(), super::seed::GARDEN);
    let mut secret = seed.backup_secret(&format!("entry-{name}"));
    secret["metadata"]["namespace"] = namespace.into();
    let entry = json!({
        "apiVersion": API_VERSION, "kind": "BackupEntry",
        "metadata": {"name": name, "annotations": {"gardener.cloud/operation": "reconcile"}},
        "spec": {
            "type": TYPE, "region": "eu", "bucketName": BUCKET,
            "secretRef": {"namespace": namespace, "name": secret["metadata"]["name"]},
        },
    });
    [secret, entry]
}

/// The credentials that all other objects refer to.
pub(super) fn credentials() -> Value {
    carried(secret(CREDENTIALS, &[("key", "value")]))
}

/// The DNSRecord that says which seed may serve the etcd. It does not move: whoever takes over makes its own.
pub(super) fn owner_record(plane: &ControlPlane, seed: &Seed) -> Value {
    let values = [plane.owner_id(seed)];
    let name = format!("{}-owner", plane.shoot.name);
    dns_record(plane, &name, &plane.shoot.owner_domain(), "TXT", OWNER_TTL, &values)
}

/// The DNSRecord of the API. It names the load balancer of the seed in which it is.
pub(super) fn api_record(plane: &ControlPlane, address: Ipv4Addr) -> Value {
    let (name, ttl) = (format!("{}-internal", plane.shoot.name), plane.options.api_ttl);
    let mut record = dns_record(plane, &name, &plane.shoot.api_domain(), "A", ttl, &[address.to_string()]);
    carry::bind(&mut record, &[("/spec/values/0".to_owned(), "${apiServer.address}")]);
    carried(record)
}

fn dns_record(
    plane: &ControlPlane,
    name: &str,
    domain: &str,
    kind: &str,
    ttl: u32,
    values: &[String],
) -> Value {
    let spec = json!({
        "type": TYPE, "secretRef": credentials_of(plane), "name": domain, "recordType": kind, "ttl": ttl,
        "values": values,
    });
    object("DNSRecord", name, spec)
}

/// What exists before the etcds: the network of the nodes, where there are any, and whatever kube-apiserver needs.
pub(super) fn before_api_server(plane: &ControlPlane) -> Vec<Value> {
    let infrastructure = object("Infrastructure", &plane.shoot.name, in_region(plane));
    let extension = object("Extension", BEFORE_API_SERVER, json!({"type": TYPE}));
    let infrastructure = plane.has_workers().then_some(infrastructure);
    infrastructure.into_iter().chain([extension]).map(carried).collect()
}

/// What needs kube-apiserver, but for the Worker. Without workers that is an Extension alone.
pub(super) fn after_api_server(plane: &ControlPlane) -> Vec<Value> {
    let extension = object("Extension", AFTER_API_SERVER, json!({"type": TYPE}));
    if !plane.has_workers() {
        return vec![carried(extension)];
    }
    let network =
        json!({"type": TYPE, "podCIDR": "10.3.0.0/16", "serviceCIDR": "10.4.0.0/16", "ipFamilies": ["IPv4"]});
    let mut objects = vec![
        object("ControlPlane", &plane.shoot.name, in_region(plane)),
        object("Network", &plane.shoot.name, network),
        extension,
    ];
    for (pool, _) in &plane.options.pools {
        let unit = json!({"name": "kubelet.service", "content": "[Service]\nExecStart=/opt/bin/kubelet\n"});
        let config = json!({"type": TYPE, "purpose": "reconcile", "units": [unit]});
        let selector = json!({"matchLabels": {"worker.gardener.cloud/pool": pool}});
        let runtime = json!({
            "type": TYPE, "binaryPath": "/opt/bin", "workerPool": {"name": pool, "selector": selector},
        });
        objects.push(object("OperatingSystemConfig", &format!("{pool}-original"), config));
        objects.push(object("ContainerRuntime", &format!("{TYPE}-{pool}"), runtime));
    }
    objects.into_iter().map(carried).collect()
}

/// The worker pools, each in all zones.
pub(super) fn worker(plane: &ControlPlane) -> Value {
    let mut spec = in_region(plane);
    let pool = |(pool, machines): &(String, u32)| {
        json!({
            "name": pool, "machineType": "local", "machineImage": {"name": "local", "version": "1.0.0"},
            "minimum": machines, "maximum": machines, "maxSurge": 1, "maxUnavailable": 0,
            "zones": plane.options.zones,
            "userDataSecretRef": {"name": USER_DATA, "key": USER_DATA_KEY},
        })
    };
    spec["pools"] = plane.options.pools.iter().map(pool).collect();
    carried(object("Worker", &plane.shoot.name, spec))
}

fn in_region(plane: &ControlPlane) -> Value {
    json!({"type": TYPE, "region": "eu", "secretRef": credentials_of(plane)})
}

fn credentials_of(plane: &ControlPlane) -> Value {
    json!({"name": CREDENTIALS, "namespace": plane.shoot.technical_id()})
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Applies extension resources in the Shoot's namespace of a seed, and waits until the last operation of each has succeeded.
pub(super) async fn reconcile(plane: &ControlPlane, seed: &Seed, objects: &[Value]) -> Result<()> {
    plane.apply(seed, objects).await?;
    for object in objects {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        until(&format!("{kind} {name} to be reconciled"), DEADLINE, async || {
            let found = read(plane, seed, &kind, &name).await?;
            let (status, generation) = (&found["status"], &found["metadata"]["generation"]);
            let done = status["lastOperation"]["state"] == "Succeeded";
            ensure!(done && status["observedGeneration"] == *generation, "{status}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// An extension resource of a control plane.
///
/// Errors: when it does not exist.
pub async fn read(plane: &ControlPlane, seed: &Seed, kind: &str, name: &str) -> Result<Value> {
    seed.cluster.api().get(&path(plane, kind, name)).await?.ok()
}

/// The path of an extension resource of a control plane.
pub fn path(plane: &ControlPlane, kind: &str, name: &str) -> String {
    let (namespace, plural) = (plane.shoot.technical_id(), format!("{}s", kind.to_lowercase()));
    format!("/apis/{API_VERSION}/namespaces/{namespace}/{plural}/{name}")
}
