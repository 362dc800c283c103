//! `/livez`, `/readyz`, `/healthz` in the form of kube-apiserver.

use axum::body::Body;
use http::{HeaderValue, Response, StatusCode, header};

use super::Answer;
use crate::{call::Call, filters::user::AUTHENTICATED, server::Server, status::Status};

/// What each endpoint looks at, under the names of kube-apiserver where it has one: `etcd` is the store, whatever it is.
/// Liveness depends on nothing outside of the process.
const LIVE: &[&str] = &["ping", "log"];
const READY: &[&str] = &[
    "ping",
    "log",
    "etcd",
    "etcd-readiness",
    "kms-providers",
    "informer-sync",
    "poststarthook/start-authentication-config",
    "shootstate-group",
    "shutdown",
];

/// A check whose reason repeats the cluster's discovery, which every authenticated user may read (`system:discovery`).
const DISCOVERED: &str = "shootstate-group";
/// In place of any other reason: everybody may look here, and the log has it.
const WITHHELD: &str = "reason withheld";

/// One of the endpoints, or one of its checks. A check that is asked for by name gives its reason to whoever may know it.
pub(super) fn check(server: &Server, call: &Call, path: &str) -> Answer {
    let mut segments = path.trim_start_matches('/').splitn(2, '/');
    let endpoint = segments.next().unwrap_or_default();
    let checks = match endpoint {
        "livez" => LIVE,
        "readyz" | "healthz" => READY,
        _ => return Err(Status::no_such_path()),
    };
    let known = call.user.groups.iter().any(|group| group == AUTHENTICATED);
    let single = segments.next();
    let failing = |name: &str| {
        let why = server.health.failing(name)?;
        tracing::warn!(endpoint, check = name, why, "health check failed");
        let told = known && single.is_some() && name == DISCOVERED;
        Some(if told { why } else { WITHHELD.to_owned() })
    };
    if let Some(single) = single {
        let known = checks.iter().find(|name| **name == single).ok_or_else(Status::no_such_path)?;
        return Ok(report(endpoint, &[known], &[], false, failing));
    }
    let excluded: Vec<&str> = call.query.all("exclude").collect();
    let verbose = call.query.maybe_flag("verbose").unwrap_or(false);
    Ok(report(endpoint, checks, &excluded, verbose, failing))
}

fn report(
    endpoint: &str,
    checks: &[&str],
    excluded: &[&str],
    verbose: bool,
    failing: impl Fn(&str) -> Option<String>,
) -> Response<Body> {
    let (mut lines, mut failed) = (String::new(), false);
    for name in checks {
        if excluded.contains(name) {
            lines += &format!("[+]{name} excluded: ok\n");
        } else if let Some(why) = failing(name) {
            lines += &format!("[-]{name} failed: {why}\n");
            failed = true;
        } else {
            lines += &format!("[+]{name} ok\n");
        }
    }
    let unknown: Vec<String> =
        excluded.iter().filter(|name| !checks.contains(name)).map(|name| format!("{name:?}")).collect();
    if !unknown.is_empty() {
        let unknown = unknown.join(",");
        lines += &format!("warn: some health checks cannot be excluded: no matches for {unknown}\n");
    }
    let (code, text) = match (failed, verbose) {
        (false, false) => (StatusCode::OK, "ok".to_owned()),
        (false, true) => (StatusCode::OK, format!("{lines}{endpoint} check passed\n")),
        (true, _) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{lines}{endpoint} check failed\n")),
    };
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    async fn said(excluded: &[&str], verbose: bool, broken: &[&str]) -> (u16, String) {
        let response = report("readyz", READY, excluded, verbose, |name| {
            broken.contains(&name).then(|| WITHHELD.to_owned())
        });
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (code, String::from_utf8(body.to_vec()).expect("text"))
    }

    #[tokio::test]
    async fn failing_checks_are_named_and_may_be_excluded() {
        assert_eq!(said(&[], false, &[]).await, (200, "ok".into()));
        let (code, text) = said(&[], true, &[]).await;
        assert!(
            code == 200 && text.contains("[+]etcd ok\n") && text.ends_with("readyz check passed\n"),
            "{text}"
        );
        let (code, text) = said(&[], false, &["etcd"]).await;
        assert!(code == 500 && text.contains("[-]etcd failed: reason withheld\n"), "{text}");
        assert!(text.contains("[+]ping ok\n") && text.ends_with("readyz check failed\n"), "{text}");
        assert_eq!(said(&["etcd", "ping"], false, &["etcd"]).await.0, 200);
        let (code, text) = said(&["etcd", "nonsense"], true, &["etcd"]).await;
        assert!(code == 200 && text.contains("[+]etcd excluded: ok\n"), "{text}");
        assert!(text.contains("no matches for \"nonsense\"\n"), "{text}");
    }
}
