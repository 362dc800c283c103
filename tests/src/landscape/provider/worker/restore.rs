//! Machines that exist in the cloud, as the other seed knew them.

use std::collections::BTreeMap;

use repot_extension::{Failure, State};
use serde::Deserialize;
use serde_json::Value;

use super::api::{MachineApi, api_version};

/// Metadata that the other API server has written.
const OF_SERVER: [&str; 9] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "ownerReferences",
    "selfLink",
];

/// `status.state` of a Worker that is to be restored, in the form of Gardener.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct MachineState {
    machine_deployments: BTreeMap<String, DeploymentState>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeploymentState {
    replicas: i32,
    machine_sets: Vec<Value>,
    machines: Vec<Value>,
}

impl MachineState {
    pub(super) fn read(state: &State) -> Result<Self, Failure> {
        let parsed = match state {
            State::Bytes(bytes) => serde_json::from_slice(bytes),
            State::Json(raw) => raw.decode(),
        };
        parsed.map_err(|error| Failure::new(format!("the state of the machines is unreadable: {error}")))
    }

    /// Replicas of all MachineDeployments.
    pub(super) fn all_replicas(&self) -> BTreeMap<String, i32> {
        self.machine_deployments.iter().map(|(name, state)| (name.clone(), state.replicas)).collect()
    }
}

/// Creates the MachineSets and Machines of the state; those that exist stay as they are. MachineSets are adopted by their selectors.
pub(super) async fn create(api: &MachineApi, state: &MachineState) -> Result<(), Failure> {
    for deployment in state.machine_deployments.values() {
        for set in &deployment.machine_sets {
            api.create(api.sets(), &cleaned(set, "MachineSet")).await?;
        }
        for machine in &deployment.machines {
            api.create(api.machines(), &cleaned(machine, "Machine")).await?;
        }
    }
    Ok(())
}

/// The object without its status and without what another API server wrote to it. Lists leave the kind of their items out.
fn cleaned(object: &Value, kind: &str) -> Value {
    let mut object = object.clone();
    if let Some(object) = object.as_object_mut() {
        object.insert("apiVersion".to_owned(), api_version().into());
        object.insert("kind".to_owned(), kind.into());
        object.remove("status");
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|field, _| !OF_SERVER.contains(&field.as_str()));
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_and_provider_id_stay() {
        let labels = json!({"name": "pool", "node": "machine-1"});
        let machine = json!({
            "metadata": {
                "name": "machine-1", "labels": labels, "uid": "1", "resourceVersion": "2", "ownerReferences": [{}],
                "deletionTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"providerID": "counting:///eu/i-1"}, "status": {"node": "machine-1"},
        });
        let wanted = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": {"name": "machine-1", "labels": labels},
            "spec": {"providerID": "counting:///eu/i-1"},
        });
        assert_eq!(cleaned(&machine, "Machine"), wanted);
    }
}
