//! Objects of the destination, as they were observed in a pass.

use k8s_openapi::api::{batch::v1::Job, core::v1::Namespace};
use repot_extension::kinds::DNSRecord;

use super::bindings::SeedFacts;
use crate::{
    etcd::api::Etcd,
    migration::seed::{etcd::Etcds, exposure::Exposed, extensions::Seen, workloads::ControlPlane},
    shootstate::{ShootKey, State},
};

/// Objects of the destination, as they were observed.
pub struct Objects {
    /// Namespace of the control plane.
    pub namespace: String,
    /// That namespace, where it exists.
    pub own_namespace: Option<Namespace>,
    /// The Shoot in the garden, and its namespace in the seed.
    pub shoot: Option<ShootKey>,
    /// Name of the BackupEntry of the Shoot; `None` where it has none.
    pub backup_entry: Option<String>,
    /// The ShootState, where a row needs it.
    pub state: Option<State>,
    /// What bindings can refer to.
    pub seed_facts: SeedFacts,
    /// Deployments of the control plane and their Pods.
    pub plane: ControlPlane,
    /// Etcds and their members.
    pub etcds: Etcds,
    /// By what other seeds reach the members.
    pub exposed: Exposed,
    /// The main Etcd as it was carried, where the ShootState was read.
    pub carried_etcd: Option<Etcd>,
    /// DNSRecords of the API and of others, but not that of the owner.
    pub records: Vec<Seen>,
    /// DNSRecords of the API.
    pub api_records: Vec<DNSRecord>,
    /// A DNSRecord of the zone of the Shoot.
    pub zone_record: Option<DNSRecord>,
    /// The DNSRecord of the owner.
    pub owner_record: Option<DNSRecord>,
    /// The same, with how far requests are.
    pub owner_seen: Vec<Seen>,
    /// Other extension resources of the Shoot.
    pub extensions: Vec<Seen>,
    /// Jobs that copy snapshots.
    pub jobs: Vec<Job>,
}

impl Objects {
    /// Extension resources of one kind.
    pub fn of_kind(&self, kind: &'static str) -> impl Iterator<Item = &Seen> + Clone {
        self.extensions.iter().filter(move |one| one.kind == kind)
    }

    /// DNSRecords and extension resources of all kinds but Infrastructure and Worker.
    pub fn others(&self) -> impl Iterator<Item = &Seen> + Clone {
        let is_other = |one: &&Seen| !matches!(one.kind, "Infrastructure" | "Worker");
        self.extensions.iter().filter(is_other).chain(&self.records)
    }
}
