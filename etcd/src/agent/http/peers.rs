//! Asking the leader's agent on behalf of somebody who asked this one.

use std::time::Duration;

use axum::{
    body::Body,
    http::{HeaderName, StatusCode, header::CONTENT_TYPE},
    response::Response,
};
use repot_etcd_core::agent::{
    config::{Config, Member},
    http::AgentStatus,
};
use url::Url;

use super::{Agent, Failure};
use crate::agent::{clients, settings::chain};

/// Says that a request comes from another agent, and is not passed on once more.
pub(super) const PASSED_ON: HeaderName = HeaderName::from_static("x-repot-passed-on");
/// A full snapshot of a large database takes its time.
const PATIENCE: Duration = Duration::from_secs(1800);
const CONNECT: Duration = Duration::from_secs(5);
/// How long etcd has to list its members.
const LIST: Duration = Duration::from_secs(5);
/// The longest answer: a list of snapshots.
const LONGEST: usize = 16 << 20;
/// The longest report of an agent on its member.
const LONGEST_STATUS: usize = 1 << 20;

/// Passes a request on to the agent of the leader, and its answer back.
pub(super) async fn pass_on(agent: &Agent, leader: u64, path_and_query: &str) -> Result<Response, Failure> {
    let url = format!("{}{path_and_query}", url_of(agent, leader).await?);
    let client = client(agent, PATIENCE)?;
    let failed = |error: reqwest::Error| {
        Failure::unavailable(format!("the leader's agent does not answer: {}", chain(&error.without_url())))
    };
    let answer = client.post(&url).header(PASSED_ON, "1").send().await.map_err(failed)?;
    let status = StatusCode::from_u16(answer.status().as_u16()).unwrap_or(StatusCode::BAD_GATEWAY);
    let body = answer.bytes().await.map_err(failed)?;
    if body.len() > LONGEST {
        return Err(Failure::unavailable("the answer of the leader's agent is too long"));
    }
    let response =
        Response::builder().status(status).header(CONTENT_TYPE, "application/json").body(Body::from(body));
    response.map_err(|error| Failure::of(&error))
}

/// Where the agent of a member is.
async fn url_of(agent: &Agent, leader: u64) -> Result<String, Failure> {
    let members = clients::members(&agent.client().await?, LIST).await?;
    let found = members.iter().find(|one| one.id() == leader);
    let (name, told) = found.map_or(("", None), |one| (one.name(), one.client_urls().first()));
    let refused = |why: String| Failure::unavailable(format!("member {leader:x} leads, and {why}"));
    let url = client_url(&agent.settings.config, name, told.map(String::as_str)).map_err(refused)?;
    let url = Url::parse(&url).ok().and_then(|url| beside(agent, &url));
    url.ok_or_else(|| refused("its address is not known".to_owned()))
}

/// The client URL of a member whose agent takes snapshots to the same store: as the configuration has it, or as the member tells
/// etcd where the configuration is from before that member.
///
/// # Errors
/// Where the member is one of another seed. Its agent has another port, other certificates and another store. On two seeds with
/// namespaces of one name, its host would be that of a member here.
fn client_url(config: &Config, name: &str, told: Option<&str>) -> Result<String, String> {
    let known = config.members.iter().find(|member| member.name == name);
    match known {
        Some(member) if member.pod.is_none() => {
            Err(format!("{name} is a member of another seed; ask the agents there"))
        }
        Some(Member { client_urls, .. }) => Ok(client_urls.first().cloned().unwrap_or_default()),
        None => told.map(str::to_owned).ok_or_else(|| "its address is not known".to_owned()),
    }
}

/// The agent of the member that clients reach at a URL.
fn beside(agent: &Agent, client_url: &Url) -> Option<String> {
    let config = &agent.settings.config;
    let scheme = crate::agent::settings::scheme(config.tls.server.is_some());
    Some(format!("{scheme}://{}:{}", client_url.host_str()?, config.ports.agent))
}

/// Whether another member says itself that it lost this owner id for good and lets no client in. Nothing else proves that: its etcd
/// may be about to start again where nothing listens at its client URL, and where it is down for another cause. A member of another
/// seed is not asked: nobody knows where its agent is. `told`: its client URL as etcd has it.
pub(in crate::agent) async fn says_that_it_is_cut_off(
    agent: &Agent,
    member: &str,
    told: Option<&str>,
    owner_id: &str,
    limit: Duration,
) -> bool {
    let asked = async {
        let url = client_url(&agent.settings.config, member, told).ok()?;
        let url = beside(agent, &Url::parse(&url).ok()?)?;
        let answer = client(agent, limit).ok()?.get(format!("{url}/status")).send().await.ok()?;
        let (mut answer, mut body) = (answer.error_for_status().ok()?, Vec::new());
        while let Some(chunk) = answer.chunk().await.ok()? {
            body.extend_from_slice(&chunk);
            if body.len() > LONGEST_STATUS {
                return None;
            }
        }
        let status: AgentStatus = serde_json::from_slice(&body).ok()?;
        Some(is_cut_off(&status, member, owner_id))
    };
    asked.await == Some(true)
}

/// Whether this is the status of an agent of this member, and says that the owner id is lost for good and no client is let in. With
/// namespaces of one name on two seeds, the host of a member there is that of another member here, or the own one.
fn is_cut_off(status: &AgentStatus, member: &str, owner_id: &str) -> bool {
    let cut_off = status.owner.as_ref().and_then(|owner| owner.cut_off.as_deref());
    status.member.name == member
        && cut_off == Some(owner_id)
        && !status.phase.is_empty()
        && status.phase != "Serving"
}

fn client(agent: &Agent, patience: Duration) -> Result<reqwest::Client, Failure> {
    let mut builder = reqwest::Client::builder().connect_timeout(CONNECT).timeout(patience).no_proxy();
    if let Some(dir) = &agent.settings.config.tls.client {
        let read = |name: &str| {
            let path = dir.join(name);
            std::fs::read(&path).map_err(|source| Failure::of(&clients::Error::File { path, source }))
        };
        let failed = |error: reqwest::Error| Failure::of(&error);
        let roots = reqwest::Certificate::from_pem_bundle(&read("ca.crt")?).map_err(failed)?;
        let own = [read("tls.crt")?, read("tls.key")?].concat();
        builder = builder.tls_certs_only(roots).identity(reqwest::Identity::from_pem(&own).map_err(failed)?);
    }
    builder.build().map_err(|error| Failure::of(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_go_to_members_of_the_own_seed_only() {
        let text = "
name: main
namespace: shoot--p--a
volumes: v
clusterToken: t
clusterState: existing
members:
- {name: b-main-0, pod: main-0, peerUrls: ['http://p:1'], clientUrls: ['http://main-0.main-peer.ns.svc:2379']}
- {name: main-0, peerUrls: ['http://q:1']}
dataDir: /d
ports: {client: 2379, peer: 2380, agent: 8080}
";
        let config: Config = serde_saphyr::from_str(text).expect("a file");
        let url = |name: &str, told: &str| client_url(&config, name, Some(told));
        // A member of the other seed has the same host there, which is another member here.
        let host = "http://main-0.main-peer.ns.svc:2379";
        assert!(url("main-0", host).is_err_and(|why| why.contains("another seed")));
        // The configuration of this seed goes before what etcd knows.
        assert_eq!(url("b-main-0", "http://old:2379").as_deref(), Ok(host));
        // A member that was added after this agent started.
        assert_eq!(url("b-main-2", "http://new:2379").as_deref(), Ok("http://new:2379"));
        assert!(client_url(&config, "b-main-2", None).is_err());
    }

    #[test]
    fn only_the_member_itself_says_that_it_is_cut_off() {
        let status = serde_json::json!({
            "phase": "Private", "member": {"name": "main-0"}, "owner": {"cutOff": "seed-a/7"},
        });
        let is_cut_off = |status: &serde_json::Value, member: &str, owner_id: &str| {
            let status = serde_json::from_value(status.clone());
            status.is_ok_and(|status| is_cut_off(&status, member, owner_id))
        };
        assert!(is_cut_off(&status, "main-0", "seed-a/7"));
        // The agent that was reached is that of another member, such as the one that asks.
        assert!(!is_cut_off(&status, "b-main-0", "seed-a/7"));
        assert!(!is_cut_off(&status, "main-0", "seed-a/8"));
        let changed = |pointer: &str, value: serde_json::Value| {
            let mut status = status.clone();
            *status.pointer_mut(pointer).expect("a field") = value;
            is_cut_off(&status, "main-0", "seed-a/7")
        };
        assert!(!changed("/phase", "Serving".into()));
        assert!(!changed("/phase", serde_json::Value::Null));
        assert!(!changed("/member", serde_json::Value::Null));
        assert!(!changed("/owner", serde_json::Value::Null));
    }
}
