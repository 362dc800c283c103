//! Nodes of the Shoot: they are cordoned with a mark, and those with the mark are uncordoned.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    errors::{is_conflict, is_not_found},
    isolation::names::{CORDONED_FOR, MANAGER},
    migration::{Error, Result, seed::read},
};

/// All Nodes of the Shoot.
///
/// # Errors
/// Where the API of the Shoot does not answer.
pub async fn all(shoot: &Client) -> Result<Vec<Node>> {
    read::pages(&Api::<Node>::all(shoot.clone()), "", "the Nodes of the Shoot").await
}

/// Names of these Nodes that take new Pods.
pub fn open(nodes: &[Node], names: &BTreeSet<String>) -> Vec<String> {
    let is_open = |node: &&Node| names.contains(&node.name_any()) && !is_cordoned(node);
    nodes.iter().filter(is_open).map(ResourceExt::name_any).collect()
}

/// Names of Nodes that were cordoned for a zone.
pub fn marked(nodes: &[Node], zone: &str) -> Vec<String> {
    nodes.iter().filter(|node| is_marked(node, zone)).map(ResourceExt::name_any).collect()
}

fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
}

fn is_marked(node: &Node, zone: &str) -> bool {
    node.annotations().get(CORDONED_FOR).map(String::as_str) == Some(zone)
}

/// Cordons those of these Nodes that take Pods. One that a person has cordoned is left as it is.
///
/// # Errors
/// [`Error::Write`]; a Node that has changed meanwhile is looked at again.
pub async fn cordon(shoot: &Client, nodes: &[Node], names: &[String], zone: &str) -> Result<()> {
    let is_open = |node: &&Node| names.contains(&node.name_any()) && !is_cordoned(node);
    let patch = json!({"metadata": {"annotations": {CORDONED_FOR: zone}}, "spec": {"unschedulable": true}});
    write(shoot, nodes.iter().filter(is_open), &patch, "cordon").await
}

/// Uncordons the Nodes that were cordoned for a zone.
///
/// # Errors
/// [`Error::Write`]; a Node that has changed meanwhile is looked at again.
pub async fn uncordon(shoot: &Client, nodes: &[Node], zone: &str) -> Result<()> {
    let patch = json!({"metadata": {"annotations": {CORDONED_FOR: null}}, "spec": {"unschedulable": null}});
    write(shoot, nodes.iter().filter(|node| is_marked(node, zone)), &patch, "uncordon").await
}

async fn write<'a>(
    shoot: &Client,
    nodes: impl Iterator<Item = &'a Node>,
    patch: &Value,
    task: &str,
) -> Result<()> {
    let all = Api::<Node>::all(shoot.clone());
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    for node in nodes {
        let mut patch = patch.clone();
        patch["metadata"]["resourceVersion"] = node.resource_version().into();
        match all.patch(&node.name_any(), &params, &Patch::Merge(patch)).await {
            // A kubelet reports every few seconds, and machines end: the next pass sees the others.
            Err(error) if is_not_found(&error) || is_conflict(&error) => {}
            outcome => drop(outcome.map_err(Error::write(format!("{task} Node {}", node.name_any())))?),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, annotations: &Value, unschedulable: bool) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": name, "annotations": annotations}, "spec": {"unschedulable": unschedulable},
        }))
        .expect("a Node")
    }

    #[test]
    fn node_of_a_person_is_neither_open_nor_ours() {
        let nodes = [
            node("open", &json!({}), false),
            node("ours", &json!({CORDONED_FOR: "z1"}), true),
            node("of-a-person", &json!({}), true),
            node("elsewhere", &json!({}), false),
        ];
        let names = ["open", "ours", "of-a-person"].map(str::to_owned).into();
        assert_eq!(open(&nodes, &names), ["open"]);
        assert_eq!(marked(&nodes, "z1"), ["ours"]);
        assert_eq!(marked(&nodes, "z2"), [""; 0]);
    }
}
