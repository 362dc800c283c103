//! The StatefulSet of the members.

use std::collections::BTreeMap;

use kube::ResourceExt;
use serde_json::{Map, Value, json};

use super::{Layout, config, metadata, paths, pod};
use crate::etcd::{
    api::{Etcd, FENCE, GENERATION, VOLUMES},
    names,
};

/// What makes Pods start anew when it changes.
const CHECKSUM: &str = "checksum/etcd-config";
/// Size of volumes where nothing is said.
const CAPACITY: &str = "16Gi";
/// An agent that is told to stop hands the leader over and takes a last delta.
const GRACE_SECONDS: u32 = 60;

pub fn stateful_set(etcd: &Etcd, layout: &Layout) -> Value {
    let name = etcd.name_any();
    let mut metadata = metadata(etcd, &name);
    metadata["annotations"] = json!({GENERATION: etcd.metadata.generation.unwrap_or_default().to_string()});
    if let Some(fence) = etcd.annotations().get(FENCE) {
        metadata["annotations"][FENCE] = json!(fence);
    }
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata,
        "spec": {
            "replicas": layout.members, "serviceName": names::peer_service(&name),
            // Members need each other to become ready.
            "podManagementPolicy": "Parallel",
            // It would replace a member that is well while another is down.
            "updateStrategy": {"type": "OnDelete"},
            // A volume is given up only by somebody who knows what is on it.
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
            "selector": {"matchLabels": names::labels(&name)},
            "template": template(etcd, layout),
            "volumeClaimTemplates": claims(etcd, layout),
        },
    })
}

/// Templates of claims cannot be changed, so those of a StatefulSet that exists stay as they are.
fn claims(etcd: &Etcd, layout: &Layout) -> Value {
    let exists = layout.exists.as_ref().and_then(|set| set.spec.as_ref());
    if let Some(templates) = exists.and_then(|spec| spec.volume_claim_templates.as_ref()) {
        return json!(templates);
    }
    let volumes = etcd.volumes();
    let mut labels = names::labels(&etcd.name_any());
    labels.insert(VOLUMES.to_owned(), volumes.clone());
    let size = etcd.spec.storage_capacity.as_ref().map_or(CAPACITY, |size| size.0.as_str());
    let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}});
    if let Some(class) = &etcd.spec.storage_class {
        spec["storageClassName"] = class.clone().into();
    }
    json!([{
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": volumes, "labels": labels}, "spec": spec,
    }])
}

fn template(etcd: &Etcd, layout: &Layout) -> Value {
    let name = etcd.name_any();
    let labels: BTreeMap<_, _> = etcd.spec.labels.clone().into_iter().chain(names::labels(&name)).collect();
    let mut annotations = etcd.spec.annotations.clone();
    annotations.insert(CHECKSUM.to_owned(), config::checksum(&config::config(etcd, layout)));
    json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": pod_spec(etcd, layout)})
}

fn pod_spec(etcd: &Etcd, layout: &Layout) -> Value {
    let name = etcd.name_any();
    let told = json!({"configMap": {"name": names::config_map(&name)}});
    let mut mounted = vec![pod::mounted("config", paths::CONFIG, true, told)];
    mounted.extend(pod::all_certificates(etcd));
    if let Some(store) = &etcd.spec.backup.store {
        mounted.extend(pod::store("store", store, paths::STORE, paths::LOCAL_STORE));
    }
    // It stays when the standby has taken over: without it the Pod would be replaced.
    if let Some(source) = etcd.spec.backup.source_store.as_ref().filter(|_| layout.standby) {
        // The access to the other etcd's store ends some time after that, and the Pod has to start without it.
        mounted.extend(pod::store("source", source, paths::SOURCE, paths::LOCAL_SOURCE).into_iter().map(
            |mut one| {
                if one.volume["secret"].is_object() {
                    one.volume["secret"]["optional"] = true.into();
                }
                one
            },
        ));
    }
    let data = json!({"name": etcd.volumes(), "mountPath": paths::DATA});
    let mounts: Vec<Value> =
        std::iter::once(data).chain(mounted.iter().map(|one| one.mount.clone())).collect();
    let volumes: Vec<Value> = mounted.into_iter().map(|one| one.volume).collect();
    let mut spec = json!({
        "serviceAccountName": name, "automountServiceAccountToken": false, "enableServiceLinks": false,
        "terminationGracePeriodSeconds": GRACE_SECONDS, "securityContext": pod::security(etcd),
        "containers": [container(etcd, layout, &mounts)], "volumes": volumes,
    });
    if let Some(class) = &etcd.spec.priority_class_name {
        spec["priorityClassName"] = class.clone().into();
    }
    schedule(etcd, &mut spec);
    spec
}

fn container(etcd: &Etcd, layout: &Layout, mounts: &[Value]) -> Value {
    let field =
        |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let port = |name: &str, number: u16| json!({"name": name, "containerPort": number, "protocol": "TCP"});
    let (members, agent) = (&etcd.spec.etcd, etcd.spec.agent_port());
    let mut container = json!({
        "name": "etcd", "image": members.image.as_ref().unwrap_or(&layout.image),
        "command": ["repot", "etcd-agent", "--config", format!("{}/agent.yaml", paths::CONFIG)],
        "env": [field("POD_NAME", "metadata.name"), field("POD_IP", "status.podIP")],
        "ports": [port("client", members.client_port()), port("peer", members.peer_port()), port("agent", agent)],
        "readinessProbe": readiness(etcd), "securityContext": pod::container_security(), "volumeMounts": mounts,
    });
    if let (Some(gateway), Some(ports)) = (&members.gateway, container["ports"].as_array_mut()) {
        ports.push(port("gateway", gateway.port()));
    }
    if let Some(resources) = &members.resources {
        container["resources"] = resources.clone();
    }
    container
}

/// A member is ready when it answers linearizable reads: not as a learner, and not without a quorum.
fn readiness(etcd: &Etcd) -> Value {
    let scheme = if etcd.spec.etcd.client_url_tls.is_some() { "HTTPS" } else { "HTTP" };
    json!({
        "httpGet": {"path": "/readyz", "port": "agent", "scheme": scheme},
        "periodSeconds": 2, "timeoutSeconds": 5, "failureThreshold": 3,
    })
}

/// Members keep apart where nobody says otherwise: never two on a node if there is another, and zones evenly filled.
fn schedule(etcd: &Etcd, spec: &mut Value) {
    let wanted = &etcd.spec.scheduling_constraints;
    if wanted.affinity.is_none() && wanted.topology_spread_constraints.is_none() {
        let selector = json!({"matchLabels": names::labels(&etcd.name_any())});
        let spread = |key: &str| json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector});
        spec["topologySpreadConstraints"] =
            json!([spread("topology.kubernetes.io/zone"), spread("kubernetes.io/hostname")]);
        return;
    }
    let given =
        [("affinity", &wanted.affinity), ("topologySpreadConstraints", &wanted.topology_spread_constraints)];
    let given = given.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value.clone()?)));
    if let Some(spec) = spec.as_object_mut() {
        spec.extend(given.collect::<Map<_, _>>());
    }
}
