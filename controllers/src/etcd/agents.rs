//! What agents say of their members, and what they are asked to do.

use std::time::Duration;

use futures::future::join_all;
use repot_etcd_core::agent::http::AgentStatus;

/// How long an answer may take.
const LOOK: Duration = Duration::from_secs(3);
/// The same where nothing depends on it.
const PROMPT: Duration = Duration::from_secs(1);

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

/// Has agents query the owner record at once. One that does not answer in time queries it when its interval is over, as always.
pub async fn check_owner(client: &reqwest::Client, urls: &[String]) {
    let ask = async |url: &String| {
        let answer = client.post(format!("{url}/owner/check")).timeout(PROMPT).send().await;
        if let Err(error) = answer.and_then(reqwest::Response::error_for_status) {
            tracing::debug!(url, %error, "the agent does not query the owner record at once");
        }
    };
    join_all(urls.iter().map(ask)).await;
}
