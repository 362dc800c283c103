//! The only place where an error becomes a `metav1.Status` and an HTTP code.

mod storage;

use axum::body::Body;
use http::{HeaderValue, Response, StatusCode, header};
use repot_apimachinery::field::{FieldError, MAX_ERRORS, shortened};
use serde::Serialize;

use crate::resource::GroupResource;

pub use storage::from_storage;

/// A message is cut off there, in bytes: what clients send may be of any length, and is often part of it.
const MAX_MESSAGE: usize = 128 << 10;
/// A text of a cause is cut off there, in bytes.
const MAX_CAUSE: usize = 4 << 10;
/// The name of an object that is refused is cut off there, in bytes.
const MAX_NAME: usize = 512;

fn short_name(name: &str) -> String {
    name[..name.floor_char_boundary(MAX_NAME)].to_owned()
}

/// A failure as the client will see it. Boxed: it is the error of almost everything here, and rare.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", .0.message)]
pub struct Status(Box<Wire>);

#[derive(Clone, Debug, Serialize)]
struct Wire {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    metadata: ListMeta,
    status: &'static str,
    message: String,
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
    code: u16,
    /// Somebody else's whole answer, to be passed on as it is.
    #[serde(skip)]
    verbatim: Option<serde_json::Value>,
}

#[derive(Clone, Debug, Default, Serialize)]
struct ListMeta {
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    token: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    causes: Vec<StatusCause>,
    #[serde(skip_serializing_if = "is_zero")]
    retry_after_seconds: u32,
}

#[derive(Clone, Debug, Serialize)]
struct StatusCause {
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'static str,
    message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    field: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Status {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self(Box::new(Wire {
            kind: "Status",
            api_version: "v1",
            metadata: ListMeta::default(),
            status: "Failure",
            message: shortened(message.into(), MAX_MESSAGE),
            reason,
            details: None,
            code: code.as_u16(),
            verbatim: None,
        }))
    }

    fn about(mut self, resource: &GroupResource, name: &str) -> Self {
        let details = self.0.details.get_or_insert_default();
        details.group.clone_from(&resource.group);
        details.kind.clone_from(&resource.resource);
        details.name = short_name(name);
        self
    }

    fn cause(mut self, reason: &'static str, message: impl Into<String>, field: impl Into<String>) -> Self {
        let (message, field) = (shortened(message.into(), MAX_CAUSE), shortened(field.into(), MAX_CAUSE));
        let cause = StatusCause { reason, message, field };
        self.0.details.get_or_insert_default().causes.push(cause);
        self
    }

    fn retry_after(mut self, seconds: u32) -> Self {
        self.0.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    /// With so many bytes of a message at most: a client may put any text into one, by its path for example.
    #[must_use]
    pub(crate) fn shortened(mut self, most: usize) -> Self {
        if self.0.message.len() > most {
            let end = self.0.message.floor_char_boundary(most);
            self.0.message.truncate(end);
            self.0.details = None;
        }
        self
    }

    /// HTTP status code of the answer; 500 where the number is not a valid code.
    #[must_use]
    pub fn code(&self) -> StatusCode {
        StatusCode::from_u16(self.0.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The machine-readable reason; empty for what [`Status::verbatim`] passes on.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        self.0.reason
    }

    /// The HTTP response: the Status as JSON, with `Retry-After` where the client is to wait.
    #[must_use]
    pub fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.to_json()));
        *response.status_mut() = self.code();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        let seconds = self.retry_after_seconds();
        if seconds > 0 {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    fn retry_after_seconds(&self) -> u32 {
        match &self.0.verbatim {
            Some(status) => {
                let seconds = status["details"]["retryAfterSeconds"].as_u64().unwrap_or(0);
                u32::try_from(seconds).unwrap_or(0)
            }
            None => self.0.details.as_ref().map_or(0, |details| details.retry_after_seconds),
        }
    }

    /// As JSON, for bodies and for ERROR events.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        match &self.0.verbatim {
            Some(status) => serde_json::to_vec(status).unwrap_or_default(),
            None => serde_json::to_vec(&self.0).unwrap_or_default(),
        }
    }
}

/// The statuses, by reason.
impl Status {
    /// The status that somebody else made, such as an admission webhook. It has no reason of ours: what is done about
    /// our own conflicts is not to be done about theirs.
    pub(crate) fn verbatim(code: u16, status: serde_json::Value) -> Self {
        let message = status["message"].as_str().unwrap_or_default().to_owned();
        let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut passed_on = Self::new(code, "", message);
        passed_on.0.verbatim = Some(status);
        passed_on
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    pub(crate) fn forbidden(resource: &GroupResource, name: &str, why: &str) -> Self {
        let what = if name.is_empty() { resource.to_string() } else { format!("{resource} {name:?}") };
        Self::new(StatusCode::FORBIDDEN, "Forbidden", format!("{what} is forbidden: {why}"))
            .about(resource, name)
    }

    pub(crate) fn forbidden_path(why: &str) -> Self {
        let message = format!("forbidden: {why}");
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).about(&GroupResource::default(), "")
    }

    pub(crate) fn namespace_terminating(resource: &GroupResource, name: &str, namespace: &str) -> Self {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let cause = format!("namespace {namespace} is being terminated");
        Self::forbidden(resource, name, &why).cause("NamespaceTerminating", cause, "metadata.namespace")
    }

    pub(crate) fn not_found(resource: &GroupResource, name: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", format!("{resource} {name:?} not found"))
            .about(resource, name)
    }

    pub(crate) fn no_such_path() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about(&GroupResource::default(), "")
    }

    /// There is nothing at a path that a client may expect to exist, and why.
    pub(crate) fn not_offered(why: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", why).about(&GroupResource::default(), "")
    }

    pub(crate) fn method_not_allowed(what: &str) -> Self {
        let message = format!("{what} is not supported on this resource");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
    }

    pub(crate) fn not_acceptable(supported: &str) -> Self {
        let message = format!("only the following media types are accepted: {supported}");
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    pub(crate) fn unsupported_media_type(supported: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {supported}"
        );
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    pub(crate) fn already_exists(resource: &GroupResource, name: &str, deleting: bool) -> Self {
        let prefix = if deleting { "object is being deleted: " } else { "" };
        let message = format!("{prefix}{resource} {name:?} already exists");
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(resource, name)
    }

    /// Every name that was generated is taken: another try has other letters.
    pub(crate) fn no_name_left(resource: &GroupResource, name: &str) -> Self {
        let why = "the server was not able to generate a unique name for the object";
        let message = format!("{resource} {name:?} already exists, {why}");
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(resource, name).retry_after(1)
    }

    pub(crate) fn conflict(resource: &GroupResource, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {name:?}: {why}");
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(resource, name)
    }

    pub(crate) fn modified(resource: &GroupResource, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    pub(crate) fn apply_conflict(conflicts: &[repot_apimachinery::managed::Conflict]) -> Self {
        let message = repot_apimachinery::managed::conflict::summary(conflicts);
        let status = Self::new(StatusCode::CONFLICT, "Conflict", message);
        conflicts.iter().take(MAX_ERRORS).fold(status, |status, conflict| {
            status.cause("FieldManagerConflict", conflict.message(), conflict.field())
        })
    }

    pub(crate) fn expired(message: impl Into<String>, token: Option<String>) -> Self {
        let mut status = Self::new(StatusCode::GONE, "Expired", message);
        status.0.metadata.token = token;
        status
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    pub(crate) fn invalid(kind: (&str, &str), name: &str, errors: &[FieldError]) -> Self {
        let (group, kind) = kind;
        let mut listed: Vec<String> = errors.iter().take(MAX_ERRORS).map(ToString::to_string).collect();
        if errors.len() > MAX_ERRORS {
            listed.push(format!("too many errors: only the first {MAX_ERRORS} are listed"));
        }
        let all = if listed.len() == 1 { listed[0].clone() } else { format!("[{}]", listed.join(", ")) };
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let name = &short_name(name);
        let message = format!("{qualified} {name:?} is invalid: {all}");
        let resource = GroupResource { group: group.to_owned(), resource: kind.to_owned() };
        let status = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).about(&resource, name);
        errors.iter().take(MAX_ERRORS).fold(status, |status, error| {
            status.cause(error.cause.reason(), error.message(), error.field.clone())
        })
    }

    pub(crate) fn too_much(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    pub(crate) fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message)
    }

    pub(crate) fn too_many_requests() -> Self {
        let message = "Too many requests, please try again later.";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message).retry_after(1)
    }

    /// What was asked for is being done for somebody else.
    pub(crate) fn retry_later(message: impl Into<String>, retry_after: u32) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message).retry_after(retry_after)
    }

    /// Work on a large body did not have its turn in time, and has not begun.
    pub(crate) fn busy() -> Self {
        let message = "the server is busy with other large requests, please try again later";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message).retry_after(5)
    }

    pub(crate) fn too_many_watches(user: &str, most: usize) -> Self {
        let message =
            format!("user {user:?} has {most} watches, and may have no more: see --max-watches-per-user");
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message).retry_after(5)
    }

    /// A user has its share of the connections.
    pub(crate) fn too_many_connections() -> Self {
        let message = "too many connections of this user, please use those that are open or try again later";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message).retry_after(1)
    }

    /// Events of a user wait for those before them, which some of its clients do not take.
    pub(crate) fn watch_events_wait() -> Self {
        let message = "other watches of this user do not take their events, please try again later";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message).retry_after(5)
    }

    pub(crate) fn shutting_down() -> Self {
        let message = "The apiserver is shutting down, please try again later.";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message).retry_after(5)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        let message = format!("Internal error occurred: {}", message.into());
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    pub(crate) fn storage_read(resource: &GroupResource, name: &str, why: &str) -> Self {
        let message = format!("failed to read {resource} {name:?} from the storage: {why}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "StorageReadError", message).about(resource, name)
    }

    pub(crate) fn unavailable(message: impl Into<String>, retry_after: u32) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message).retry_after(retry_after)
    }

    pub(crate) fn no_space(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INSUFFICIENT_STORAGE, "InsufficientStorage", message)
    }

    pub(crate) fn timeout(message: impl Into<String>, retry_after: u32) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message).retry_after(retry_after)
    }

    pub(crate) fn future_version(current: u64) -> Self {
        let message = format!("Too large resource version, current: {current}");
        Self::timeout(message, 1).cause("ResourceVersionTooLarge", "Too large resource version", "")
    }
}

#[cfg(test)]
mod tests;
