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

#[cfg(test)]
mod tests {
    use axum::{
        body::{Body, to_bytes},
        http::{Request, header},
    };
    use kube::{Client, Config};
    use repot_rules::facts::Settings;
    use tower::ServiceExt;

    use super::*;
    use crate::{
        garden::Garden,
        ui::{Gate, access::Access, events::Pages, state},
    };

    /// A page whose garden does not answer.
    fn shared() -> Arc<Shared> {
        let config = Config::new("http://127.0.0.1:1".parse().expect("a URL"));
        let client = Client::try_from(config).expect("a client");
        Arc::new(Shared {
            garden: Garden::new(client),
            name: "the garden".to_owned(),
            namespace: None,
            settings: Settings::default(),
            state: state::State::new(),
            pages: Pages::default(),
            gate: Arc::new(Gate::new(Access::new(4321).expect("random numbers"))),
        })
    }

    fn request(shared: &Shared, method: &str, path: &str) -> axum::http::request::Builder {
        let cookie = shared.gate.access.set_cookie();
        Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "127.0.0.1:4321")
            .header(header::ORIGIN, "http://127.0.0.1:4321")
            .header(header::COOKIE, cookie.split(';').next().unwrap_or_default())
            .header("x-repot-key", shared.gate.access.key())
            .header(header::CONTENT_TYPE, "application/json")
    }

    async fn answer(shared: &Arc<Shared>, request: Request<Body>) -> (Response<()>, String) {
        let router = router(shared.clone()).layer(Extension(Arc::new(Hangup::default())));
        let (parts, body) = router.oneshot(request).await.expect("an answer").into_parts();
        let text = to_bytes(body, 1 << 20).await.expect("a body");
        (Response::from_parts(parts, ()), String::from_utf8_lossy(&text).into_owned())
    }

    type Response<T> = axum::http::Response<T>;

    #[tokio::test]
    async fn each_answer_has_the_headers_that_protect_the_page() {
        let shared = shared();
        let with = request(&shared, "GET", "/").body(Body::empty()).expect("a request");
        let without = Request::builder().uri("/").header(header::HOST, "127.0.0.1:4321");
        let without = without.body(Body::empty()).expect("a request");
        for (request, status) in [(with, 200), (without, 401)] {
            let (response, _) = answer(&shared, request).await;
            assert_eq!(response.status().as_u16(), status);
            let header = |name: &str| response.headers()[name].to_str().unwrap_or_default().to_owned();
            assert!(header("content-security-policy").starts_with("default-src 'none'; script-src 'self';"));
            assert_eq!(
                (header("cache-control").as_str(), header("x-frame-options").as_str()),
                ("no-store", "DENY")
            );
            assert!(!response.headers().contains_key("access-control-allow-origin"));
        }
    }

    #[tokio::test]
    async fn link_gives_the_cookie_and_the_key() {
        let shared = shared();
        let link = shared.gate.access.link();
        let path = link.split_once(":4321").map(|(_, path)| path).expect("a path");
        let request = Request::builder().uri(path).header(header::HOST, "127.0.0.1:4321");
        let (response, text) = answer(&shared, request.body(Body::empty()).expect("a request")).await;
        assert_eq!(response.headers()[header::SET_COOKIE], shared.gate.access.set_cookie().as_str());
        assert!(text.contains(&format!("content=\"{}\"", shared.gate.access.key())));
        assert!(!text.contains("content=\"KEY\""));
    }

    #[tokio::test]
    async fn requests_are_bounded_and_name_objects_alone() {
        let shared = shared();
        let large = request(&shared, "POST", "/api/previews").body(Body::from("x".repeat(BODY + 1)));
        assert_eq!(answer(&shared, large.expect("a request")).await.0.status(), 413);
        let cases = [
            ("GET", "/api/kinds/secrets", 404),
            ("GET", "/api/kinds/shoots", 200),
            ("GET", "/api/migrations/a/..%2Fsecrets", 400),
            ("POST", "/api/migrations/a/b/requests", 400),
            ("DELETE", "/api/migrations/a/b", 405),
            ("GET", "/assets/nothing.js", 404),
            ("GET", "/assets/app.js", 200),
            ("GET", "/nothing", 404),
        ];
        for (method, path, status) in cases {
            let request = request(&shared, method, path).body(Body::empty()).expect("a request");
            let (response, text) = answer(&shared, request).await;
            assert_eq!(response.status().as_u16(), status, "{method} {path}: {text}");
        }
    }

    #[tokio::test]
    async fn garden_that_does_not_answer_is_an_error_with_words() {
        let shared = shared();
        let request = request(&shared, "GET", "/api/migrations/a/b").body(Body::empty()).expect("a request");
        let (response, text) = answer(&shared, request).await;
        assert_eq!(response.status(), 502);
        assert!(text.starts_with("{\"error\":\"failed to read ControlPlaneMigration a/b: "), "{text}");
    }
}
