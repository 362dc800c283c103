//! Cluster: what extension controllers know of the garden.

use kube::core::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::kind::kube_resource;
use crate::{raw::RawJson, status::OperationState};

/// The Shoot, its Seed and its CloudProfile as gardenlet saw them last; named as the namespace of the control plane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cluster {
    /// Group and version, `extensions.gardener.cloud/v1alpha1`.
    #[serde(default)]
    pub api_version: String,
    /// Name of the kind in CamelCase.
    #[serde(default)]
    pub kind: String,
    /// Kubernetes metadata of the object.
    pub metadata: ObjectMeta,
    /// The objects of the garden.
    pub spec: ClusterSpec,
}

/// Objects of the garden, each whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    /// The CloudProfile that the Shoot uses.
    pub cloud_profile: RawJson,
    /// The Seed; self-hosted Shoots have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<RawJson>,
    /// The Shoot with its status.
    pub shoot: RawJson,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PartialShoot {
    spec: PartialShootSpec,
    status: PartialShootStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PartialShootSpec {
    hibernation: Option<PartialHibernation>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PartialHibernation {
    enabled: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PartialShootStatus {
    last_operation: Option<PartialOperation>,
}

#[derive(Deserialize)]
struct PartialOperation {
    #[serde(default)]
    state: Option<OperationState>,
}

impl Cluster {
    /// Whether the last operation of the Shoot is Failed: then no extension controller acts until gardenlet begins again.
    ///
    /// # Errors
    /// When `spec.shoot` does not have the shape of a Shoot.
    pub fn shoot_has_failed(&self) -> Result<bool, serde_json::Error> {
        let state = self.shoot()?.status.last_operation.and_then(|operation| operation.state);
        Ok(state == Some(OperationState::Failed))
    }

    /// Whether the Shoot is to be hibernated: then it has no machines, whatever its Workers say.
    ///
    /// # Errors
    /// When `spec.shoot` does not have the shape of a Shoot.
    pub fn shoot_is_hibernated(&self) -> Result<bool, serde_json::Error> {
        Ok(self.shoot()?.spec.hibernation.and_then(|hibernation| hibernation.enabled) == Some(true))
    }

    fn shoot(&self) -> Result<PartialShoot, serde_json::Error> {
        if self.spec.shoot.is_null() { Ok(PartialShoot::default()) } else { self.spec.shoot.decode() }
    }
}

kube_resource!(Cluster, "clusters", ClusterResourceScope);

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(shoot: &str) -> Cluster {
        let text = format!(r#"{{"metadata":{{}},"spec":{{"cloudProfile":{{}},"shoot":{shoot}}}}}"#);
        serde_json::from_str(&text).expect("a Cluster")
    }

    #[test]
    fn shoot_is_hibernated_where_its_spec_says_so() {
        for (shoot, hibernated) in [
            ("{}", false),
            ("null", false),
            (r#"{"spec":{"hibernation":null},"status":{"hibernated":true}}"#, false),
            (r#"{"spec":{"hibernation":{"enabled":false}}}"#, false),
            (r#"{"spec":{"hibernation":{"enabled":true}}}"#, true),
        ] {
            assert_eq!(cluster(shoot).shoot_is_hibernated().expect("a Shoot"), hibernated, "{shoot}");
        }
    }

    #[test]
    fn only_a_failed_shoot_has_failed() {
        for (shoot, failed) in [
            ("{}", false),
            ("null", false),
            (r#"{"status":{"lastOperation":{"state":"Error"}}}"#, false),
            (r#"{"metadata":{"annotations":{"shoot.gardener.cloud/ignore":"true"}}}"#, false),
            (r#"{"status":{"lastOperation":{"state":"Failed"}}}"#, true),
        ] {
            assert_eq!(cluster(shoot).shoot_has_failed().expect("a Shoot"), failed, "{shoot}");
        }
        assert!(cluster("[1]").shoot_has_failed().is_err());
    }
}
