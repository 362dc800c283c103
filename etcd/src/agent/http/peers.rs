//! Asking the leader's agent on behalf of somebody who asked this one.

use std::time::Duration;

use axum::{
    body::Body,
    http::{HeaderName, StatusCode, header::CONTENT_TYPE},
    response::Response,
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

/// Passes a request on to the agent of the leader, and its answer back.
pub(super) async fn pass_on(agent: &Agent, leader: u64, path_and_query: &str) -> Result<Response, Failure> {
    let url = format!("{}{path_and_query}", url_of(agent, leader).await?);
    let client = client(agent)?;
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

/// Where the agent of a member is: at the host of its client URL, at the port of all agents.
async fn url_of(agent: &Agent, member: u64) -> Result<String, Failure> {
    let members = clients::members(&agent.client().await?, LIST).await?;
    let found = members.iter().find(|one| one.id() == member);
    let url = found.and_then(|one| Url::parse(one.client_urls().first()?).ok());
    let host = url.as_ref().and_then(Url::host_str);
    let host = host.ok_or_else(|| {
        Failure::unavailable(format!("member {member:x} leads, and its address is not known"))
    })?;
    let config = &agent.settings.config;
    let scheme = crate::agent::settings::scheme(config.tls.server.is_some());
    Ok(format!("{scheme}://{host}:{}", config.ports.agent))
}

fn client(agent: &Agent) -> Result<reqwest::Client, Failure> {
    let mut builder = reqwest::Client::builder().connect_timeout(CONNECT).timeout(PATIENCE).no_proxy();
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
