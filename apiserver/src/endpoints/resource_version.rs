//! How new, or how old, a read has to be.

use std::time::Duration;

use repot_apimachinery::field::FieldError;
use repot_storage::{ResourceVersion, Store};

use crate::{call::Query, status::Status};

/// How long a read for a version of the future waits for it.
const PATIENCE: Duration = Duration::from_secs(3);

/// Which version a read is to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freshness {
    /// Everything committed before the request.
    Latest,
    /// Anything that once was.
    Any,
    /// This version or a newer one.
    NotOlderThan(ResourceVersion),
    /// Exactly this version.
    Exact(ResourceVersion),
}

/// Reads `resourceVersion`; `None`: absent.
///
/// # Errors
/// 400 when it is no decimal number.
pub(super) fn resource_version(query: &Query) -> Result<Option<u64>, Status> {
    let parse = |text: &str| {
        let digits = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
        digits.then(|| text.parse().ok()).flatten()
    };
    let wrong = |text: &str| Status::bad_request(format!("Invalid value for resourceVersion: {text:?}"));
    query.get("resourceVersion").map(|text| parse(text).ok_or_else(|| wrong(text))).transpose()
}

/// Reads `resourceVersion` and `resourceVersionMatch` of a list.
///
/// # Errors
/// 400, 422 for combinations that make no sense.
pub(super) fn of_list(query: &Query, limit: u64) -> Result<Freshness, Status> {
    check(query, false)?;
    Ok(match (resource_version(query)?, query.get("resourceVersionMatch")) {
        (None, _) => Freshness::Latest,
        (Some(0), _) => Freshness::Any,
        (Some(version), Some("Exact")) => Freshness::Exact(ResourceVersion(version)),
        // As clients of the years before resourceVersionMatch meant it.
        (Some(version), None) if limit > 0 => Freshness::Exact(ResourceVersion(version)),
        (Some(version), _) => Freshness::NotOlderThan(ResourceVersion(version)),
    })
}

/// Refuses parameters of a list or a watch that contradict each other, all at once.
///
/// # Errors
/// 400 for a flag that is none, 422.
pub(super) fn check(query: &Query, watch: bool) -> Result<(), Status> {
    let initial = query.maybe_flag("sendInitialEvents").is_some();
    let matching = query.get("resourceVersionMatch");
    let mut errors = Vec::new();
    let mut forbid = |field: &str, why: &str| errors.push(FieldError::forbidden(field, why));
    if watch && initial && matching != Some("NotOlderThan") {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        forbid("resourceVersionMatch", why);
    }
    if matching.is_some() && watch && !initial {
        let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
        forbid("resourceVersionMatch", why);
    }
    if matching.is_some() && !watch && query.get("resourceVersion").is_none() {
        forbid(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        );
    }
    if matching.is_some() && query.get("continue").is_some() {
        forbid("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided");
    }
    if !watch && matching == Some("Exact") && query.get("resourceVersion") == Some("0") {
        let why = "resourceVersionMatch \"Exact\" is forbidden for resourceVersion \"0\"";
        forbid("resourceVersionMatch", why);
    }
    if !watch && initial {
        forbid("sendInitialEvents", "sendInitialEvents is forbidden for list");
    }
    let known: &[&str] = if watch { &["NotOlderThan"] } else { &["Exact", "NotOlderThan", ""] };
    if let Some(other) = matching.filter(|matching| !known.contains(matching)) {
        errors.push(FieldError::not_supported("resourceVersionMatch", other, known));
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(Status::invalid(("meta.k8s.io", "ListOptions"), "", &errors)),
    }
}

/// Waits until the store has come as far as a client has seen elsewhere.
///
/// # Errors
/// 504 with `ResourceVersionTooLarge` when it does not in time.
pub(super) async fn reach(store: &Store, version: ResourceVersion) -> Result<(), Status> {
    let reached = store.wait_until(version, PATIENCE).await;
    reached
        .map_err(|error| crate::status::from_storage(&error, &crate::resource::GroupResource::default(), ""))
}
