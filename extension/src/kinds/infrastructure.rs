//! Infrastructure and Network: what a Shoot's nodes are connected by.

use serde::{Deserialize, Serialize};

use super::{SecretRef, kind::extension_kind};

extension_kind! {
    /// Networks, security groups and whatever else must exist before nodes do.
    Infrastructure (InfrastructureSpec, InfrastructureStatus, "infrastructures", "extensions.gardener.cloud/infrastructure", NamespaceResourceScope)
    required {
        /// Region in which the infrastructure is.
        region: String,
        /// Secret with the credentials for the provider.
        secret_ref: SecretRef,
    }
    optional {
        /// Public SSH key of nodes, as base64.
        ssh_public_key as "sshPublicKey": String,
    }
    lists {}
    status {
        /// CIDR of nodes where the controller chose it.
        nodes_cidr as "nodesCIDR": String,
        /// CIDRs of Pods, nodes and Services.
        networking: InfrastructureNetworking,
    }
    status_lists {
        /// Source addresses of traffic that leaves the Shoot.
        egress_cidrs as "egressCIDRs": String,
    }
}

/// CIDRs of a Shoot's networks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InfrastructureNetworking {
    /// CIDRs of the network of Pods.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<String>,
    /// CIDRs of the network of nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// CIDRs of the network of Services.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<String>,
}

extension_kind! {
    /// The network plugin of a Shoot.
    Network (NetworkSpec, NetworkStatus, "networks", "extensions.gardener.cloud/network", NamespaceResourceScope)
    required {
        /// CIDR of the network of Pods.
        pod_cidr as "podCIDR": String,
        /// CIDR of the network of Services.
        service_cidr as "serviceCIDR": String,
    }
    optional {}
    lists {
        /// `IPv4`, `IPv6` or both.
        ip_families as "ipFamilies": String,
    }
    status {}
    status_lists {
        /// IP families that the network has now.
        ip_families as "ipFamilies": String,
    }
}
