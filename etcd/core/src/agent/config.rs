//! What an agent is told: a file that the operator writes and every member of an etcd shares.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

/// The file. Which member it is, an agent knows from the name of its Pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// Name of the `Etcd`.
    pub name: String,
    /// Namespace of the `Etcd`; not empty.
    pub namespace: String,
    /// Set of volumes that the members mount; written into each volume when it is first used, and a volume that says something else
    /// is not touched.
    pub volumes: String,
    /// Token of the bootstrap: another one for each set of volumes, so that no two clusters ever take each other for the same.
    pub cluster_token: String,
    /// Whether members found a cluster together, or join one that exists.
    pub cluster_state: ClusterState,
    /// All members of this `Etcd`, and with [`ClusterState::Existing`] those of other sites too.
    pub members: Vec<Member>,
    /// Client URLs by which members that join ask for the list of members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub client_endpoints: Vec<String>,
    /// Directory of the volume; etcd's data is in `new.etcd` below it.
    pub data_dir: PathBuf,
    /// Ports to listen on.
    pub ports: Ports,
    /// Where snapshots go; nothing is backed up without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<Store>,
    /// What an empty volume is filled from when the cluster is founded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<Restore>,
    /// When snapshots are taken and which are kept.
    #[serde(default)]
    pub snapshots: Snapshots,
    /// Certificates; plain HTTP without them.
    #[serde(default)]
    pub tls: Tls,
    /// Further flags of etcd: names without dashes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub etcd_flags: BTreeMap<String, String>,
    /// The record that says who may serve; whoever runs serves without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// The gateway beside etcd; none without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Gateway>,
}

/// How a member begins its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ClusterState {
    /// All members found it together.
    New,
    /// It exists: a member with an empty volume waits until it is in the list of members.
    Existing,
}

/// A member of the etcd cluster, of this `Etcd` or of another site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Member {
    /// Its name in etcd.
    pub name: String,
    /// Name of its Pod, where it is one of this `Etcd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// URLs for other members.
    pub peer_urls: Vec<String>,
    /// URLs for clients. An agent refuses the file where its own member has none.
    #[serde(default)]
    pub client_urls: Vec<String>,
}

/// Ports to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ports {
    /// Port of etcd for its clients; not 0.
    pub client: u16,
    /// Port of etcd for other members; not 0.
    pub peer: u16,
    /// The agent's own HTTP.
    pub agent: u16,
}

/// A store for snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Store {
    /// Such as `s3://bucket/prefix` or `file:///directory`.
    pub url: String,
    /// Directory with a file for each credential, as a Secret is mounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<PathBuf>,
    /// URL of the store's API where it is not the provider's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The history in it that this etcd writes, where it is not the first one: `<url>/histories/<history>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<String>,
}

/// What empty volumes are filled from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Restore {
    /// The store of the one backup, or of the snapshots of another etcd. Without snapshots in it, nothing is founded.
    pub store: Store,
    /// Whether the member follows the snapshots until it may found its etcd: it holds the newest state, and applies each new delta. It
    /// has to be the only member. With an `owner` it founds when the record lets it; without one when this is switched off.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub standby: bool,
    /// How long a standby that may found its etcd waits for what ends the time of the owner before, as in `10m`; not at all where it is
    /// left out. After that it founds with what there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_wait: Option<String>,
}

/// When snapshots are taken and which are kept. Durations as in `5m`, sizes in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Snapshots {
    /// Full ones, as cron; every hour where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_schedule: Option<String>,
    /// Deltas; every 20 s where it is left out, none with `0s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delta_period: Option<String>,
    /// Events that are kept in memory for a delta; 10 MiB where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delta_memory_limit: Option<u64>,
    /// `Exponential` or `LimitBased`; nothing is deleted where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention: Option<String>,
    /// How many full ones `LimitBased` keeps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// How long the snapshots of a history are kept after it was closed; a week (`168h`) where it is left out, for ever with `0s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_retention: Option<String>,
    /// `gzip`, `zlib`, `lzw` or `none`; gzip where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<String>,
}

/// Directories with `ca.crt`, `tls.crt` and `tls.key`, as Secrets are mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Tls {
    /// Of etcd for its clients, and of the agent's HTTP; clients have to show a certificate of its authority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<PathBuf>,
    /// Of the agent as a client of etcd and of other agents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<PathBuf>,
    /// Of etcd for connections among members, which are plain HTTP where it is `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<PathBuf>,
}

/// The record that says who may serve. Durations as in `30s`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Owner {
    /// Name of the TXT record.
    pub name: String,
    /// Id of this side; not empty. The record names this side where this id is its only value.
    pub id: String,
    /// Id of the owner whose etcd the members of this side have joined, if they have: they serve while the record contains that one, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined_id: Option<String>,
    /// DNS servers to ask, as `address:port`, at least one. `ns:example.org` stands for the name servers of that zone, which the DNS
    /// servers of the machine know; `ns:example.org@10.0.0.10:53` says who knows them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<String>,
    /// How long an answer may come from a cache on the way.
    pub ttl: String,
    /// From one look to the next.
    pub interval: String,
    /// The longest that a look may take.
    pub timeout: String,
    /// What the other side waits beyond TTL and interval.
    pub grace: String,
    /// How long members of an etcd that lost ownership look for a quorum to take the final snapshot from; `5m` where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quorum_timeout: Option<String>,
}

/// A gateway beside etcd: clients that go through it do not notice that members come and go, nor who of them leads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Gateway {
    /// Where it listens; certificates are those of the port for clients of etcd.
    pub port: u16,
    /// Members that it leads clients to until it is told of others; where there are none, those of `members` that have client URLs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<GatewayMember>,
    /// The largest message, in bytes; 16 MiB where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_limit: Option<u64>,
    /// All messages that it holds at a time, in bytes; 128 MiB where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<u64>,
}

/// A member that a gateway leads clients to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GatewayMember {
    /// Its name in etcd.
    pub name: String,
    /// Where the gateway reaches it.
    pub url: String,
    /// Whether it is on the same site; the others are used when none of these is well.
    #[serde(default)]
    pub near: bool,
}
