//! `/livez`, `/readyz`, `/healthz` in the form of kube-apiserver.

use axum::body::Body;
use http::{HeaderValue, Response, StatusCode, header};

use super::Answer;
use crate::{call::Call, server::Server, status::Status};

/// What each endpoint looks at. Liveness depends on nothing outside of the process.
const LIVE: &[&str] = &["ping", "log"];
const READY: &[&str] = &["ping", "log", "storage", "authentication-config", "informer-sync", "shutdown"];

/// One of the endpoints, or one of its checks.
pub(super) fn check(server: &Server, call: &Call, path: &str) -> Answer {
    let mut segments = path.trim_start_matches('/').splitn(2, '/');
    let endpoint = segments.next().unwrap_or_default();
    let checks = match endpoint {
        "livez" => LIVE,
        "readyz" | "healthz" => READY,
        _ => return Err(Status::no_such_path()),
    };
    if let Some(single) = segments.next() {
        let known = checks.iter().find(|name| **name == single).ok_or_else(Status::no_such_path)?;
        return Ok(report(server, endpoint, &[known], call, false));
    }
    let excluded: Vec<&str> = call.query.all("exclude").collect();
    let chosen: Vec<&str> = checks.iter().copied().filter(|name| !excluded.contains(name)).collect();
    let verbose = call.query.maybe_flag("verbose")?.unwrap_or(false);
    Ok(report(server, endpoint, &chosen, call, verbose))
}

fn report(server: &Server, endpoint: &str, checks: &[&str], call: &Call, verbose: bool) -> Response<Body> {
    let mut lines = String::new();
    let mut failed = Vec::new();
    for name in checks {
        if let Some(why) = server.health.failing(name) {
            tracing::warn!(endpoint, check = name, why, "health check failed");
            lines += &format!("[-]{name} failed: reason withheld\n");
            failed.push(*name);
        } else {
            lines += &format!("[+]{name} ok\n");
        }
    }
    for unknown in call.query.all("exclude").filter(|name| !READY.contains(name)) {
        lines += &format!("warn: some health checks cannot be excluded: no matches for {unknown:?}\n");
    }
    let (code, text) = match (failed.is_empty(), verbose) {
        (true, false) => (StatusCode::OK, "ok".to_owned()),
        (true, true) => (StatusCode::OK, format!("{lines}{endpoint} check passed\n")),
        (false, _) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{lines}{endpoint} check failed\n")),
    };
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
