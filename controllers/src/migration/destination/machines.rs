//! Machines at the destination beside those that were carried: the machine-controller-manager replaces a node for each difference
//! that matters here. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use repot_extension::RawJson;
use serde::Deserialize;
use serde_json::Value;

use crate::{migration::error::Error, shootstate::machines::MachineState};

/// How many differences are told.
const MOST: usize = 20;
/// Annotation of a Node that machine-controller-manager leaves alone.
const NOT_MANAGED: &str = "node.machine.sapcloud.io/not-managed-by-mcm";

#[derive(Default, Deserialize)]
#[serde(default)]
struct Object {
    metadata: Metadata,
    spec: Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: String,
    labels: BTreeMap<String, String>,
}

/// How the machines differ; empty where no node would be replaced.
///
/// # Errors
/// [`Error::Form`] where an object is none of machine-controller-manager.
pub fn differences(carried: &MachineState, found: &MachineState) -> Result<Vec<String>, Error> {
    let mut all = Vec::new();
    for (name, wanted) in &carried.machine_deployments {
        let Some(has) = found.machine_deployments.get(name) else {
            all.push(format!("MachineDeployment {name} is missing"));
            continue;
        };
        if wanted.replicas != has.replicas {
            all.push(format!(
                "MachineDeployment {name} has {} replicas, not {}",
                has.replicas, wanted.replicas
            ));
        }
        compare("MachineSet", &wanted.machine_sets, &has.machine_sets, &of_set, &mut all)?;
        compare("Machine", &wanted.machines, &has.machines, &of_machine, &mut all)?;
    }
    let others =
        found.machine_deployments.keys().filter(|name| !carried.machine_deployments.contains_key(*name));
    all.extend(others.map(|name| format!("MachineDeployment {name} was not at the source")));
    all.truncate(MOST);
    Ok(all)
}

/// Nodes that belong to no Machine, by their name or their VM. They joined after the ShootState was stored for the last time, and the
/// machine-controller-manager would delete their VMs as orphans. The name is what a Machine says of its Node: provider IDs of Node and
/// Machine are written by different programs, and differ on some clouds.
///
/// # Errors
/// [`Error::Form`] where a Machine is none of machine-controller-manager.
pub fn without_machine(nodes: &[Node], found: &MachineState) -> Result<Vec<String>, Error> {
    let (mut names, mut vms) = (BTreeSet::new(), BTreeSet::new());
    for deployment in found.machine_deployments.values() {
        for machine in by_name("Machine", &deployment.machines)?.into_values() {
            vms.extend(machine.spec.get("providerID").and_then(Value::as_str).map(str::to_owned));
            names.extend(machine.metadata.labels.get("node").cloned());
        }
    }
    let has_machine = |node: &&Node| {
        let vm = node.spec.as_ref().and_then(|spec| spec.provider_id.as_ref());
        names.contains(&node.name_any()) || vm.is_some_and(|vm| vms.contains(vm))
    };
    let is_foreign = |node: &&Node| node.annotations().get(NOT_MANAGED).is_some_and(|value| value == "1");
    let unknown = nodes.iter().filter(|node| !has_machine(node) && !is_foreign(node)).take(MOST);
    Ok(unknown
        .map(|node| {
            format!("Node {} has no Machine; delete the Node when its VM may be deleted", node.name_any())
        })
        .collect())
}

/// What of a MachineSet decides whether its machines are replaced.
fn of_set(object: &Object) -> Vec<(&'static str, String)> {
    let at = |pointer: &str| object.spec.pointer(pointer).cloned().unwrap_or_default().to_string();
    vec![("class", at("/template/spec/class")), ("replicas", at("/replicas"))]
}

/// What ties a Machine to its VM and node.
fn of_machine(object: &Object) -> Vec<(&'static str, String)> {
    let at = |pointer: &str| object.spec.pointer(pointer).cloned().unwrap_or_default().to_string();
    let node = object.metadata.labels.get("node").cloned().unwrap_or_default();
    vec![("class", at("/class")), ("providerID", at("/providerID")), ("label node", node)]
}

fn compare(
    kind: &str,
    wanted: &[RawJson],
    found: &[RawJson],
    of: &dyn Fn(&Object) -> Vec<(&'static str, String)>,
    all: &mut Vec<String>,
) -> Result<(), Error> {
    let (wanted, mut found) = (by_name(kind, wanted)?, by_name(kind, found)?);
    for (name, object) in &wanted {
        let Some(has) = found.remove(name) else {
            all.push(format!("{kind} {name} is missing"));
            continue;
        };
        for ((field, before), (_, after)) in of(object).into_iter().zip(of(&has)) {
            if before != after {
                all.push(format!("{field} of {kind} {name} is {after}, not {before}"));
            }
        }
    }
    all.extend(found.into_keys().map(|name| format!("{kind} {name} was not at the source")));
    Ok(())
}

fn by_name(kind: &str, objects: &[RawJson]) -> Result<BTreeMap<String, Object>, Error> {
    let form = |source| Error::Form { what: format!("a {kind}"), source };
    let decoded = objects.iter().map(|object| object.decode::<Object>().map_err(form));
    decoded.map(|object| object.map(|object| (object.metadata.name.clone(), object))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::shootstate::machines::MachineDeploymentState;

    fn raw(value: &Value) -> RawJson {
        RawJson::encode(value).expect("JSON")
    }

    fn state(class: &str, provider_id: &str, node: &str) -> MachineState {
        let set = json!({"metadata": {"name": "s"}, "spec": {"replicas": 1, "template": {"spec": {"class": {"name": class}}}}});
        let machine = json!({
            "metadata": {"name": "m", "labels": {"node": node}}, "spec": {"providerID": provider_id, "class": {"name": class}},
        });
        let deployment = MachineDeploymentState {
            replicas: 1,
            machine_sets: vec![raw(&set)],
            machines: vec![raw(&machine)],
        };
        MachineState { machine_deployments: BTreeMap::from([("d".to_owned(), deployment)]) }
    }

    fn told(carried: &MachineState, found: &MachineState) -> Vec<String> {
        differences(carried, found).expect("they can be compared")
    }

    #[test]
    fn node_without_a_machine_is_told() {
        let node = |name: &str, vm: &str, managed: &str| {
            let annotations = json!({NOT_MANAGED: managed});
            serde_json::from_value::<Node>(
                json!({"metadata": {"name": name, "annotations": annotations}, "spec": {"providerID": vm}}),
            )
            .expect("a Node")
        };
        let state = state("c", "aws:///region/i-1", "n");
        let nodes = [
            node("n", "aws:///region/zone/i-1", ""),
            node("renamed", "aws:///region/i-1", ""),
            node("own", "other:///1", "1"),
            node("new", "aws:///region/zone/i-2", ""),
        ];
        let told = without_machine(&nodes, &state).expect("Machines");
        assert_eq!(told, ["Node new has no Machine; delete the Node when its VM may be deleted"]);
        assert!(without_machine(&nodes[..3], &state).expect("Machines").is_empty());
    }

    #[test]
    fn equal_machines_do_not_differ() {
        let state = state("c", "cloud:///1", "n");
        assert_eq!(told(&state, &state.clone()), Vec::<String>::new());
    }

    #[test]
    fn each_difference_that_replaces_a_node_is_told() {
        let carried = state("c", "cloud:///1", "n");
        assert_eq!(
            told(&carried, &state("c", "cloud:///2", "")),
            [
                "providerID of Machine m is \"cloud:///2\", not \"cloud:///1\"",
                "label node of Machine m is , not n"
            ]
        );
        let other = told(&carried, &state("d", "cloud:///1", "n"));
        assert!(other[0].starts_with("class of MachineSet s is"), "{other:?}");
        assert_eq!(told(&carried, &MachineState::default()), ["MachineDeployment d is missing"]);
        assert_eq!(told(&MachineState::default(), &carried), ["MachineDeployment d was not at the source"]);
        let mut less = carried.clone();
        less.machine_deployments.get_mut("d").expect("it").machines.clear();
        assert_eq!(told(&carried, &less), ["Machine m is missing"]);
        assert_eq!(told(&less, &carried), ["Machine m was not at the source"]);
    }
}
