//! How new, or how old, a read has to be.

use std::time::Duration;

use repot_storage::{ResourceVersion, Store};

use super::options::option_error;
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
    let version = resource_version(query)?;
    let matching = query.get("resourceVersionMatch");
    let forbidden = |why: &str| {
        let error = repot_api::field::FieldError::forbidden("resourceVersionMatch", why);
        Status::invalid(("meta.k8s.io", "ListOptions"), "", &[error])
    };
    if query.maybe_flag("sendInitialEvents")?.is_some() {
        let error = repot_api::field::FieldError::forbidden(
            "sendInitialEvents",
            "sendInitialEvents is forbidden for list",
        );
        return Err(Status::invalid(("meta.k8s.io", "ListOptions"), "", &[error]));
    }
    if matching.is_some() && query.get("continue").is_some() {
        return Err(forbidden("resourceVersionMatch is forbidden when continue is provided"));
    }
    match (version, matching) {
        (None, Some(_)) => {
            Err(forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided"))
        }
        (None, None) => Ok(Freshness::Latest),
        (Some(0), Some("Exact")) => {
            Err(forbidden("resourceVersionMatch \"Exact\" is forbidden for resourceVersion \"0\""))
        }
        (Some(0), None | Some("NotOlderThan")) => Ok(Freshness::Any),
        (Some(version), Some("Exact")) => Ok(Freshness::Exact(ResourceVersion(version))),
        (Some(version), Some("NotOlderThan")) => Ok(Freshness::NotOlderThan(ResourceVersion(version))),
        // As clients of the years before resourceVersionMatch meant it.
        (Some(version), None) if limit > 0 => Ok(Freshness::Exact(ResourceVersion(version))),
        (Some(version), None) => Ok(Freshness::NotOlderThan(ResourceVersion(version))),
        (_, Some(other)) => Err(option_error(
            "ListOptions",
            "resourceVersionMatch",
            other,
            "supported values: \"Exact\", \"NotOlderThan\", \"\"",
        )),
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
