//! What a sick zone of a seed touches: members of etcds and API servers of control planes. No isolation moves them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{Node, Pod},
};
use kube::{Api, Client, ResourceExt, api::ListParams};
use serde::Serialize;

use crate::{
    etcd::names::PART_OF,
    migration::{Error, Result, seed::read},
};

/// Label of Nodes with their zone (Kubernetes).
const ZONE: &str = "topology.kubernetes.io/zone";
/// Labels of the Pods of kube-apiservers (Gardener).
const API_SERVERS: &str = "app=kubernetes,role=apiserver";

/// A zone of a seed, and the control planes that have something there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SeedZone {
    /// Nodes of the zone.
    pub nodes: usize,
    /// By namespace, in order.
    pub control_planes: Vec<Touched>,
}

/// A control plane that has something in the zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Touched {
    /// Namespace of the control plane.
    pub namespace: String,
    /// Its etcds that have members in the zone.
    pub etcds: Vec<TouchedEtcd>,
    /// How many kube-apiservers are in the zone.
    pub api_servers_here: usize,
    /// How many ready kube-apiservers are elsewhere.
    pub api_servers_left: usize,
}

/// An etcd that has members in the zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TouchedEtcd {
    /// Name of the etcd.
    pub name: String,
    /// Members that it has by its StatefulSet.
    pub members: usize,
    /// How many members are in the zone.
    pub here: usize,
    /// How many ready members are elsewhere.
    pub left: usize,
}

impl TouchedEtcd {
    /// Whether members elsewhere are a majority.
    #[must_use]
    pub fn keeps_quorum(&self) -> bool {
        self.left > self.members / 2
    }
}

impl Touched {
    /// What is lost with the zone, in words; empty where the control plane serves on.
    #[must_use]
    pub fn losses(&self) -> Vec<String> {
        let quorums = self.etcds.iter().filter(|etcd| !etcd.keeps_quorum());
        let quorums = quorums.map(|etcd| format!("{} loses its quorum", etcd.name));
        let is_api_lost = self.api_servers_here > 0 && self.api_servers_left == 0;
        quorums.chain(is_api_lost.then(|| "no API server is left".to_owned())).collect()
    }
}

/// The zones of the Nodes of a seed.
///
/// # Errors
/// Where its API server does not answer, or refuses.
pub async fn zones(seed: &Client) -> Result<BTreeSet<String>> {
    let nodes = Api::<Node>::all(seed.clone()).list_metadata(&ListParams::default().labels(ZONE)).await;
    let nodes = nodes.map_err(Error::read("Nodes"))?;
    Ok(nodes.iter().filter_map(|node| node.labels().get(ZONE).cloned()).collect())
}

/// Reads what a zone of a seed has.
///
/// # Errors
/// Where its API server does not answer, or refuses.
pub async fn read(seed: &Client, zone: &str) -> Result<SeedZone> {
    let of_zone = ListParams::default().labels(&format!("{ZONE}={zone}"));
    let nodes = Api::<Node>::all(seed.clone()).list_metadata(&of_zone).await;
    let nodes = nodes.map_err(Error::read(format!("Nodes of zone {zone}")))?;
    let nodes: BTreeSet<String> = nodes.iter().map(ResourceExt::name_any).collect();
    let pods = Api::<Pod>::all(seed.clone());
    let members = read::pages(&pods, PART_OF, "Pods of etcds").await?;
    let servers = read::pages(&pods, API_SERVERS, "Pods of kube-apiservers").await?;
    let sets = Api::<StatefulSet>::all(seed.clone());
    let sets = read::pages(&sets, PART_OF, "StatefulSets of etcds").await?;
    Ok(SeedZone { nodes: nodes.len(), control_planes: touched(&nodes, &sets, &members, &servers) })
}

fn touched(nodes: &BTreeSet<String>, sets: &[StatefulSet], members: &[Pod], servers: &[Pod]) -> Vec<Touched> {
    let mut all = BTreeMap::<String, Touched>::new();
    for set in sets {
        let etcd = etcd(set, nodes, members);
        if etcd.here > 0 {
            let namespace = set.namespace().unwrap_or_default();
            all.entry(namespace).or_default().etcds.push(etcd);
        }
    }
    for server in servers.iter().filter(|pod| is_here(pod, nodes)) {
        all.entry(server.namespace().unwrap_or_default()).or_default().api_servers_here += 1;
    }
    for (namespace, found) in &mut all {
        namespace.clone_into(&mut found.namespace);
        let is_left = |pod: &&Pod| pod.namespace().as_ref() == Some(namespace) && is_left(pod, nodes);
        found.api_servers_left = servers.iter().filter(is_left).count();
    }
    all.into_values().collect()
}

fn etcd(set: &StatefulSet, nodes: &BTreeSet<String>, members: &[Pod]) -> TouchedEtcd {
    let own = || members.iter().filter(|pod| is_of(pod, set));
    let replicas = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    TouchedEtcd {
        name: set.labels().get(PART_OF).cloned().unwrap_or_default(),
        members: usize::try_from(replicas).unwrap_or_default(),
        here: own().filter(|pod| is_here(pod, nodes)).count(),
        left: own().filter(|pod| is_left(pod, nodes)).count(),
    }
}

fn is_of(pod: &Pod, set: &StatefulSet) -> bool {
    pod.owner_references().iter().any(|owner| Some(&owner.uid) == set.uid().as_ref())
}

fn node_of(pod: &Pod) -> Option<&String> {
    pod.spec.as_ref()?.node_name.as_ref()
}

fn is_here(pod: &Pod, nodes: &BTreeSet<String>) -> bool {
    node_of(pod).is_some_and(|node| nodes.contains(node))
}

/// One that is not ready, or is ending, serves nobody when the zone goes.
fn is_left(pod: &Pod, nodes: &BTreeSet<String>) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    let is_ready = conditions.any(|one| one.type_ == "Ready" && one.status == "True");
    let is_elsewhere = node_of(pod).is_some_and(|node| !nodes.contains(node));
    is_ready && is_elsewhere && pod.metadata.deletion_timestamp.is_none()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(namespace: &str, node: &str, ready: bool, owner: &str) -> Pod {
        let owners = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "main", "uid": owner}]);
        let status = if ready { "True" } else { "False" };
        serde_json::from_value(json!({
            "metadata": {"name": node, "namespace": namespace, "ownerReferences": owners},
            "spec": {"nodeName": node, "containers": []},
            "status": {"conditions": [{"type": "Ready", "status": status}]},
        }))
        .expect("a Pod")
    }

    fn set(namespace: &str, uid: &str, replicas: u32) -> StatefulSet {
        let spec: Value = json!({"replicas": replicas, "selector": {}, "serviceName": "", "template": {}});
        serde_json::from_value(json!({
            "metadata": {"name": "main", "namespace": namespace, "uid": uid, "labels": {PART_OF: "main"}},
            "spec": spec,
        }))
        .expect("a StatefulSet")
    }

    fn losses(of_zone: &[&str], sets: &[StatefulSet], members: &[Pod], servers: &[Pod]) -> Vec<Vec<String>> {
        let nodes = of_zone.iter().map(|name| (*name).to_owned()).collect();
        touched(&nodes, sets, members, servers).iter().map(Touched::losses).collect()
    }

    #[test]
    fn members_elsewhere_keep_the_quorum_only_where_they_are_ready_and_a_majority() {
        let members = |last: bool| ["a", "b", "c"].map(|node| pod("n", node, node != "c" || last, "1"));
        let sets = [set("n", "1", 3)];
        assert_eq!(losses(&["b"], &sets, &members(true), &[]), [[""; 0]]);
        assert_eq!(losses(&["b"], &sets, &members(false), &[]), [["main loses its quorum"]]);
        assert_eq!(losses(&["b", "c"], &sets, &members(true), &[]), [["main loses its quorum"]]);
        // Nothing of it is there.
        assert_eq!(losses(&["d"], &sets, &members(true), &[]), [[""; 0]; 0]);
        assert_eq!(
            losses(&["a"], &[set("n", "1", 1)], &[pod("n", "a", true, "1")], &[]),
            [["main loses its quorum"]]
        );
    }

    #[test]
    fn control_plane_needs_an_api_server_of_its_own_elsewhere() {
        let server = |namespace, node| pod(namespace, node, true, "2");
        let servers = [server("m", "a"), server("n", "b"), server("n", "c")];
        assert_eq!(losses(&["b"], &[], &[], &servers), [[""; 0]]);
        assert_eq!(losses(&["b", "c"], &[], &[], &servers), [["no API server is left"]]);
        let mut ending = servers.clone();
        ending[2].metadata.deletion_timestamp = serde_json::from_value(json!("2026-05-01T06:30:00Z")).ok();
        assert_eq!(losses(&["b"], &[], &[], &ending), [["no API server is left"]]);
    }
}
