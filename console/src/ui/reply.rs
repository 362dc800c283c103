//! Answers and requests in JSON.

use axum::{
    body::Bytes,
    http::{HeaderMap, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use serde::{Serialize, de::DeserializeOwned};

use super::error::{Error, Result};

/// An answer in JSON.
pub(super) struct Json(String);

impl Json {
    /// What has no other keys than strings becomes JSON in any case.
    pub(super) fn of(answer: &impl Serialize) -> Self {
        Self(serde_json::to_string(answer).unwrap_or_else(|_| "null".to_owned()))
    }
}

impl IntoResponse for Json {
    fn into_response(self) -> Response {
        ([(CONTENT_TYPE, "application/json")], self.0).into_response()
    }
}

/// What a page sends. Forms of other sites cannot have this media type without asking first.
pub(super) fn read<T: DeserializeOwned>(headers: &HeaderMap, body: &Bytes) -> Result<T> {
    let is_json = headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes() == b"application/json");
    if !is_json {
        return Err(Error::Bad("the request has to be application/json".to_owned()));
    }
    serde_json::from_slice(body).map_err(|error| Error::Bad(format!("the request cannot be read: {error}")))
}

/// Whether this can be the name of an object: it becomes part of a path of the API server.
pub(super) fn is_name(text: &str) -> bool {
    let is_known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    !text.is_empty() && text.len() <= 253 && text.chars().all(is_known) && !text.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_no_names() {
        for name in ["", "..", "../x", "a/b", "a%2fb", "a?b", "A", "a\u{0}b", &"a".repeat(254)] {
            assert!(!is_name(name), "{name:?}");
        }
        assert!(is_name("shoot-1.example"));
    }

    #[test]
    fn request_of_a_form_is_refused() {
        let of = |kind: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, kind.parse().expect("a value"));
            read::<serde_json::Value>(&headers, &Bytes::from_static(b"{}"))
        };
        assert!(of("application/json").is_ok());
        for kind in ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=x"] {
            assert!(of(kind).is_err(), "{kind}");
        }
    }
}
