//! Paths, and what answers them. All of them are behind the gate.

use std::sync::Arc;

use axum::{
    Extension, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, State},
    http::{HeaderMap, StatusCode},
    middleware::from_fn_with_state,
    response::Response,
    routing::{get, post},
};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use super::{
    Shared, assets,
    detail::detail,
    error::{Error, Result},
    gate,
    listen::Hangup,
    moves,
    reply::{Json, is_name, read},
    requests,
    state::Kind,
};

/// Most bytes of a request.
const BODY: usize = 16 << 10;

type Common = State<Arc<Shared>>;

pub(super) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/", get(async || assets::index()))
        .route("/assets/{name}", get(async |Path(name): Path<String>| assets::file(&name)))
        .route("/api/info", get(info))
        .route("/api/events", get(events))
        .route("/api/kinds/{kind}", get(kind))
        .route("/api/migrations/{namespace}/{name}", get(migration))
        .route("/api/migrations/{namespace}/{name}/requests", post(request))
        .route("/api/previews", post(preview))
        .route("/api/migrations", post(create))
        .fallback(async || (StatusCode::NOT_FOUND, "there is nothing at this path\n"))
        .layer(DefaultBodyLimit::max(BODY))
        .layer(from_fn_with_state(shared.gate.clone(), gate::pass))
        .with_state(shared)
}

async fn info(State(shared): Common) -> Json {
    Json::of(
        &json!({"garden": shared.name, "namespace": shared.namespace, "version": env!("CARGO_PKG_VERSION"), "now": Timestamp::now()}),
    )
}

async fn events(State(shared): Common, Extension(hangup): Extension<Arc<Hangup>>) -> Result<Response> {
    shared.pages.follow(&shared.state, Hangup::clone(&hangup))
}

async fn kind(State(shared): Common, Path(name): Path<String>) -> Result<Json> {
    let named = serde::de::value::StrDeserializer::<serde::de::value::Error>::new(&name);
    let kind = Kind::deserialize(named).map_err(|_| Error::Missing("there is no such kind".to_owned()))?;
    Ok(Json::of(&shared.state.rows(kind)))
}

async fn migration(State(shared): Common, Path((namespace, name)): Path<(String, String)>) -> Result<Json> {
    check(&namespace, &name)?;
    let object = shared.garden.migration(&namespace, &name).await?;
    Ok(Json::of(&detail(&object, &shared.state, Timestamp::now())))
}

async fn request(
    State(shared): Common,
    Path((namespace, name)): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json> {
    check(&namespace, &name)?;
    let asked = read(&headers, &body)?;
    Ok(Json::of(&requests::write(&shared.garden, &namespace, &name, &asked).await?))
}

async fn preview(State(shared): Common, headers: HeaderMap, body: Bytes) -> Result<Json> {
    let asked = read(&headers, &body)?;
    Ok(Json::of(&moves::preview(&shared.garden, &shared.state, &shared.settings, &asked).await?))
}

async fn create(State(shared): Common, headers: HeaderMap, body: Bytes) -> Result<Json> {
    let asked = read(&headers, &body)?;
    Ok(Json::of(&moves::create(&shared.garden, &shared.state, &shared.settings, &asked).await?))
}

fn check(namespace: &str, name: &str) -> Result<()> {
    match is_name(namespace) && is_name(name) {
        true => Ok(()),
        false => Err(Error::Bad("this is no name of an object".to_owned())),
    }
}
