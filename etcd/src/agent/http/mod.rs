//! The agent's HTTP. Paths, answers and errors are listed in `docs/etcd-agent.md`.

mod forms;
mod listen;

use std::{sync::Arc, time::Duration};

use axum::{
    Extension, Router,
    extract::{RawQuery, Request, State},
    http::{StatusCode, header::CONTENT_TYPE},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::get,
};
use etcd_client::Client;
use repot_certs::{
    clients::{Authorities, Peer},
    tls::Serving,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{Agent, clients, settings::chain};
use crate::snapshot::{store, take};

/// How long etcd has to answer a probe.
const PROBE: Duration = Duration::from_secs(2);
/// Paths that a kubelet has to reach, which shows no certificate. They tell one word each.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// An answer in JSON.
struct Json(Value);

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
        (self.0, Json(json!({ "error": self.1 }))).into_response()
    }
}

impl From<clients::Error> for Failure {
    fn from(error: clients::Error) -> Self {
        Self::unavailable(chain(&error))
    }
}

impl From<take::Error> for Failure {
    fn from(error: take::Error) -> Self {
        Self::of(&error)
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
        .route("/snapshot/full", get(full).post(full))
        .route("/snapshot/latest", get(latest))
        .fallback(async || Failure(StatusCode::NOT_FOUND, "there is nothing at this path".to_owned()))
        .with_state(agent)
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

/// Ready is who answers a linearizable read. Backups have no say in it.
async fn readyz(State(agent): State<Arc<Agent>>) -> Response {
    let ready = async { clients::read(&agent.client().await?, PROBE).await };
    match timeout(PROBE, ready).await {
        Ok(Ok(_)) => Json(json!({ "ready": true })).into_response(),
        outcome => {
            let why = match outcome {
                Ok(Err(error)) => chain(&error),
                _ => "etcd does not answer in time".to_owned(),
            };
            let report = agent.board.read();
            let answer =
                json!({ "ready": false, "phase": report.phase, "message": report.message, "error": why });
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
    Json(forms::status(&agent, found.as_ref()))
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

async fn full(State(agent): State<Arc<Agent>>, RawQuery(query): RawQuery) -> Answer {
    let is_final = flag(query.as_deref(), "final")?;
    let store = agent.store()?;
    let client: Client = agent.client().await?;
    let how = (agent.settings.snapshots.compression, is_final);
    let taken = take::full(&client, &store, &agent.scratch, how, jiff::Timestamp::now()).await?;
    Ok(Json(forms::snapshot(&store, &taken.name)))
}

async fn latest(State(agent): State<Arc<Agent>>) -> Answer {
    let store = agent.store()?;
    let names: Vec<_> = store.list_quickly().await?.into_iter().map(|one| one.name).collect();
    Ok(Json(forms::latest(&store, &names)))
}

impl Agent {
    fn store(&self) -> Result<store::Store, Failure> {
        let config = self.settings.config.store.as_ref();
        let config = config.ok_or_else(|| Failure::unavailable("no store for snapshots is configured"))?;
        Ok(super::settings::open(config)?)
    }
}
