//! The nodes: their objects, their leases, and what a test makes of them.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use super::Ground;
use super::status::time;
use super::wire;
use crate::http;

const HEARTBEAT: Duration = Duration::from_secs(1);
/// kube-controller-manager asks for nothing beyond the time of renewal; others may want to know how long it holds.
const LEASE_SECONDS: u32 = 40;
/// kube-controller-manager calls a node Unknown after 40 seconds or more.
const SILENCE: Duration = Duration::from_secs(20);

/// A node of a runner.
pub(super) struct NodeSpec {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// Which range of addresses its Pods get ([`wire::range`]).
    pub range: usize,
    /// Its own address, as Pods see it in their status.
    pub address: Ipv4Addr,
    /// Whether its lease is renewed.
    pub beats: AtomicBool,
    /// Whether the node says that it is ready.
    pub ready: AtomicBool,
    /// Whether it has lost its power.
    pub lost: watch::Sender<bool>,
}

impl NodeSpec {
    /// A node that is well, whose address is the gateway of its Pods.
    pub(super) fn new(name: String, labels: BTreeMap<String, String>, range: usize) -> Self {
        let (beats, ready) = (AtomicBool::new(true), AtomicBool::new(true));
        let lost = watch::Sender::new(false);
        Self { name, labels, range, address: wire::gateway(range), beats, ready, lost }
    }

    /// Returns when it has lost its power.
    pub(super) async fn until_lost(&self) {
        // The sender lives as long as the node.
        let _ = self.lost.subscribe().wait_for(|lost| *lost).await;
    }

    /// Ends its heartbeat and its Pods.
    pub(super) fn lose(&self) {
        self.beats.store(false, Ordering::Relaxed);
        self.lost.send_replace(true);
    }
}

/// Makes the object of a node, ready for Pods.
pub(super) async fn register(ground: &Ground, index: usize) -> Result<()> {
    let nodes = Api::<Node>::all(ground.client.clone());
    let node_spec = &ground.nodes[index];
    let mut labels = BTreeMap::from([
        ("kubernetes.io/hostname".to_owned(), node_spec.name.clone()),
        ("kubernetes.io/os".to_owned(), "linux".to_owned()),
    ]);
    labels.extend(node_spec.labels.clone());
    let node = serde_json::from_value(json!({"metadata": {"name": node_spec.name, "labels": labels}}))?;
    nodes.create(&PostParams::default(), &node).await.context("failed to make the node")?;
    renew(&ground.api, &node_spec.name).await?;
    set_ready(ground, index, true).await
}

/// Writes the status of a node with the condition Ready as told.
pub(super) async fn set_ready(ground: &Ground, index: usize, ready: bool) -> Result<()> {
    ground.nodes[index].ready.store(ready, Ordering::Relaxed);
    let status = json!({"status": status(&ground.nodes[index].name, index, ready)});
    let nodes = Api::<Node>::all(ground.client.clone());
    let name = &ground.nodes[index].name;
    nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(&status)).await?;
    Ok(())
}

/// Renews the lease for ever, unless the heart of the node has been stopped. After a long silence it writes its conditions again, as a
/// kubelet does: kube-controller-manager has set them to Unknown.
pub(super) async fn beat(ground: Arc<Ground>, index: usize) {
    let mut renewed = Instant::now();
    loop {
        sleep(HEARTBEAT).await;
        let node_spec = &ground.nodes[index];
        // One that is missed is what leases are made for; the next may succeed.
        if !node_spec.beats.load(Ordering::Relaxed) || renew(&ground.api, &node_spec.name).await.is_err() {
            continue;
        }
        let is_known = renewed.elapsed() < SILENCE;
        if is_known || set_ready(&ground, index, node_spec.ready.load(Ordering::Relaxed)).await.is_ok() {
            renewed = Instant::now();
        }
    }
}

async fn renew(api: &http::Api, name: &str) -> Result<()> {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"namespace": "kube-node-lease", "name": name},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now},
    });
    let path = format!(
        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}?fieldManager=kubelet&force=true"
    );
    api.patch(&path, "application/apply-patch+yaml", &lease).await?.ok().map(drop)
}

fn status(name: &str, index: usize, ready: bool) -> Value {
    let now = time(Timestamp::now());
    let room = json!({"cpu": "64", "memory": "256Gi", "pods": "500", "ephemeral-storage": "1Ti"});
    let condition = |kind: &str, holds: bool, reason: &str| {
        json!({
            "type": kind, "status": if holds { "True" } else { "False" }, "reason": reason, "message": reason,
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        })
    };
    json!({
        "capacity": room, "allocatable": room,
        "addresses": [{"type": "InternalIP", "address": wire::gateway(index)}, {"type": "Hostname", "address": name}],
        "conditions": [
            condition("Ready", ready, if ready { "KubeletReady" } else { "KubeletNotReady" }),
            condition("MemoryPressure", false, "KubeletHasSufficientMemory"),
            condition("DiskPressure", false, "KubeletHasNoDiskPressure"),
            condition("PIDPressure", false, "KubeletHasSufficientPID"),
        ],
    })
}
