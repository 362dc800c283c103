//! Worker: the machines of a Shoot.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{SecretKeySelector, Taint},
    apimachinery::pkg::{apis::meta::v1::Time, util::intstr::IntOrString},
};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use repot_api::names;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{SecretRef, kind::extension_kind};
use crate::raw::RawJson;

extension_kind! {
    /// The machines of a Shoot, in pools.
    Worker (WorkerSpec, WorkerStatus, "workers", "extensions.gardener.cloud/worker", NamespaceResourceScope)
    required {
        /// Region in which the machines are.
        region: String,
        /// Secret with the credentials for the provider.
        secret_ref: SecretRef,
        /// Pools of equal machines.
        pools: Vec<WorkerPool>,
    }
    optional {
        /// `status.providerStatus` of the Shoot's Infrastructure.
        infrastructure_provider_status: RawJson,
        /// Public SSH key of nodes, as base64.
        ssh_public_key as "sshPublicKey": String,
        /// The provider's ID of a zone that is left out (GEP-21). The zones of pools stay as they are: their index names MachineDeployments.
        isolated_zone_id as "isolatedZoneID": String,
    }
    lists {}
    status {
        /// The code that the zone in `spec.isolatedZoneID` has in the account of the Shoot (GEP-21).
        isolated_zone_code: String,
        /// When the list of MachineDeployments changed last.
        machine_deployments_last_update_time: Time,
        /// Hashes of pools that are updated without new machines.
        in_place_updates: RawJson,
    }
    status_lists {
        /// MachineDeployments of the pools.
        machine_deployments: MachineDeploymentRange,
    }
}

impl Worker {
    /// The provider's ID of the zone that is left out: by `spec.isolatedZoneID`, or by an annotation where the API server drops that.
    #[must_use]
    pub fn left_out_zone(&self) -> Option<&str> {
        let field = self.spec.isolated_zone_id.as_ref().filter(|zone| !zone.is_empty());
        let annotated = || self.annotations().get(names::LEFT_OUT_ZONE).filter(|zone| !zone.is_empty());
        field.or_else(annotated).map(String::as_str)
    }

    /// The code of that zone in the account of the Shoot, as the controller of the Worker has told it.
    #[must_use]
    pub fn left_out_code(&self) -> Option<&str> {
        let told = self.status.as_ref().and_then(|status| status.isolated_zone_code.as_ref());
        told.or_else(|| self.annotations().get(names::LEFT_OUT_ZONE_CODE)).map(String::as_str)
    }

    /// Whether its controller has said that it leaves zones out.
    #[must_use]
    pub fn leaves_zones_out(&self) -> bool {
        self.annotations().get(names::LEAVES_ZONES_OUT).is_some_and(|value| value == "true")
    }

    /// Machines that zones can still take by the quotas of the account, by the codes of zones, as the controller of the Worker has told. One
    /// that is missing has no limit that is known; so have all where the annotation is not a JSON object of numbers.
    #[must_use]
    pub fn free_quota(&self) -> BTreeMap<String, u32> {
        let told = self.annotations().get(names::FREE_QUOTA);
        told.and_then(|told| serde_json::from_str(told).ok()).unwrap_or_default()
    }

    /// Says that the controller leaves zones out, and the code of the zone that it leaves out. A provider that does calls this in each
    /// `reconcile` and `restore`, before it changes anything, also where no zone is left out.
    ///
    /// # Errors
    /// The API server refuses the write, or does not answer.
    pub async fn tell_left_out(&self, client: &Client, code: Option<&str>) -> Result<(), kube::Error> {
        if self.leaves_zones_out()
            && self.annotations().get(names::LEFT_OUT_ZONE_CODE).map(String::as_str) == code
        {
            return Ok(());
        }
        let annotations = json!({names::LEAVES_ZONES_OUT: "true", names::LEFT_OUT_ZONE_CODE: code});
        let metadata = json!({"uid": self.uid(), "annotations": annotations});
        let all = Api::<Self>::namespaced(client.clone(), &self.namespace().unwrap_or_default());
        let patch = Patch::Merge(json!({"metadata": metadata}));
        all.patch(&self.name_any(), &PatchParams::default(), &patch).await.map(drop)
    }
}

/// A pool of equal machines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerPool {
    /// Name of the pool.
    pub name: String,
    /// Machine type of the provider.
    pub machine_type: String,
    /// Least number of machines.
    pub minimum: i32,
    /// Greatest number of machines.
    pub maximum: i32,
    /// Machines that an update may create beyond the wanted ones.
    pub max_surge: IntOrString,
    /// Machines that an update may take away.
    pub max_unavailable: IntOrString,
    /// Annotations of the pool's nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Labels of the pool's nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Taints of the pool's nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Image that machines boot from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_image: Option<MachineImage>,
    /// Secret with the configuration of gardener-node-agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_agent_secret_name: Option<String>,
    /// Configuration that the provider defines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_config: Option<RawJson>,
    /// Secret with the script for the first boot.
    pub user_data_secret_ref: SecretKeySelector,
    /// Root volume of machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<Volume>,
    /// Further volumes of machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub data_volumes: Vec<Volume>,
    /// Data volume for the kubelet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet_data_volume_name: Option<String>,
    /// Zones over which machines are spread; MachineDeployments are named by their index.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
    /// Settings of machine-controller-manager for the pool.
    #[serde(rename = "machineControllerManager", default, skip_serializing_if = "Option::is_none")]
    pub machine_controller_manager: Option<RawJson>,
    /// Version of Kubernetes on the pool's nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes_version: Option<String>,
    /// Settings of the kubelet on the pool's nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet_config: Option<RawJson>,
    /// Resources of a node, for scaling up from zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_template: Option<RawJson>,
    /// CPU architecture of the machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// Settings of cluster-autoscaler for the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_autoscaler: Option<RawJson>,
    /// Priority of the pool for cluster-autoscaler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// `AutoRollingUpdate`, `AutoInPlaceUpdate` or `ManualInPlaceUpdate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_strategy: Option<String>,
}

/// The image that machines boot from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineImage {
    /// Name of the image in the CloudProfile.
    pub name: String,
    /// Version of the image in the CloudProfile.
    pub version: String,
}

/// A volume of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Name of the volume; data volumes must have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Volume type of the provider.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub volume_type: Option<String>,
    /// Size such as `20Gi`.
    pub size: String,
    /// Whether the volume is encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<bool>,
}

/// A MachineDeployment and how far cluster-autoscaler may scale it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineDeploymentRange {
    /// Name of the MachineDeployment.
    pub name: String,
    /// Least number of machines.
    pub minimum: i32,
    /// Greatest number of machines.
    pub maximum: i32,
    /// Priority of the MachineDeployment for cluster-autoscaler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Failed machines that are preserved for inspection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_preserve_failed_machine_max: Option<i32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(annotations: serde_json::Value, zone: Option<&str>) -> Worker {
        let spec =
            json!({"type": "local", "region": "r", "secretRef": {}, "pools": [], "isolatedZoneID": zone});
        serde_json::from_value(json!({"metadata": {"name": "w", "annotations": annotations}, "spec": spec}))
            .expect("a Worker")
    }

    #[test]
    fn zone_is_named_by_the_field_or_by_the_annotation() {
        let annotated = json!({names::LEFT_OUT_ZONE: "euc1-az1", names::LEFT_OUT_ZONE_CODE: "eu-1a"});
        assert_eq!(worker(json!({}), None).left_out_zone(), None);
        assert_eq!(worker(json!({names::LEFT_OUT_ZONE: ""}), None).left_out_zone(), None);
        assert_eq!(worker(annotated.clone(), None).left_out_zone(), Some("euc1-az1"));
        assert_eq!(worker(annotated.clone(), Some("")).left_out_zone(), Some("euc1-az1"));
        assert_eq!(worker(annotated.clone(), Some("euc1-az2")).left_out_zone(), Some("euc1-az2"));
        assert_eq!(worker(annotated, None).left_out_code(), Some("eu-1a"));
        assert!(!worker(json!({names::LEAVES_ZONES_OUT: "yes"}), None).leaves_zones_out());
    }

    #[test]
    fn quota_that_is_not_understood_is_no_limit() {
        let free = |text: &str| worker(json!({names::FREE_QUOTA: text}), None).free_quota();
        assert_eq!(free(r#"{"eu-1a": 3}"#), BTreeMap::from([("eu-1a".to_owned(), 3)]));
        for text in ["", "3", r#"{"eu-1a": -1}"#, r#"{"eu-1a": "3"}"#] {
            assert!(free(text).is_empty(), "{text}");
        }
    }
}
