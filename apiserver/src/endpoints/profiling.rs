//! `/debug/pprof/`: profiles of this process, at the paths at which kube-apiserver has its own.
//!
//! Whoever may take one is said by `nonResourceURLs` of a ClusterRole, as for `/metrics`. A profile tells of no object and no user,
//! but taking one costs CPU time and memory; so clients without credentials may not, whatever the authorizer says.

use std::time::Duration;

use axum::body::Body;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use repot_telemetry::profile::{CpuProfiler, Error};

use super::Answer;
use crate::{
    call::Call,
    filters::{request_info::PROFILE_PATH, user::UNAUTHENTICATED},
    server::Server,
    status::Status,
    wire,
};

/// How long a CPU profile takes unless the request says it, in seconds, as with kube-apiserver.
const DEFAULT_SECONDS: u64 = 30;
/// The longest CPU profile, in seconds.
const MOST_SECONDS: u64 = 60;
/// When a client should try again that found another profile being taken, in seconds.
const RETRY_AFTER: u32 = 10;

const INDEX: &str = "\
/debug/pprof/

Profiles:
- profile: CPU time, in the format of pprof. Parameter seconds: 1 to 60, 30 by default. One is taken at a time.

  go tool pprof 'https://SERVER/debug/pprof/profile?seconds=30'
";

/// What a profile may take beside the time of other requests.
pub(crate) fn time_beside(call: &Call) -> Duration {
    match call.info.path.trim_end_matches('/') {
        PROFILE_PATH => Duration::from_secs(MOST_SECONDS),
        _ => Duration::ZERO,
    }
}

/// Lists the profiles that there are.
pub(super) fn index(server: &Server, call: &Call) -> Answer {
    allowed(server, call)?;
    let mut response = wire::whole(StatusCode::OK, INDEX);
    set(&mut response, header::CONTENT_TYPE, "text/plain; charset=utf-8");
    Ok(response)
}

/// Says why there is no such profile.
pub(super) fn not_offered(server: &Server, call: &Call) -> Answer {
    allowed(server, call)?;
    Err(Status::not_offered(
        "only /debug/pprof/profile, a CPU profile, is offered: the allocator keeps no account of the heap",
    ))
}

/// Takes a CPU profile.
pub(super) async fn profile(server: &Server, call: &Call) -> Answer {
    let profiler = allowed(server, call)?;
    let seconds = call.query.number("seconds")?.unwrap_or(DEFAULT_SECONDS);
    if !(1..=MOST_SECONDS).contains(&seconds) {
        return Err(Status::bad_request(format!("seconds: must be from 1 to {MOST_SECONDS}, got {seconds}")));
    }
    tracing::info!(audit_id = %call.audit_id, seconds, "taking a CPU profile");
    let profile = profiler.record(Duration::from_secs(seconds)).await.map_err(|error| match error {
        Error::Busy => Status::retry_later(error.to_string(), RETRY_AFTER),
        Error::Failed(_) => {
            tracing::warn!(audit_id = %call.audit_id, %error, "no CPU profile was taken");
            Status::unavailable(error.to_string(), RETRY_AFTER)
        }
    })?;
    let mut response = wire::whole(StatusCode::OK, profile);
    set(&mut response, header::CONTENT_TYPE, "application/octet-stream");
    set(&mut response, header::CONTENT_DISPOSITION, "attachment; filename=\"profile\"");
    Ok(response)
}

fn allowed<'a>(server: &'a Server, call: &Call) -> Result<&'a CpuProfiler, Status> {
    // Without --profiling there is nothing at these paths.
    let profiler = server.profiler.as_ref().ok_or_else(Status::no_such_path)?;
    if call.user.in_group(UNAUTHENTICATED) {
        return Err(Status::forbidden_path("profiles are not for clients without credentials"));
    }
    Ok(profiler)
}

fn set(response: &mut Response<Body>, name: HeaderName, value: &'static str) {
    let headers = response.headers_mut();
    headers.insert(name, HeaderValue::from_static(value));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}
