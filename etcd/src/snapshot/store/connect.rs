//! Which failures of a connection lead to another try.
//!
//! The library tries a request again where it knows that nothing was sent, and one that may be sent twice also where the connection
//! broke. Three kinds of failures end a request at once, though the store answers again a moment later: errors of hyper that the
//! library does not know, a connection that breaks in the middle of a document, such as a page of a list, and one that breaks while
//! objects are deleted. They become failures after which it tries again. The bytes of an object it takes up itself.

use std::error::Error as StdError;

use async_trait::async_trait;
use http::{
    Method,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
};
use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
        ReqwestConnector,
    },
};

/// Documents up to this length are read before the library sees the answer. A page of a list has at most 1,000 names.
const DOCUMENT_BYTES: u64 = 16 << 20;

/// Connects with reqwest, and names the kind of each error of a connection.
#[derive(Debug)]
pub(super) struct Connector;

#[derive(Debug)]
struct Service(HttpClient);

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Service(client)))
    }
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let deletes = is_deletion(&request);
        let answer = self.0.execute(request).await.map_err(|error| with_kind(error, deletes))?;
        if !is_document(&answer) {
            return Ok(answer);
        }
        let (parts, body) = answer.into_parts();
        let body = body.bytes().await.map_err(|error| HttpError::new(HttpErrorKind::Interrupted, error))?;
        Ok(HttpResponse::from_parts(parts, body.into()))
    }
}

/// Stores answer in XML or JSON, and keep snapshots under other types.
fn is_document(answer: &HttpResponse) -> bool {
    let text = |name| answer.headers().get(name).and_then(|value| value.to_str().ok());
    let is_text = text(CONTENT_TYPE).is_some_and(|kind| kind.contains("xml") || kind.contains("json"));
    let bytes = text(CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
    is_text && bytes.is_none_or(|bytes| bytes <= DOCUMENT_BYTES)
}

/// All of them may be repeated: our callers take an object that is not there for one that is deleted.
fn is_deletion(request: &HttpRequest) -> bool {
    let bulk = |query: &str| query.split('&').any(|part| matches!(part, "delete" | "delete=" | "comp=batch"));
    request.method() == Method::DELETE
        || request.method() == Method::POST && request.uri().query().is_some_and(bulk)
}

fn with_kind(error: HttpError, deletes: bool) -> HttpError {
    use HttpErrorKind::{Interrupted, Request, Timeout, Unknown};
    let kind = match error.kind() {
        Unknown => kind_of(&error).unwrap_or(Unknown),
        kind => kind,
    };
    match kind {
        // After a failure of this kind, the library repeats any request.
        Interrupted | Timeout if deletes => HttpError::new(Request, error),
        kind if kind != error.kind() => HttpError::new(kind, error),
        _ => error,
    }
}

/// The kind by hyper's own error, where there is one in the chain.
fn kind_of(error: &HttpError) -> Option<HttpErrorKind> {
    let mut next = error.source();
    let found = loop {
        let cause = next?;
        match cause.downcast_ref::<hyper::Error>() {
            Some(found) => break found,
            None => next = cause.source(),
        }
    };
    match found {
        // The connection ended between the choice of it and the first byte.
        found if found.is_canceled() => Some(HttpErrorKind::Request),
        // A mistake of the caller does not go away.
        found if found.is_user() => None,
        _ => Some(HttpErrorKind::Interrupted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: Method, uri: &str) -> HttpRequest {
        let request = http::Request::builder().method(method).uri(uri);
        request.body(object_store::client::HttpRequestBody::empty()).expect("a request")
    }

    #[test]
    fn deletions_are_known_by_method_or_query() {
        let deletions = [
            (Method::DELETE, "http://s3/bucket/a"),
            (Method::POST, "http://s3/bucket?delete"),
            (Method::POST, "https://account/container?restype=container&comp=batch"),
        ];
        for (method, uri) in deletions {
            assert!(is_deletion(&request(method, uri)), "{uri}");
        }
        let others = [(Method::PUT, "http://s3/bucket/delete"), (Method::POST, "http://s3/bucket/a?uploads")];
        for (method, uri) in others {
            assert!(!is_deletion(&request(method, uri)), "{uri}");
        }
    }

    #[test]
    fn a_deletion_is_repeated_after_its_connection_broke_and_a_write_is_not() {
        let broken = || HttpError::new(HttpErrorKind::Interrupted, std::io::Error::other("reset"));
        assert_eq!(with_kind(broken(), true).kind(), HttpErrorKind::Request);
        assert_eq!(with_kind(broken(), false).kind(), HttpErrorKind::Interrupted);
    }
}
