//! `status` of an Etcd: what is written at the end of a pass.

use repot_apimachinery::time::Time;
use repot_etcd_core::handover::Handover;
use serde::{Deserialize, Serialize};

/// Status of an Etcd, as the operator writes it at each pass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// The generation that the last pass acted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Number of Pods that exist, those of former members included.
    pub replicas: u32,
    /// Pods of the current revision.
    pub current_replicas: u32,
    /// Members that are ready.
    pub ready_replicas: u32,
    /// Whether a quorum is ready.
    pub ready: bool,
    /// Label selector of the Pods, as "key=value" pairs separated by commas.
    pub selector: String,
    /// Whether members talk by TLS.
    #[serde(rename = "peerUrlTLSEnabled")]
    pub peer_url_tls: bool,
    /// The members of this Etcd.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,
    /// Conditions of the Etcd, such as `Ready` and `AllMembersReady`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The cluster that is being founded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub founding: Option<Founding>,
    /// Sets of volumes with a cluster on them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrapped: Option<Bootstrapped>,
    /// The etcd that was joined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_with_existing_cluster: Option<Joined>,
    /// Members of the etcd that are not those of this Etcd, nor of one that it joins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_members: Option<UnknownMembers>,
    /// The copy that was completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_copied: Option<Copied>,
    /// How far the copy is that is going on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy_progress: Option<CopyProgress>,
    /// The hand-over to this etcd from the owner before, once that one does not serve any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handover: Option<Handover>,
    /// How far the standby is, until it has taken over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standby: Option<Standby>,
    /// What went wrong in the last pass.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub last_errors: Vec<LastError>,
}

/// A member of this Etcd, as it was seen in the last pass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Member {
    /// Its name in etcd.
    pub name: String,
    /// Id of the member in etcd, hexadecimal; `None` until members have told it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `Leader`, `Member` or `Learner`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// `Ready`, `NotReady` or `Unknown`.
    pub status: String,
    /// Why `status` is what it is, such as `AnswersReads` or `NoPod`.
    pub reason: String,
    /// Since when `status` is what it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
}

/// A condition in the status of an Etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// Type of the condition, such as `Ready`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in one word.
    pub reason: String,
    /// Why `status` is what it is, in a text for people.
    pub message: String,
    /// Since when `status` is what it is.
    pub last_transition_time: String,
    /// The generation it was made for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// A cluster that is being founded: written before its first member starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Founding {
    /// Name of the set of volumes that the cluster is founded on.
    pub volumes: String,
    /// How many members found it.
    pub members: u32,
    /// Whether the only one of them is a standby: it follows the snapshots of the etcd that this one continues.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub standby: bool,
}

/// How far the standby is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Standby {
    /// Revision that it holds; `None` until the full snapshot that it begins with is restored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Name of the full snapshot that it began with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// Whether nothing more is to come, by the store.
    pub ended: bool,
    /// What it does, or why it does not go on; empty while it follows.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Sets of volumes with a cluster on them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Bootstrapped {
    /// The one in use.
    pub volumes: String,
    /// When `volumes` was recorded as the set in use, in RFC 3339.
    pub time: String,
    /// Others of which volumes exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<String>,
}

impl Bootstrapped {
    /// Whether there is a cluster on these volumes.
    #[must_use]
    pub fn has(&self, volumes: &str) -> bool {
        self.volumes == volumes || self.earlier.iter().any(|earlier| earlier == volumes)
    }
}

/// A member of an etcd that exists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExistingMember {
    /// Name of the member in etcd.
    pub name: String,
    /// Where members reach it.
    pub peer_urls: Vec<String>,
}

/// The etcd that was joined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Joined {
    /// When all members that can join before it is released had done so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joined_at: Option<String>,
    /// Members of the etcd that was joined.
    pub members: Vec<ExistingMember>,
    /// Where clients reach them, in the same order.
    pub client_endpoints: Vec<String>,
    /// Whether a member of it was removed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub being_left: bool,
    /// Whether its members were removed.
    pub released: bool,
}

/// Members of the etcd that are not those of this Etcd, as they were seen the last time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UnknownMembers {
    /// All voters of the etcd, those of this Etcd included.
    pub voters: usize,
    /// Whether they have no quorum without the members of this Etcd.
    pub depend_on_own: bool,
    /// The members that are neither those of this Etcd nor of one that it joins.
    pub members: Vec<UnknownMember>,
}

/// A member that is not one of this Etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UnknownMember {
    /// Its name in etcd; empty while it has not started.
    pub name: String,
    /// Id of the member in etcd, hexadecimal.
    pub id: String,
    /// `Member` where it votes, `Learner` where it does not.
    pub role: String,
    /// Where other members reach it.
    pub peer_urls: Vec<String>,
}

/// A completed copy of another etcd's snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Copied {
    /// Name of the Job.
    pub job: String,
    /// When the Job was first seen to be complete, in RFC 3339.
    pub time: String,
    /// The owner that was to go on from the snapshots: for a later one there are newer ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_id: Option<String>,
}

/// How far a copy of another etcd's snapshots is, as its Pod tells. Counts begin anew with another Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CopyProgress {
    /// Name of the Job.
    pub job: String,
    /// `WaitingForOwner`, `WaitingForFinalSnapshot` or `Copying`.
    pub phase: String,
    /// Snapshots that are whole at the target.
    pub snapshots: u64,
    /// Snapshots at the source; 0 before it was listed.
    pub snapshots_total: u64,
    /// Bytes of the snapshots that are whole at the target.
    pub bytes: u64,
    /// Bytes of the snapshots at the source.
    pub bytes_total: u64,
    /// Bytes that were sent to the target, those of snapshots that are not whole yet included.
    pub bytes_sent: u64,
    /// Snapshots that could not be copied.
    pub failed: u64,
    /// When any of these changed the last time, in RFC 3339.
    pub last_progress_time: String,
    /// When the Pod told this, in RFC 3339.
    pub observed_time: String,
}

impl CopyProgress {
    /// How far it is, in one line for people.
    #[must_use]
    pub fn summary(&self) -> String {
        const MIB: u64 = 1 << 20;
        let since = &self.last_progress_time;
        let failed = if self.failed == 0 { String::new() } else { format!(", {} failed", self.failed) };
        // While it waits, it copies what there is already.
        let ahead = match self.bytes_sent / MIB {
            0 => format!(", since {since}"),
            sent => format!("; {sent} MiB are sent ahead, the last at {since}"),
        };
        match self.phase.as_str() {
            "WaitingForOwner" => format!("it waits until no owner before can serve{ahead}"),
            "WaitingForFinalSnapshot" => format!("it waits for the final snapshot{ahead}"),
            _ => format!(
                "{} of {} snapshots{failed}, {} of {} MiB, {} MiB sent, the last at {since}",
                self.snapshots,
                self.snapshots_total,
                self.bytes / MIB,
                self.bytes_total.div_ceil(MIB),
                self.bytes_sent / MIB
            ),
        }
    }
}

/// The error that a pass ended with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LastError {
    /// The operation, in capitals.
    pub code: String,
    /// Text of the error with its causes, separated by colons.
    pub description: String,
    /// When it was first seen like this.
    pub observed_at: String,
}

/// What a condition is found to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Type of the condition, such as `Ready`.
    pub kind: &'static str,
    /// Whether the condition holds; `None` where that is not known, which becomes the status `Unknown`.
    pub holds: Option<bool>,
    /// Why, in one word.
    pub reason: &'static str,
    /// Why the condition holds or does not hold, in a text for people.
    pub message: String,
}

/// The conditions of these findings: one that stays what it was keeps its time.
#[must_use]
pub fn conditions(
    findings: &[Finding],
    before: &[Condition],
    generation: Option<i64>,
    now: Time,
) -> Vec<Condition> {
    let made = findings.iter().map(|finding| {
        let status = match finding.holds {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
        let earlier = before.iter().find(|c| c.kind == finding.kind && c.status == status);
        Condition {
            kind: finding.kind.to_owned(),
            status: status.to_owned(),
            reason: finding.reason.to_owned(),
            message: finding.message.clone(),
            last_transition_time: earlier
                .map_or_else(|| now.to_rfc3339(), |c| c.last_transition_time.clone()),
            observed_generation: generation,
        }
    });
    made.collect()
}
