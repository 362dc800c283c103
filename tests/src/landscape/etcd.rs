//! The etcds of a control plane, as Etcds of the operator: the main one with gateways and backups, and one for events.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::carry::{carried, issued_anew};
use super::control_plane::{ControlPlane, DEADLINE, secret};
use super::dns::ZONE;
use super::extensions::OWNER_TTL;
use super::seed::{STORAGE_CLASS, Seed};
use crate::pki::{Leaf, Usage};
use crate::wait::until;

/// The Etcd of everything but events.
pub const MAIN: &str = "etcd-main";
/// The Etcd of events, without backups.
pub const EVENTS: &str = "etcd-events";
/// Where kube-apiserver reaches the main etcd: the gateways.
const GATEWAY_PORT: u16 = 2381;
const CLIENT_PORT: u16 = 2379;

/// Certificates of the etcds and of their clients.
pub(super) fn secrets(plane: &ControlPlane) -> Result<Vec<Value>> {
    let authorities = &plane.authorities;
    let mut secrets = vec![
        secret("etcd-ca", &[("ca.crt", &authorities.etcd.pem()), ("bundle.crt", &authorities.etcd.pem())]),
        secret("etcd-peer-ca", &[("ca.crt", &authorities.etcd_peer.pem())]),
        issued_anew(
            of_leaf("etcd-client", &authorities.etcd_client()?),
            &json!([{"authority": "ca-etcd", "commonName": "etcd-client", "usages": ["client"]}]),
        ),
    ];
    for etcd in [MAIN, EVENTS] {
        let names = names(plane, etcd);
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let server = authorities.etcd.leaf("etcd", &[], &names, Usage::Peer)?;
        let peer = authorities.etcd_peer.leaf("etcd-peer", &[], &names, Usage::Peer)?;
        let anew = |authority: &str, name: &str| {
            let usages = ["server", "client"];
            json!([{"authority": authority, "commonName": name, "names": names, "usages": usages}])
        };
        let (server_anew, peer_anew) = (anew("ca-etcd", "etcd"), anew("ca-etcd-peer", "etcd-peer"));
        secrets.push(issued_anew(of_leaf(&format!("{etcd}-server"), &server), &server_anew));
        secrets.push(issued_anew(of_leaf(&format!("{etcd}-peer-server"), &peer), &peer_anew));
    }
    Ok(secrets.into_iter().map(carried).collect())
}

/// Names of the members, also those by which other seeds reach them, and of the Service for clients.
fn names(plane: &ControlPlane, etcd: &str) -> Vec<String> {
    let namespace = plane.shoot.technical_id();
    let members = (0..5).map(|at| format!("{etcd}-{at}.{etcd}-peer.{namespace}.svc"));
    // Members of two seeds form one etcd while a control plane moves live.
    let exposed = names_in_seeds(&namespace);
    members
        .chain([format!("{etcd}-client.{namespace}.svc"), "localhost".into(), "127.0.0.1".into()])
        .chain(exposed)
        .collect()
}

/// Names by which what a control plane has in a seed is reached from elsewhere, for each seed that there may be.
pub(super) fn names_in_seeds(technical_id: &str) -> [String; 3] {
    ["seed-a", "seed-b", "seed-c"].map(|seed| format!("*.{technical_id}.{seed}.{ZONE}"))
}

fn of_leaf(name: &str, leaf: &Leaf) -> Value {
    secret(name, &[("tls.crt", &leaf.cert_pem), ("tls.key", &leaf.key_pem)])
}

/// The Etcds of a control plane.
pub(super) fn etcds(plane: &ControlPlane, seed: &Seed) -> Vec<Value> {
    let mut main = spec(MAIN, plane.options.etcd_members);
    main["etcd"]["gateway"] = json!({});
    main["backup"] = json!({
        "store": seed.backup_store(&format!("{}/{MAIN}", plane.shoot.backup_entry())),
        "deltaSnapshotPeriod": "10s",
        "tls": main["etcd"]["clientUrlTls"],
        "ownerCheck": owner_check(plane, seed),
    });
    [(MAIN, main), (EVENTS, spec(EVENTS, 1))].map(|(name, spec)| carried(object(name, spec))).into()
}

/// Seconds that etcd has to end.
const STOP: u32 = 11;

/// The zone's own server is asked: what resolvers of the seed have kept does not count. The grace is the least that the kind accepts.
fn owner_check(plane: &ControlPlane, seed: &Seed) -> Value {
    let (interval, timeout) = plane.options.owner_check;
    json!({
        "name": plane.shoot.owner_domain(), "id": plane.owner_id(seed), "servers": [format!("ns:{ZONE}")],
        "dnsCacheTTL": format!("{OWNER_TTL}s"), "interval": format!("{interval}s"), "timeout": format!("{timeout}s"),
        "grace": format!("{}s", timeout + STOP),
    })
}

fn object(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "druid.gardener.cloud/v1alpha1", "kind": "Etcd", "metadata": {"name": name}, "spec": spec})
}

fn spec(etcd: &str, replicas: u32) -> Value {
    json!({
        "replicas": replicas, "storageClass": STORAGE_CLASS, "storageCapacity": "1Gi",
        "etcd": {
            // The data lives as long as the test: nothing is gained by forcing it to disk.
            "extraFlags": {"unsafe-no-fsync": "true"},
            "clientUrlTls": {
                "tlsCASecretRef": {"name": "etcd-ca", "dataKey": "bundle.crt"},
                "serverTLSSecretRef": {"name": format!("{etcd}-server")},
                "clientTLSSecretRef": {"name": "etcd-client"},
            },
            "peerUrlTls": {
                "tlsCASecretRef": {"name": "etcd-peer-ca"},
                "serverTLSSecretRef": {"name": format!("{etcd}-peer-server")},
            },
        },
    })
}

/// The flags by which kube-apiserver finds its etcds.
pub(super) fn api_server_flags(plane: &ControlPlane) -> [String; 2] {
    let namespace = plane.shoot.technical_id();
    let url = |etcd: &str, port: u16| format!("https://{etcd}-client.{namespace}.svc:{port}");
    [
        format!("--etcd-servers={}", url(MAIN, GATEWAY_PORT)),
        format!("--etcd-servers-overrides=/events#{}", url(EVENTS, CLIENT_PORT)),
    ]
}

/// Waits until all members of both etcds are ready.
pub(super) async fn wait_until_ready(plane: &ControlPlane, seed: &Seed) -> Result<()> {
    for (etcd, members) in [(MAIN, plane.options.etcd_members), (EVENTS, 1)] {
        until(&format!("{etcd} to be ready"), DEADLINE, async || {
            let etcd = read(plane, seed, etcd).await?;
            let status = &etcd["status"];
            let conditions = status["conditions"].as_array();
            let ready = conditions.is_some_and(|all| {
                all.iter().any(|one| one["type"] == "AllMembersReady" && one["status"] == "True")
            });
            ensure!(status["readyReplicas"] == members && ready, "{status}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// An Etcd of the control plane.
pub async fn read(plane: &ControlPlane, seed: &Seed, etcd: &str) -> Result<Value> {
    let namespace = plane.shoot.technical_id();
    let path = format!("/apis/druid.gardener.cloud/v1alpha1/namespaces/{namespace}/etcds/{etcd}");
    seed.cluster.api().get(&path).await?.ok()
}
