//! What goes wrong, as the page is told.

use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::json;

use super::reply::Json;

use crate::{garden, objects::causes, steer::write, text::one_line};

/// Most characters of a message.
const MOST_WORDS: usize = 2000;

/// A request of the page that is not done.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The garden refuses, or does not answer.
    #[error(transparent)]
    Garden(#[from] garden::Error),
    /// The request to a migration is not written.
    #[error(transparent)]
    Steer(write::Error),
    /// The request itself is wrong.
    #[error("{0}")]
    Bad(String),
    /// What was agreed to does not hold any more.
    #[error("{0}")]
    Changed(String),
    /// There is nothing of that name.
    #[error("{0}")]
    Missing(String),
    /// Too many pages are open.
    #[error("{0} pages follow the garden already; close one of them")]
    Full(usize),
}

/// Result of a request of the page.
pub(super) type Result<T> = std::result::Result<T, Error>;

impl Error {
    fn status(&self) -> StatusCode {
        use garden::Error as OfGarden;
        match self {
            Self::Garden(OfGarden::Missing(_) | OfGarden::NotServed { .. }) | Self::Missing(_) => {
                StatusCode::NOT_FOUND
            }
            Self::Garden(OfGarden::Forbidden { .. }) => StatusCode::FORBIDDEN,
            Self::Garden(OfGarden::Refused { code, .. }) => match code {
                404 => StatusCode::NOT_FOUND,
                409 => StatusCode::CONFLICT,
                400 | 422 => StatusCode::UNPROCESSABLE_ENTITY,
                _ => StatusCode::BAD_GATEWAY,
            },
            Self::Garden(OfGarden::Late { .. } | OfGarden::Request { .. } | OfGarden::Cut { .. }) => {
                StatusCode::BAD_GATEWAY
            }
            Self::Steer(write::Error::Garden(_)) => StatusCode::BAD_GATEWAY,
            Self::Steer(_) | Self::Changed(_) => StatusCode::CONFLICT,
            Self::Bad(_) => StatusCode::BAD_REQUEST,
            Self::Full(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let words: String = one_line(&causes(&self)).chars().take(MOST_WORDS).collect();
        (self.status(), Json::of(&json!({"error": words}))).into_response()
    }
}

impl From<write::Error> for Error {
    fn from(error: write::Error) -> Self {
        match error {
            write::Error::Garden(error) => Self::Garden(error),
            error => Self::Steer(error),
        }
    }
}
