//! JSON of the agent's HTTP, as `docs/reference/etcd-agent-http.md` describes it. Agents write it; operators and other agents read it.
//!
//! Ids are hexadecimal, as etcdctl prints them: a number of 64 bits does not survive every reader of JSON. A reader takes a field that
//! an earlier agent does not have for its default.

use serde::{Deserialize, Serialize};

use crate::handover::Handover;

/// The response of `GET /status`: the state of one member and of its agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentStatus {
    /// What the member is doing: `Starting`, `Waiting`, `Refused`, `Restoring`, `Serving`, `Private`, `Stopped` or `Failing`.
    pub phase: String,
    /// Why, and what to do.
    pub message: String,
    /// Set of volumes that the member mounts.
    pub volumes: String,
    /// Id and name of the member.
    pub member: MemberStatus,
    /// Id of the cluster, hexadecimal; `None` while etcd does not answer.
    pub cluster: Option<String>,
    /// Whether this member leads.
    pub leader: bool,
    /// Id of the member that leads, hexadecimal.
    pub leader_id: Option<String>,
    /// Whether the member is a learner.
    pub learner: bool,
    /// Revision of etcd; `None` while it does not answer.
    pub revision: Option<i64>,
    /// Version of etcd; `None` while it does not answer.
    pub version: Option<String>,
    /// Size of the database in bytes; `None` while etcd does not answer.
    pub db_size: Option<i64>,
    /// Whether the member has to be removed and added again.
    pub needs_rejoin: bool,
    /// Whether the member was removed from its cluster, by the word of a quorum or by its own volume.
    pub removed: bool,
    /// From which snapshots this agent has filled the volume; `None` where it has not.
    pub restored: Option<RestoredStatus>,
    /// What the standby holds; `None` where there is none, and once it has taken over.
    pub standby: Option<StandbyStatus>,
    /// What follows from the owner's record; `None` without one.
    pub owner: Option<OwnerStatus>,
    /// State of the backups, as this agent knows it; `None` without a store.
    pub backup: Option<BackupStatus>,
    /// The gateway beside etcd; `None` where there is none.
    pub gateway: Option<GatewayStatus>,
}

/// Which member an agent is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberStatus {
    /// Id in etcd, hexadecimal; `None` while etcd does not answer.
    pub id: Option<String>,
    /// Name of the member in etcd.
    pub name: String,
}

/// From which snapshots a volume was filled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RestoredStatus {
    /// Name of the full snapshot.
    pub base: String,
    /// Number of deltas after it.
    pub deltas: usize,
    /// Revision that the snapshots reach.
    pub revision: i64,
    /// Revision to which it was raised, so that no client sees it go back.
    pub bumped_revision: i64,
}

/// How far a member is that follows the snapshots of another etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StandbyStatus {
    /// Name of the full snapshot that it began with; `None` until that is restored.
    pub base: Option<String>,
    /// Number of deltas that it has applied since.
    pub deltas: usize,
    /// Revision that it holds; `None` until the full snapshot is restored.
    pub revision: Option<i64>,
    /// Whether an owner's time ends at this revision, by the store: nothing more is to come.
    pub ended: bool,
    /// What it does, or why it does not go on; empty while it follows.
    pub message: String,
}

/// What follows from the newest query of the owner's record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerStatus {
    /// Name of the record; `None` where the configuration has none any more.
    pub name: Option<String>,
    /// Id of this side; `None` where the configuration has none any more.
    pub id: Option<String>,
    /// `Serve`, `Stop`, `FinalSnapshot` or `StayDown`; empty before the first query.
    pub verdict: String,
    /// Why, in a word; empty where nothing is wrong.
    pub reason: String,
    /// The same for people.
    pub message: String,
    /// The owner id as which this member will never serve clients again; `None` before that is on its disk.
    pub cut_off: Option<String>,
    /// Name of the final snapshot, once it is in the store.
    pub final_snapshot: Option<String>,
    /// Name of the snapshot that ends the chain of deltas, once it is in the store and names the owner ID that it ends; it is there before
    /// the final snapshot. `None` where no chain could be continued.
    pub final_delta: Option<String>,
    /// The hand-over to this etcd, once it is over.
    pub handover: Option<Handover>,
}

/// State of the backups, as the agent of one member knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BackupStatus {
    /// Whether this agent is the one that takes them.
    pub leads: bool,
    /// Name of the newest full snapshot.
    pub full: Option<String>,
    /// Name of the newest delta.
    pub delta: Option<String>,
    /// Why none can be taken; `None` where they can.
    pub failing: Option<String>,
}

/// State of the gateway beside etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayStatus {
    /// Whether etcd asks its clients for users; `None` while that is not known.
    pub auth_enabled: Option<bool>,
}

/// The body of every response that is an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ErrorResponse {
    /// Why the request failed, with all causes.
    pub error: String,
}
