//! When a request is given up.

use std::time::Duration;

use repot_apimachinery::duration::parse;

use crate::{call::Query, status::Status};

/// The time a request has: what the client asks for, up to the server's own limit.
///
/// # Errors
/// 400 for a duration that cannot be read.
pub fn of(query: &Query, most: Duration) -> Result<Duration, Status> {
    let Some(text) = query.get("timeout") else { return Ok(most) };
    let wrong = || Status::bad_request(format!("invalid timeout specified in the request URL: {text:?}"));
    let asked = parse(text).ok_or_else(wrong)?;
    Ok(if asked.is_zero() { most } else { asked.min(most) })
}

/// What is answered when the time is up. No word that trying again is safe: a write may have happened.
#[must_use]
pub fn passed() -> Status {
    Status::timeout("request did not complete within the requested timeout", 0)
}
