//! What stands around the members: how they are found, what they are told, and how many may be missing.

use kube::ResourceExt;
use repot_etcd_core::agent::config::Config;
use serde_json::{Value, json};

use super::{Layout, metadata};
use crate::etcd::{api::Etcd, names};

/// Members ask nothing of kube-apiserver, so no token is mounted and no role is bound.
pub fn service_account(etcd: &Etcd) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(etcd, &etcd.name_any()),
        "automountServiceAccountToken": false,
    })
}

/// One member at a time, and none while there are two: then each is needed. A single one may go, or no node could be emptied.
pub fn disruption_budget(etcd: &Etcd, layout: &Layout) -> Value {
    let name = etcd.name_any();
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata(etcd, &name),
        "spec": {
            "maxUnavailable": i32::from(layout.members != 2), "selector": {"matchLabels": names::labels(&name)},
        },
    })
}

/// Members find each other before they are ready.
pub fn peer(etcd: &Etcd) -> Value {
    let name = etcd.name_any();
    let members = &etcd.spec.etcd;
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata(etcd, &names::peer_service(&name)),
        "spec": {
            "clusterIP": "None", "publishNotReadyAddresses": true, "selector": names::labels(&name),
            "ports": ports(etcd, vec![port("peer", members.peer_port())]),
        },
    })
}

/// Clients are led to members that are ready.
///
/// While a standby has not founded the etcd, no member is. Its gateway takes connections then and keeps calls waiting, so that a
/// kube-apiserver can start before there is an etcd: it exits 20 s after it first failed to connect.
pub fn client(etcd: &Etcd, layout: &Layout) -> Value {
    let name = etcd.name_any();
    let wanted = &etcd.spec.etcd.client_service;
    let mut service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata(etcd, &names::client_service(&name)),
        "spec": {
            "type": "ClusterIP", "selector": names::labels(&name),
            "ports": ports(etcd, Vec::new()),
        },
    });
    let labels = wanted.labels.iter().map(|(key, value)| (key.clone(), value.clone()));
    let labels: serde_json::Map<_, _> =
        labels.chain(names::labels(&name)).map(|(key, value)| (key, value.into())).collect();
    service["metadata"]["labels"] = labels.into();
    if !wanted.annotations.is_empty() {
        service["metadata"]["annotations"] = json!(wanted.annotations);
    }
    if layout.standby && !layout.founded && etcd.spec.etcd.gateway.is_some() {
        service["spec"]["publishNotReadyAddresses"] = true.into();
    }
    if let Some(distribution) = &wanted.traffic_distribution {
        service["spec"]["trafficDistribution"] = distribution.clone().into();
    }
    service
}

/// The configuration of the agents. It is JSON, which is YAML too.
pub fn config_map(etcd: &Etcd, config: &Config) -> Value {
    let text = serde_json::to_string_pretty(config).unwrap_or_default();
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(etcd, &names::config_map(&etcd.name_any())),
        "data": {"agent.yaml": text},
    })
}

/// What clients reach, after what only members do.
fn ports(etcd: &Etcd, mut ports: Vec<Value>) -> Vec<Value> {
    let gateway = etcd.spec.etcd.gateway.as_ref();
    ports.extend([port("client", etcd.spec.etcd.client_port()), port("agent", etcd.spec.agent_port())]);
    ports.extend(gateway.map(|gateway| port("gateway", gateway.port())));
    ports
}

fn port(name: &str, number: u16) -> Value {
    json!({"name": name, "port": number, "protocol": "TCP", "targetPort": name})
}
