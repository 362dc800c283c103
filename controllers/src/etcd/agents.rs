//! What agents say of their members.

use std::time::Duration;

use futures::future::join_all;
use repot_etcd_core::handover::Handover;
use serde::Deserialize;

/// How long an answer may take.
const LOOK: Duration = Duration::from_secs(3);

/// What an agent says: of `/status` what the operator reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentStatus {
    /// What the member is doing.
    pub phase: String,
    /// Why, and what to do.
    pub message: String,
    /// Id of the cluster, hexadecimal.
    pub cluster: Option<String>,
    /// Whether it has to be removed and added again.
    pub needs_rejoin: bool,
    /// Whether the member was removed from its cluster, by the word of a quorum or by its own volume.
    pub removed: bool,
    /// How backups stand, by what this agent knows.
    pub backup: Option<Backup>,
    /// What follows from the owner's record.
    pub owner: Option<SaidOwner>,
}

/// What follows from the owner's record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SaidOwner {
    /// The hand-over to this etcd, once it is over.
    pub handover: Option<Handover>,
}

/// State of the backups, as the agent of one member knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Backup {
    /// Whether this agent is the one that takes them.
    pub leads: bool,
    /// Name of the newest full one.
    pub full: Option<String>,
    /// Why none can be taken.
    pub failing: Option<String>,
}

/// Asks agents by their URLs; nothing for those that do not answer.
pub async fn ask(client: &reqwest::Client, urls: &[String]) -> Vec<Option<AgentStatus>> {
    join_all(urls.iter().map(|url| one(client, url))).await
}

async fn one(client: &reqwest::Client, url: &str) -> Option<AgentStatus> {
    let answer = client.get(format!("{url}/status")).timeout(LOOK).send().await;
    let answer = answer.and_then(reqwest::Response::error_for_status);
    match answer {
        Ok(answer) => answer.json().await.ok(),
        Err(error) => {
            tracing::debug!(url, %error, "the agent does not answer");
            None
        }
    }
}
