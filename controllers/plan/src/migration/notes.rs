//! What the sides of a migration remember.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::observed::{ExposedMember, FinalSnapshot, FormerOperation, Replicas};

/// What one side remembers. It is part of that side's status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Notes {
    /// Garden: whether the Shoot was hibernated when the migration was recorded. All sides go by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hibernated: Option<bool>,
    /// Garden: whether the Shoot had no workers when the migration was recorded. All sides go by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workerless: Option<bool>,
    /// Garden: the last operation of the Shoot before the migration, which a rollback writes back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub former_operation: Option<FormerOperation>,
    /// Something of this side was changed: from here on there may be something to roll back.
    #[serde(skip_serializing_if = "is_false")]
    pub changed: bool,
    /// Replicas of the controllers at the source before they were stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controllers: Option<Replicas>,
    /// Replicas of the kube-apiservers at the source before they were stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_servers: Option<Replicas>,
    /// Replicas of the servers of the tunnel to the Shoot. Live: at the source. Forced: at the destination.
    #[serde(skip_serializing_if = "Replicas::is_empty")]
    pub tunnel_servers: Replicas,
    /// Source: when the kube-apiservers answered last before the outage, as a time of RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_answered_time: Option<String>,
    /// Destination: when the DNS record of the API was written, as a time of RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_dns_written_time: Option<String>,
    /// TTL of the DNS record of the API before it was lowered, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_ttl_seconds: Option<u64>,
    /// Members of the etcd at the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etcd_replicas: Option<u32>,
    /// Epoch of the owner record that this side wrote, or deleted, last. Garden: the highest that other migrations have recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_epoch: Option<u64>,
    /// The deletion of the owner record was requested: the etcd may have lost ownership, so its volumes never serve again.
    #[serde(skip_serializing_if = "is_false")]
    pub ownership_ended: bool,
    /// The final snapshot, once it is stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub final_snapshot: Option<FinalSnapshot>,
    /// Volumes that the etcd of this side is restored to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volumes: Option<String>,
    /// Forced: what is lost with the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// Live, source: the members of the etcd, as other seeds reach them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<ExposedMember>,
    /// Live, destination: the source is given up, and its members leave before the destination serves.
    #[serde(skip_serializing_if = "is_false")]
    pub shrunk: bool,
    /// `migrate` was requested of the DNSRecords at the source.
    #[serde(skip_serializing_if = "is_false")]
    pub dns_records_migrated: bool,
}

/// Everything that the etcd of a dead source stored after this snapshot may be lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Name of the newest snapshot in the bucket of the source.
    pub snapshot: String,
    /// Revision of etcd that it holds.
    pub revision: u64,
    /// When the snapshot was begun, as a time of RFC 3339.
    pub time: String,
    /// The highest epoch that the source was seen to have.
    pub epoch: u64,
}

impl Notes {
    /// TTL of the DNS record of the API before it was lowered.
    #[must_use]
    pub fn api_ttl(&self) -> Option<Duration> {
        self.api_ttl_seconds.map(Duration::from_secs)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_false(value: &bool) -> bool {
    !*value
}
