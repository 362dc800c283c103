//! Stand-ins for the nodes of a Shoot: one task for each virtual machine of the cloud.
//!
//! A task does what tells a kubelet from outside: it registers a Node with the machine's provider ID, renews its Lease, writes the
//! condition Ready, and says of Pods that are bound to it that they run. It acts as `system:node:<name>` with no other rights,
//! and reaches the API by the Shoot's DNS name, which it resolves anew for each round. No containers run; a Pod with a host port answers
//! requests there (`pod_server`). With a network of their own, nodes have addresses and kubelets there, and Pods of some images run
//! ([`super::shoot_network`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use super::authorities::Authorities;
use super::cloud::{CloudClient, Vm};
use super::dns::Resolver;
use super::pod_server::PodServers;
use super::shoot::ShootName;
use super::shoot_network::{KUBELET_PORT, ShootNetwork, ShootNode};
use crate::http::Api;

const MACHINES_PERIOD: Duration = Duration::from_millis(500);
/// From one round of a node to the next.
const ROUND_PERIOD: Duration = Duration::from_secs(2);
const ROUND_TIMEOUT: Duration = Duration::from_secs(10);
/// kubelets write an unchanged status every five minutes, and follow changes every ten seconds.
const STATUS_PERIOD: Duration = Duration::from_secs(10);
const LEASE_SECONDS: u32 = 40;
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// What a node needs to know of its Shoot.
#[derive(Clone)]
pub struct NodeContext {
    /// The Shoot of the nodes.
    pub shoot: ShootName,
    /// Signs the certificates of the nodes.
    pub authorities: Arc<Authorities>,
    /// Resolves the name of the API.
    pub resolver: Resolver,
    /// The network of the nodes, where they have one.
    pub network: Option<Arc<ShootNetwork>>,
}

/// Nodes of one Shoot. They stop when this is dropped.
pub struct Nodes {
    task: AbortHandle,
    errors: Errors,
}

/// Why the latest round of a node failed, by the name of the node.
type Errors = Arc<Mutex<BTreeMap<String, String>>>;

impl Nodes {
    /// Runs a node for each machine that the cloud has for the Shoot, now and later, for as long as the machine exists.
    pub fn start(cloud: CloudClient, context: NodeContext) -> Self {
        let errors = Errors::default();
        let task = tokio::spawn(follow(cloud, context, errors.clone())).abort_handle();
        Self { task, errors }
    }

    /// Why the latest rounds failed; empty when all nodes are well.
    pub fn errors(&self) -> BTreeMap<String, String> {
        self.errors.lock().clone()
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts and stops nodes as machines come and go. All nodes end with this future.
async fn follow(cloud: CloudClient, context: NodeContext, errors: Errors) {
    let mut tasks = JoinSet::new();
    let mut running = BTreeMap::<String, (Vm, AbortHandle)>::new();
    loop {
        while tasks.try_join_next().is_some() {}
        // A cloud that does not answer has not lost its machines.
        if let Ok(vms) = cloud.vms().await {
            let cluster = context.shoot.technical_id();
            let vms: Vec<_> = vms.into_iter().filter(|vm| vm.cluster == cluster).collect();
            running.retain(|_, (vm, task)| {
                let exists = vms.contains(vm);
                if !exists {
                    task.abort();
                    errors.lock().remove(&vm.name);
                }
                exists
            });
            for vm in vms {
                running.entry(vm.provider_id.clone()).or_insert_with(|| {
                    let task = tasks.spawn(run(vm.clone(), context.clone(), errors.clone()));
                    (vm, task)
                });
            }
        }
        sleep(MACHINES_PERIOD).await;
    }
}

/// Runs one node until it is aborted.
async fn run(vm: Vm, context: NodeContext, errors: Errors) {
    let user = format!("system:node:{}", vm.name);
    let resolver = context.resolver.clone();
    let api = context.authorities.api(&context.shoot, resolver, &user, &["system:nodes"]);
    let network = context.network.clone();
    let (status_due, servers) = (Instant::now(), PodServers::default());
    let mut node = Node { vm: vm.clone(), status_due, servers, network, joined: None };
    loop {
        let round = async {
            let api = api.as_ref().map_err(|error| anyhow::anyhow!("no client: {error:#}"))?;
            timeout(ROUND_TIMEOUT, node.round(api)).await.context("the round took too long")?
        };
        match round.await {
            Ok(()) => drop(errors.lock().remove(&vm.name)),
            Err(error) => drop(errors.lock().insert(vm.name.clone(), format!("{error:#}"))),
        }
        sleep(ROUND_PERIOD).await;
    }
}

struct Node {
    vm: Vm,
    status_due: Instant,
    servers: PodServers,
    network: Option<Arc<ShootNetwork>>,
    /// This node in the network, once it has joined.
    joined: Option<ShootNode>,
}

impl Node {
    async fn round(&mut self, api: &Api) -> Result<()> {
        self.renew(api).await?;
        if Instant::now() >= self.status_due {
            self.register(api).await?;
            if let Some(network) = &self.network
                && self.joined.is_none()
            {
                self.joined = Some(network.join(&self.vm.name, &self.vm.zone).await?);
            }
            self.write_status(api).await?;
            self.status_due = Instant::now() + STATUS_PERIOD;
        }
        self.run_pods(api).await
    }

    /// Makes the Node unless it exists: a kubelet keeps the Node that it finds.
    async fn register(&self, api: &Api) -> Result<()> {
        let mut labels = json!({
            "kubernetes.io/hostname": self.vm.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        });
        if !self.vm.zone.is_empty() {
            labels["topology.kubernetes.io/zone"] = self.vm.zone.as_str().into();
        }
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": self.vm.name, "labels": labels},
            "spec": {"providerID": self.vm.provider_id},
        });
        let answer = api.post("/api/v1/nodes", &node).await?;
        ensure!(matches!(answer.status, 201 | 409), "{answer}");
        Ok(())
    }

    async fn renew(&self, api: &Api) -> Result<()> {
        let name = &self.vm.name;
        let time = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"namespace": "kube-node-lease", "name": name},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": time},
        });
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}");
        api.patch(&format!("{path}?fieldManager=kubelet&force=true"), APPLY, &lease).await?.ok().map(drop)
    }

    async fn write_status(&self, api: &Api) -> Result<()> {
        let time = now();
        let condition = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason, "lastHeartbeatTime": time});
        let resources = json!({"cpu": "2", "memory": "8Gi", "pods": "110"});
        let mut status = json!({
            "capacity": resources, "allocatable": resources,
            "addresses": [{"type": "Hostname", "address": self.vm.name}],
            "conditions": [
                condition("Ready", "True", "KubeletReady"),
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
            ],
            "nodeInfo": {
                "architecture": "amd64", "operatingSystem": "linux", "kubeletVersion": "v1.34.1",
                "containerRuntimeVersion": "containerd://2.0.0", "kernelVersion": "6.0", "osImage": "local",
                "machineID": self.vm.name, "systemUUID": self.vm.name, "bootID": self.vm.provider_id, "kubeProxyVersion": "",
            },
        });
        if let Some(node) = &self.joined {
            let internal = json!({"type": "InternalIP", "address": node.address()});
            status["addresses"] = json!([status["addresses"][0], internal]);
            status["daemonEndpoints"] = json!({"kubeletEndpoint": {"Port": KUBELET_PORT}});
        }
        let path = format!("/api/v1/nodes/{}/status", self.vm.name);
        api.patch(&path, STRATEGIC, &json!({"status": status})).await?.ok().map(drop)
    }

    /// Brings Pods of this node to Running, and removes those that are to be deleted.
    async fn run_pods(&mut self, api: &Api) -> Result<()> {
        let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{}", self.vm.name);
        let pods = api.get(&path).await?.ok()?;
        let pods = pods["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        self.servers.follow(pods);
        let is_real = |pod: &&Value| self.network.as_ref().is_some_and(|network| network.is_real(pod));
        for pod in pods.iter().filter(|pod| !is_real(pod)) {
            let field = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
            let path = format!("/api/v1/namespaces/{}/pods/{}", field("namespace"), field("name"));
            if !field("deletionTimestamp").is_empty() {
                let answer = api.delete(&format!("{path}?gracePeriodSeconds=0")).await?;
                ensure!(matches!(answer.status, 200 | 202 | 404), "{answer}");
            } else if pod["status"]["phase"] == "Pending" {
                let status = json!({"status": running(pod)});
                api.patch(&format!("{path}/status"), STRATEGIC, &status).await?.ok()?;
            }
        }
        Ok(())
    }
}

/// The status of a Pod all of whose containers run.
fn running(pod: &Value) -> Value {
    let time = now();
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": time});
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten().map(|container| {
        json!({
            "name": container["name"], "image": container["image"], "imageID": "", "ready": true, "started": true,
            "restartCount": 0, "state": {"running": {"startedAt": time}},
        })
    });
    let conditions = ["PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"].map(condition);
    json!({
        "phase": "Running", "startTime": time, "containerStatuses": containers.collect::<Vec<_>>(),
        "conditions": conditions,
    })
}

fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
