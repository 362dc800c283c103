//! OperatingSystemConfig and ContainerRuntime: what runs on nodes beside Pods.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::{Deserialize, Serialize};

use super::{SecretRef, kind::extension_kind};
use crate::raw::RawJson;

extension_kind! {
    /// Units and files of nodes, which the controller adapts to an operating system.
    OperatingSystemConfig (OperatingSystemConfigSpec, OperatingSystemConfigStatus, "operatingsystemconfigs", "extensions.gardener.cloud/operatingsystemconfigs", NamespaceResourceScope)
    purpose purpose
    required {
        /// `provision` for the first boot, `reconcile` for all later changes.
        purpose: String,
    }
    optional {
        /// Configuration of the container runtime interface.
        cri_config: RawJson,
        /// Versions and rotations for updates without new machines.
        in_place_updates: RawJson,
    }
    lists {
        /// systemd units of the node.
        units: Unit,
        /// Files on the node.
        files: File,
    }
    status {
        /// Secret with the script for the first boot.
        cloud_config: CloudConfig,
        /// Command that updates the operating system.
        in_place_updates: RawJson,
    }
    status_lists {
        /// Units that the controller adds.
        extension_units: Unit,
        /// Files that the controller adds.
        extension_files: File,
    }
}

/// A systemd unit of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Unit {
    /// Name of the unit with its suffix.
    pub name: String,
    /// `start`, `restart` or `stop`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Whether the unit starts at boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable: Option<bool>,
    /// Text of the unit file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Files that extend the unit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drop_ins: Vec<DropIn>,
    /// Files whose change restarts the unit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub file_paths: Vec<String>,
}

/// A file that extends a systemd unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropIn {
    /// Name of the file.
    pub name: String,
    /// Text of the file.
    pub content: String,
}

/// A file on a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct File {
    /// Absolute path of the file.
    pub path: String,
    /// Mode of the file; 0644 where it is `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<u32>,
    /// Inline data, a Secret or an image.
    pub content: RawJson,
    /// Node for which alone the file is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_name: Option<String>,
}

/// Where the script for the first boot is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CloudConfig {
    /// Secret whose key `cloud_config` holds the script.
    pub secret_ref: SecretRef,
}

extension_kind! {
    /// A container runtime on the nodes of a worker pool.
    ContainerRuntime (ContainerRuntimeSpec, ContainerRuntimeStatus, "containerruntimes", "extensions.gardener.cloud/containerruntime", NamespaceResourceScope)
    required {
        /// Directory on the node for the runtime's programs.
        binary_path: String,
        /// Nodes that get the runtime.
        worker_pool: ContainerRuntimeWorkerPool,
    }
    optional {}
    lists {}
    status {}
    status_lists {}
}

/// The nodes that get a container runtime.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ContainerRuntimeWorkerPool {
    /// Name of the worker pool.
    pub name: String,
    /// Labels of the pool's nodes.
    pub selector: LabelSelector,
}
