//! What an error of the store means to a client.

use http::StatusCode;

use super::Status;
use crate::resource::GroupResource;

/// An error of the store, seen by a client of this resource.
#[must_use]
pub fn from_storage(error: &repot_storage::Error, resource: &GroupResource, name: &str) -> Status {
    use repot_storage::Error as E;
    match error {
        E::Exists => Status::already_exists(resource, name, false),
        E::Conflict => Status::modified(resource, name),
        E::Expired { oldest } => Status::expired(
            format!("The provided resource version is too old; the oldest kept is {oldest}."),
            None,
        ),
        E::Future { current } => Status::future_version(current.0),
        E::TooLarge { limit, .. } => Status::too_large(*limit),
        E::NoSpace(why) => {
            tracing::error!(why, "the store takes no writes");
            Status::no_space("the store has no space left; see the server's log")
        }
        E::Corrupt { key, what } => {
            let name = if key.namespace.is_empty() {
                key.name.clone()
            } else {
                format!("{}/{}", key.namespace, key.name)
            };
            Status::storage_read(resource, &name, what)
        }
        E::Sealing { key, source } => {
            tracing::error!(%key, error = %source, "object cannot be sealed or opened");
            Status::storage_read(
                resource,
                &key.name,
                "it cannot be opened with the encryption configuration at hand",
            )
        }
        E::Invalid(why) => Status::bad_request(*why),
        E::Unavailable(_) => Status::unavailable("the store is unavailable, please try again", 2),
        E::Busy => Status::busy(),
        // The write may have happened, so no promise that trying again is safe.
        E::UnknownOutcome(_) => Status::new(
            StatusCode::GATEWAY_TIMEOUT,
            "Timeout",
            "the outcome of the write is unknown: read the object to learn it",
        ),
        other => {
            tracing::error!(error = %other, "unexpected error of the store");
            Status::internal("the store failed; see the server's log")
        }
    }
}
