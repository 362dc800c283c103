//! The agent's HTTP. Paths, answers and errors are listed in `docs/reference/etcd-agent-http.md`.

mod forms;
mod gateway;
mod listen;
mod members;
pub(super) mod peers;
mod probe;

use std::sync::Arc;

use axum::{
    Extension, Router,
    extract::{RawQuery, Request, State},
    http::{HeaderMap, StatusCode, header::CONTENT_TYPE},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use repot_certs::{
    clients::{Authorities, Peer},
    tls::Serving,
};
use repot_etcd_core::agent::http::ErrorResponse;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::{net::TcpListener, time::timeout};
use tokio_util::sync::CancellationToken;

use probe::{PROBE, Probes};

use super::{Agent, backups, clients, metrics, settings::chain};
use crate::snapshot::store;

/// Paths that a kubelet has to reach, which shows no certificate. They tell one word each.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// An answer in JSON.
struct Json(Value);

impl Json {
    /// What has no other keys than strings becomes JSON in any case.
    fn of(answer: &impl Serialize) -> Self {
        Self(serde_json::to_value(answer).unwrap_or_default())
    }
}

impl IntoResponse for Json {
    fn into_response(self) -> Response {
        ([(CONTENT_TYPE, "application/json")], format!("{}\n", self.0)).into_response()
    }
}

/// A refusal.
struct Failure(StatusCode, String);

impl Failure {
    fn of(error: &(impl std::error::Error + 'static)) -> Self {
        Self(StatusCode::INTERNAL_SERVER_ERROR, chain(error))
    }

    fn unavailable(message: impl Into<String>) -> Self {
        Self(StatusCode::SERVICE_UNAVAILABLE, message.into())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, Json::of(&ErrorResponse { error: self.1 })).into_response()
    }
}

impl From<clients::Error> for Failure {
    fn from(error: clients::Error) -> Self {
        Self::unavailable(chain(&error))
    }
}

impl From<backups::Error> for Failure {
    fn from(error: backups::Error) -> Self {
        use backups::Error;
        match &error {
            Error::NotLeader(_) | Error::NoStore | Error::NoDeltas | Error::Late { .. } | Error::Stopped => {
                Self::unavailable(chain(&error))
            }
            Error::AnotherHistory(_) | Error::Store(store::Error::Closed { .. }) => {
                Self(StatusCode::CONFLICT, chain(&error))
            }
            Error::Etcd(_) | Error::Take(_) | Error::Store(_) => Self::of(&error),
        }
    }
}

impl From<store::Error> for Failure {
    fn from(error: store::Error) -> Self {
        Self::of(&error)
    }
}

type Answer = Result<Json, Failure>;

/// The TLS side: the agent's own certificate, and whose certificates clients have to show.
pub(super) struct Tls {
    pub(super) serving: Serving,
    pub(super) authorities: Authorities,
}

/// Serves until `stop`.
pub(super) async fn serve(
    listener: TcpListener,
    agent: Arc<Agent>,
    tls: Option<Tls>,
    stop: CancellationToken,
) {
    let (serving, authorities) = match tls {
        Some(Tls { serving, authorities }) => (Some(Arc::new(serving)), Some(Arc::new(authorities))),
        None => (None, None),
    };
    let router = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/status", get(status))
        .route("/metrics", get(render_metrics))
        .route("/snapshot/full", get(full).post(full))
        .route("/snapshot/delta", get(delta).post(delta))
        .route("/snapshot/latest", get(latest))
        .route("/member/remove", post(members::remove))
        .route("/owner/check", post(check_owner))
        .merge(gateway::routes())
        .fallback(async || Failure(StatusCode::NOT_FOUND, "there is nothing at this path".to_owned()))
        .with_state(agent)
        .layer(Extension(Arc::new(Probes::default())))
        .layer(from_fn_with_state(authorities.clone(), admit));
    let follow = async {
        match (&serving, &authorities) {
            (Some(serving), Some(authorities)) => {
                tokio::join!(serving.follow(stop.clone()), authorities.follow(stop.clone()));
            }
            _ => stop.cancelled().await,
        }
    };
    tokio::join!(listen::serve(listener, router, serving.clone(), stop.clone()), follow);
}

/// Lets those in who show a certificate, where that is asked for.
async fn admit(
    State(authorities): State<Option<Arc<Authorities>>>,
    Extension(peer): Extension<Arc<Peer>>,
    request: Request,
    next: Next,
) -> Response {
    let open = OPEN.contains(&request.uri().path());
    match authorities {
        Some(authorities) if !open && !peer.is_trusted(&authorities) => {
            let message = "a client certificate of the authority in tls.server/ca.crt is needed";
            Failure(StatusCode::UNAUTHORIZED, message.to_owned()).into_response()
        }
        _ => next.run(request).await,
    }
}

async fn healthz() -> Json {
    Json(json!({ "health": true }))
}

async fn readyz(State(agent): State<Arc<Agent>>, probes: Extension<Arc<Probes>>) -> Response {
    match probes.probe(&agent).await {
        Ok(()) => Json(json!({ "ready": true })).into_response(),
        Err(why) => {
            let report = agent.board.read();
            let answer =
                json!({ "ready": false, "phase": report.phase, "message": report.message, "error": *why });
            (StatusCode::SERVICE_UNAVAILABLE, Json(answer)).into_response()
        }
    }
}

async fn status(State(agent): State<Arc<Agent>>) -> Json {
    let asked = async {
        let client = agent.client().await.ok()?;
        client.maintenance_client().status().await.ok()
    };
    let found = timeout(PROBE, asked).await.ok().flatten();
    Json::of(&forms::status(&agent, found.as_ref()))
}

fn flag(query: Option<&str>, name: &str) -> Result<bool, Failure> {
    let mut pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    match pairs.find(|(key, _)| key == name).map(|(_, value)| value).as_deref() {
        None | Some("false" | "0") => Ok(false),
        Some("true" | "1") => Ok(true),
        Some(other) => {
            Err(Failure(StatusCode::BAD_REQUEST, format!("{name} must be true or false, and is {other:?}")))
        }
    }
}

async fn render_metrics(State(agent): State<Arc<Agent>>) -> Result<Response, Failure> {
    let (report, seen) = (agent.board.read(), agent.supervisor.seen());
    let text = metrics::render(&report, seen, &agent.backups.state());
    let text = text.map_err(|error| Failure::of(&error))?;
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response())
}

async fn full(
    agent: State<Arc<Agent>>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Failure> {
    let is_final = flag(query.as_deref(), "final")?;
    let path = if is_final { "/snapshot/full?final=true" } else { "/snapshot/full" };
    take(&agent, &headers, backups::Request::Full { is_final }, path).await
}

async fn delta(agent: State<Arc<Agent>>, headers: HeaderMap) -> Result<Response, Failure> {
    take(&agent, &headers, backups::Request::Delta, "/snapshot/delta").await
}

/// Has a snapshot taken, here or by the agent of the leader.
async fn take(
    agent: &Agent,
    headers: &HeaderMap,
    request: backups::Request,
    path_and_query: &str,
) -> Result<Response, Failure> {
    let store = agent.store()?;
    match agent.backups.ask(request).await {
        Ok(Some(name)) => Ok(Json(forms::snapshot(&store, &name)).into_response()),
        Ok(None) => Ok(Json(Value::Null).into_response()),
        // Passed on once: two that take each other for the leader would pass it on for ever.
        Err(backups::Error::NotLeader(Some(leader))) if !headers.contains_key(peers::PASSED_ON) => {
            peers::pass_on(agent, leader, path_and_query).await
        }
        Err(error) => Err(error.into()),
    }
}

async fn latest(State(agent): State<Arc<Agent>>) -> Answer {
    let store = agent.store()?;
    let names: Vec<_> = store.list_quickly().await?.into_iter().map(|one| one.name).collect();
    Ok(Json(forms::latest(&store, &names)))
}

/// Has the owner record queried soon. Who asks often gets no more than two queries a second.
async fn check_owner(State(agent): State<Arc<Agent>>) -> Answer {
    if agent.settings.config.owner.is_none() {
        return Err(Failure(StatusCode::NOT_FOUND, "no owner check is configured".to_owned()));
    }
    agent.owner_check.notify_one();
    Ok(Json(json!({})))
}

impl Agent {
    fn store(&self) -> Result<store::Store, Failure> {
        let config = self.settings.config.store.as_ref();
        let config = config.ok_or_else(|| Failure::unavailable("no store for snapshots is configured"))?;
        Ok(super::settings::open(config)?)
    }
}
