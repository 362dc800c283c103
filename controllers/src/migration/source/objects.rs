//! Objects of the source, as they were observed in a pass.

use k8s_openapi::api::core::v1::Namespace;
use repot_extension::kinds::DNSRecord;

use crate::{
    migration::seed::{etcd::Etcds, exposure::Exposed, extensions::Seen, workloads::ControlPlane},
    shootstate::ShootKey,
};

/// Objects of the source, as they were observed.
pub struct Objects {
    /// Namespace of the control plane.
    pub namespace: String,
    /// That namespace, as it was observed; `None` where it does not exist.
    pub own_namespace: Option<Namespace>,
    /// The Shoot in the garden, and its namespace in the seed.
    pub shoot: Option<ShootKey>,
    /// Name of the BackupEntry of the Shoot; `None` where it has none.
    pub backup_entry: Option<String>,
    /// Deployments of the control plane and their Pods.
    pub plane: ControlPlane,
    /// Etcds and their members.
    pub etcds: Etcds,
    /// By what other seeds reach the members.
    pub exposed: Exposed,
    /// DNSRecords of the API.
    pub api_records: Vec<DNSRecord>,
    /// The DNSRecord of the owner.
    pub owner_record: Option<DNSRecord>,
    /// DNSRecords but that of the owner, with how far requests are.
    pub records: Vec<Seen>,
    /// Other extension resources of the Shoot.
    pub extensions: Vec<Seen>,
}
