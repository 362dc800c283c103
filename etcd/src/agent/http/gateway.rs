//! Orders to the gateway of this agent. Whoever moves an etcd gives them to all gateways (`repot_controllers::members`).

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Bytes,
    extract::{RawQuery, State},
    http::StatusCode,
    routing::{get, post, put},
};
use repot_apimachinery::duration;
use repot_etcd_core::agent::config::GatewayMember;
use serde_json::{Value, json};

use super::{Agent, Answer, Failure, Json};
use crate::{
    agent::{
        gateway::{HostedGateway, Refusal},
        settings::chain,
    },
    gateway::{Error, Status},
};

/// Writes are not held for longer: clients have deadlines.
const LONGEST: Duration = Duration::from_secs(60);
/// How long calls at a member that is left have, where nothing is said.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn routes() -> Router<Arc<Agent>> {
    Router::new()
        .route("/gateway", get(standing))
        .route("/gateway/hold", post(hold))
        .route("/gateway/release", post(release))
        .route("/gateway/leave", post(leave))
        .route("/gateway/members", put(set))
}

impl Agent {
    fn gateway(&self) -> Result<&HostedGateway, Failure> {
        let none = || Failure(StatusCode::NOT_FOUND, "no gateway is configured".to_owned());
        self.gateway.as_ref().ok_or_else(none)
    }
}

async fn standing(State(agent): State<Arc<Agent>>) -> Answer {
    let (address, members, status) = agent.gateway()?.standing().await;
    let Status { endpoints, held_for, writes, waiting, auth_enabled } = status;
    let describe = |GatewayMember { name, url, near }: &GatewayMember| {
        let seen = endpoints.iter().find(|endpoint| endpoint.url == *url);
        let (well, calls) = (seen.map(|seen| seen.well), seen.map(|seen| seen.calls));
        json!({ "name": name, "url": url, "near": near, "well": well, "calls": calls })
    };
    Ok(Json(json!({
        "address": address,
        "members": members.iter().map(describe).collect::<Vec<_>>(),
        "held": held_for.map(text),
        "writes": writes,
        "waiting": waiting,
        "authEnabled": auth_enabled,
    })))
}

/// Answers when no write is on its way any more.
async fn hold(State(agent): State<Arc<Agent>>, RawQuery(query): RawQuery) -> Answer {
    let gateway = agent.gateway()?;
    let longest = time(query.as_deref(), "for")?;
    let longest =
        longest.ok_or_else(|| bad("for is missing: how long writes wait at most, as in ?for=5s"))?;
    match gateway.hold(longest).await {
        Ok(left) => Ok(Json(json!({ "left": text(left) }))),
        Err(error) => Err(Failure(StatusCode::CONFLICT, format!("{error}; they are no longer held"))),
    }
}

async fn release(State(agent): State<Arc<Agent>>) -> Answer {
    agent.gateway()?.release();
    Ok(Json(json!({ "held": Value::Null })))
}

async fn leave(State(agent): State<Arc<Agent>>, RawQuery(query): RawQuery) -> Answer {
    let gateway = agent.gateway()?;
    let name = value(query.as_deref(), "member").filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| bad("member is missing: its name in etcd, as in ?member=m0"))?;
    gateway.leave(&name, time(query.as_deref(), "for")?.unwrap_or(PATIENCE)).await?;
    Ok(Json(json!({ "left": name })))
}

async fn set(State(agent): State<Arc<Agent>>, RawQuery(query): RawQuery, body: Bytes) -> Answer {
    let gateway = agent.gateway()?;
    let members: Vec<GatewayMember> = serde_json::from_slice(&body)
        .map_err(|why| bad(format!("the body is no list of {{\"name\", \"url\", \"near\"}}: {why}")))?;
    let patience = time(query.as_deref(), "for")?.unwrap_or(PATIENCE);
    gateway.set(&agent.settings.config, members, patience).await?;
    Ok(Json(json!({})))
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let code = match &refusal {
            Refusal::Last(_) | Refusal::Gateway(Error::StillBusy { .. }) => StatusCode::CONFLICT,
            Refusal::Bad(_) | Refusal::Gateway(Error::NoEndpoints | Error::BadEndpoint { .. }) => {
                StatusCode::BAD_REQUEST
            }
            Refusal::Gateway(Error::Listen { .. } | Error::Pem(_) | Error::Tls(_)) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        Self(code, chain(&refusal))
    }
}

fn bad(message: impl Into<String>) -> Failure {
    Failure(StatusCode::BAD_REQUEST, message.into())
}

fn value(query: Option<&str>, name: &str) -> Option<String> {
    let mut pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

fn time(query: Option<&str>, name: &str) -> Result<Option<Duration>, Failure> {
    let Some(given) = value(query, name) else { return Ok(None) };
    let time = duration::parse(&given).filter(|time| !time.is_zero() && *time <= LONGEST);
    let wrong = || bad(format!("{name} must be a duration such as 5s, at most 60s, and is {given:?}"));
    time.map(Some).ok_or_else(wrong)
}

/// As [`duration::parse`] reads it.
fn text(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}
