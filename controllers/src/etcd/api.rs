//! `druid.gardener.cloud/v1alpha1 Etcd`: what the operator reads of its spec. `deploy/crds/etcds.yaml` has the whole of it, with
//! defaults and rules.

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::{NamespaceResourceScope, apimachinery::pkg::api::resource::Quantity};
use kube::core::ObjectMeta;
use repot_api::names::{DRUID_GROUP, V1ALPHA1};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::status::{ExistingMember, Status};

/// Name of the backup from which empty volumes are filled, on an Etcd; set by workflows.
pub const RESTORE_FROM: &str = "migration.gardener.cloud/restore-from";
/// Names of sets of volumes, separated by commas, whose members write snapshots to a history of their own; set by workflows.
pub const OWN_HISTORIES: &str = "migration.gardener.cloud/own-histories";
/// Who wrote the object last, on an Etcd, its StatefulSet and the Deployment of its API servers; set by workflows.
pub const FENCE: &str = "migration.gardener.cloud/fence";
/// Finalizer of an Etcd whose members are part of an etcd that goes on elsewhere: they are removed from it before the Etcd goes.
pub const MEMBERSHIP: &str = "migration.gardener.cloud/etcd-membership";
/// The generation of the Etcd from which a StatefulSet was made.
pub const GENERATION: &str = "migration.gardener.cloud/etcd-generation";
/// The set that a claim belongs to, on claims.
pub const VOLUMES: &str = "migration.gardener.cloud/volumes";

/// An etcd of a hosted control plane.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Etcd {
    /// Kubernetes metadata of the Etcd object.
    pub metadata: ObjectMeta,
    /// What is wanted of the etcd.
    #[serde(default)]
    pub spec: Spec,
    /// What was seen at the end of the last pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

impl kube::Resource for Etcd {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Etcd".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        DRUID_GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        V1ALPHA1.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "etcds".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// What is wanted. Defaults are those of the CRD.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// Number of members that are wanted; with 0 the volumes are kept.
    pub replicas: u32,
    /// What the names of members begin with.
    pub member_name_prefix: Option<String>,
    /// Further labels of Pods.
    pub labels: BTreeMap<String, String>,
    /// Further annotations of Pods.
    pub annotations: BTreeMap<String, String>,
    /// Whether members run as root.
    pub run_as_root: bool,
    /// Name of the PriorityClass of Pods; `None` sets no PriorityClass.
    pub priority_class_name: Option<String>,
    /// StorageClass of new volumes.
    pub storage_class: Option<String>,
    /// Size of new volumes.
    pub storage_capacity: Option<Quantity>,
    /// Name of the set of volumes.
    pub volume_claim_template: Option<String>,
    /// Where Pods may run.
    pub scheduling_constraints: Scheduling,
    /// What etcd and snapshots share.
    pub shared_config: SharedConfig,
    /// Settings of the members and of the ways to reach them.
    pub etcd: Members,
    /// Settings of the agent's snapshots, their stores and the owner check.
    pub backup: Backup,
}

/// Where Pods may run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Scheduling {
    /// As in a Pod.
    pub affinity: Option<Value>,
    /// As in a Pod.
    pub topology_spread_constraints: Option<Value>,
}

/// What etcd and snapshots share.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SharedConfig {
    /// Value of etcd's flag `auto-compaction-mode`, `periodic` or `revision`; `None` does not set it.
    pub auto_compaction_mode: Option<String>,
    /// As etcd reads it.
    pub auto_compaction_retention: Option<String>,
}

/// Settings of the members of an Etcd.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Members {
    /// Image with `repot` and etcd's programs.
    pub image: Option<String>,
    /// Port at which members serve clients; 2379 where it is `None`.
    pub client_port: Option<u16>,
    /// Port at which members serve each other; 2380 where it is `None`.
    pub server_port: Option<u16>,
    /// Size at which etcd takes no more writes.
    pub quota: Option<Quantity>,
    /// Writes after which etcd cuts its log.
    pub snapshot_count: Option<u64>,
    /// Value of etcd's flag `metrics`, `basic` or `extensive`; `None` does not set it.
    pub metrics: Option<String>,
    /// As in a container.
    pub resources: Option<Value>,
    /// Further flags of etcd.
    pub extra_flags: BTreeMap<String, String>,
    /// Certificates for connections of clients to members and agents; without them these use HTTP.
    pub client_url_tls: Option<Tls>,
    /// Certificates for connections among members; without them members use HTTP.
    pub peer_url_tls: Option<Tls>,
    /// The Service for clients.
    pub client_service: ClientService,
    /// A gateway beside each member.
    pub gateway: Option<Gateway>,
    /// Further peer URLs by the names of members, in the spelling of etcd-druid or of GEP-39.
    #[serde(rename = "additionalAdvertisePeerURLs", alias = "additionalAdvertisePeerUrls")]
    pub additional_peer_urls: Vec<PeerUrls>,
    /// Whether members that have such are known by them alone.
    #[serde(rename = "advertiseOnlyAdditionalPeerURLs")]
    pub only_additional_peer_urls: bool,
    /// An etcd that the members join.
    pub bootstrap_with_existing_cluster: Option<Existing>,
    /// Ids of members that are none of this Etcd, hexadecimal, as `status.unknownMembers` lists them. They are removed from the etcd.
    pub lost_members: Vec<String>,
}

/// Certificates, in Secrets of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Tls {
    /// Secret with the certificate of the authority; its key is `ca.crt` unless `data_key` names another.
    #[serde(rename = "tlsCASecretRef")]
    pub ca: SecretKey,
    /// Secret with `tls.crt` and `tls.key` of servers.
    #[serde(rename = "serverTLSSecretRef")]
    pub server: SecretKey,
    /// Secret with `tls.crt` and `tls.key` of clients; where it is `None`, that of servers is used.
    #[serde(rename = "clientTLSSecretRef")]
    pub client: Option<SecretKey>,
    /// Whether members accept each other from any address.
    #[serde(rename = "skipClientSANVerification")]
    pub skip_client_san_verification: bool,
}

/// A Secret, or a key in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SecretKey {
    /// Name of the Secret.
    pub name: String,
    /// Key in the data of the Secret; an authority without one is read from `ca.crt`.
    pub data_key: Option<String>,
}

/// The Service for clients.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientService {
    /// Annotations of the Service for clients.
    pub annotations: BTreeMap<String, String>,
    /// Further labels of the Service for clients; the operator's own labels take precedence.
    pub labels: BTreeMap<String, String>,
    /// As in a Service.
    pub traffic_distribution: Option<String>,
}

/// A gateway beside each member, by which clients do not notice that members come and go, nor who of them leads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Gateway {
    /// Port at which the gateway listens; 2381 where it is `None`.
    pub port: Option<u16>,
}

/// Further peer URLs of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerUrls {
    /// Its name in etcd, not that of its Pod.
    pub member_name: String,
    /// Further peer URLs at which other members reach it.
    pub urls: Vec<String>,
}

/// An etcd that exists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Existing {
    /// Members of the etcd that exists; `client_endpoints` belong to them in this order.
    pub members: Vec<ExistingMember>,
    /// Where clients reach it.
    pub client_endpoints: Vec<String>,
    /// Whether members stop without being removed from it, as where it has lost its quorum.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub abandoned: bool,
}

impl Existing {
    /// Each member with the URL at which clients reach it: one for each, in their order.
    pub fn endpoints(&self) -> impl Iterator<Item = (&ExistingMember, &str)> {
        self.members.iter().zip(self.client_endpoints.iter().map(String::as_str).cycle())
    }
}

/// Settings of snapshots, their stores and the owner check.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Backup {
    /// Port of the agent's HTTP.
    pub port: Option<u16>,
    /// Store that snapshots are written to; `None` where there is none.
    pub store: Option<Store>,
    /// Where those are that this etcd continues.
    pub source_store: Option<Store>,
    /// `Newest` where only what a restore needs is copied from `source_store` before the first member starts.
    pub source_snapshots: Option<String>,
    /// Whether one member follows the snapshots in `source_store` until it may found the etcd, in place of the copy.
    pub standby: bool,
    /// Whether the copy waits.
    pub wait_for_final_snapshot: FinalSnapshot,
    /// Cron of full snapshots.
    pub full_snapshot_schedule: Option<String>,
    /// Retention policy of snapshots, `Exponential` or `LimitBased`.
    pub garbage_collection_policy: Option<String>,
    /// How many `LimitBased` keeps.
    #[serde(rename = "maxBackupsLimitBasedGC")]
    pub max_backups: Option<u32>,
    /// How often deltas are taken.
    pub delta_snapshot_period: Option<String>,
    /// Size at which a delta is taken before its time.
    pub delta_snapshot_memory_limit: Option<Quantity>,
    /// How snapshots are compressed.
    pub compression: Option<Compression>,
    /// Record that says who may serve; `None` where ownership is not checked.
    pub owner_check: Option<OwnerCheck>,
}

/// A store of snapshots: a bucket, or a directory of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Store {
    /// `S3`, `GCS`, `ABS` or `Local`.
    pub provider: String,
    /// Name of the bucket, or path of the directory on the node where `provider` is `Local`.
    pub container: String,
    /// Path within the bucket or directory; slashes at its beginning and end are ignored.
    pub prefix: String,
    /// URL of its API.
    pub endpoint_override: Option<String>,
    /// Secret with the store's credentials; `None` where no Secret is mounted.
    pub secret_ref: Option<SecretKey>,
}

/// Whether the copy of another store waits for its final snapshot. Defaults are those of the CRD where the whole is left out.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FinalSnapshot {
    /// Whether the copy waits for the final snapshot.
    pub enabled: bool,
    /// Longest wait for the final snapshot, as a duration such as `10m`.
    pub timeout: String,
    /// What follows when `timeout` is over, `Copy` or `Fail`; any other value acts as `Copy`.
    pub on_timeout: String,
}

impl Default for FinalSnapshot {
    fn default() -> Self {
        Self { enabled: true, timeout: "10m".to_owned(), on_timeout: "Copy".to_owned() }
    }
}

/// How snapshots are compressed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Compression {
    /// Whether snapshots are compressed; `false` sets the compression to `none`, whatever `policy` says.
    pub enabled: Option<bool>,
    /// Name of the compression; it is not used where `enabled` is `false`.
    pub policy: Option<String>,
}

/// The record that says who may serve.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerCheck {
    /// Name of the DNS record that names the owner.
    pub name: String,
    /// What it says while this etcd may serve.
    pub id: String,
    /// ID of the owner whose etcd the members have joined: they serve while the record contains that one, too.
    #[serde(rename = "joinedID")]
    pub joined_id: Option<String>,
    /// From one look to the next.
    pub interval: Option<String>,
    /// Longest duration of one look at the record; `30s` where it is `None`.
    pub timeout: Option<String>,
    /// How long answers stay in caches.
    #[serde(rename = "dnsCacheTTL")]
    pub dns_cache_ttl: Option<String>,
    /// What the other side waits beyond.
    pub grace: Option<String>,
    /// DNS servers as `address:port`, or `ns:example.org` for the name servers of that zone.
    pub servers: Vec<String>,
}
