//! What goes wrong, as the page is told.

use std::error::Error as StdError;

use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::json;

use super::reply::Json;

use crate::{garden, steer::Refusal, text::one_line};

/// Most characters of a message.
const MOST_WORDS: usize = 2000;

/// A request of the page that is not done.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The garden refuses, or does not answer.
    #[error(transparent)]
    Garden(#[from] garden::Error),
    /// It would not be obeyed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The request itself is wrong.
    #[error("{0}")]
    Bad(String),
    /// What was agreed to does not hold any more.
    #[error("{0}")]
    Changed(String),
    /// There is nothing of that name.
    #[error("{0}")]
    Missing(String),
    /// Somebody else has written meanwhile, each time.
    #[error("{0} changes all the time; try again")]
    Contended(String),
    /// Too many pages are open.
    #[error("{0} pages follow the garden already; close one of them")]
    Full(usize),
}

/// Result of a request of the page.
pub(super) type Result<T> = std::result::Result<T, Error>;

impl Error {
    fn status(&self) -> StatusCode {
        match self {
            Self::Garden(garden::Error::Missing(_)) | Self::Missing(_) => StatusCode::NOT_FOUND,
            Self::Garden(error) => match code(error) {
                Some(403) => StatusCode::FORBIDDEN,
                Some(404) => StatusCode::NOT_FOUND,
                Some(409) => StatusCode::CONFLICT,
                Some(400 | 422) => StatusCode::UNPROCESSABLE_ENTITY,
                _ => StatusCode::BAD_GATEWAY,
            },
            Self::Refused(_) | Self::Changed(_) | Self::Contended(_) => StatusCode::CONFLICT,
            Self::Bad(_) => StatusCode::BAD_REQUEST,
            Self::Full(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// The code of the API server's answer.
pub(super) fn code(error: &garden::Error) -> Option<u16> {
    match error {
        garden::Error::Request { source, .. } => match source.as_ref() {
            kube::Error::Api(status) => Some(status.code),
            _ => None,
        },
        _ => None,
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let words: String = one_line(&chain(&self)).chars().take(MOST_WORDS).collect();
        (self.status(), Json::of(&json!({"error": words}))).into_response()
    }
}

/// An error with its causes, without repeating what a text has said already.
pub(super) fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !words.ends_with(&text) {
            words.push_str(": ");
            words.push_str(&text);
        }
        cause = error.source();
    }
    words
}
