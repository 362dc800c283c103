//! Forwards requests to the kube-apiserver of the seed, with the credentials of the proxy.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Response, StatusCode, header, request::Parts};
use http_body::{Body as HttpBody, Frame, SizeHint};
use kube::{Client, client::Body};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::reply::Failure;
use crate::errors::causes;

/// How long kube-apiserver has until an answer begins: its own limit is 60 seconds.
const ANSWER_DEADLINE: Duration = Duration::from_secs(70);

/// Headers that are for one connection, or that say who the client is.
const OWN: [HeaderName; 9] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::HOST,
    header::AUTHORIZATION,
];
/// Others of that sort, by the beginning of their name. An API server believes `X-Remote-` of a front proxy.
const OWN_PREFIXES: [&str; 4] = ["keep-alive", "proxy-", "x-remote-", "x-forwarded-"];
/// Headers that give a request another method than its first line.
const OVERRIDES: [&str; 3] = ["x-http-method-override", "x-http-method", "x-method-override"];

/// The first header by which a request is something else than it seems, or wants to become another protocol.
#[must_use]
pub fn refused_header(headers: &HeaderMap) -> Option<&'static str> {
    let upgrades = headers.contains_key(header::UPGRADE).then_some("Upgrade");
    upgrades.or_else(|| OVERRIDES.into_iter().find(|name| headers.contains_key(*name)))
}

/// Sends a request with this body, and returns when the answer begins.
///
/// # Errors
/// 502 where kube-apiserver cannot be reached or breaks off, 504 where it does not answer in time.
pub async fn send(client: &Client, parts: &Parts, body: Option<Bytes>) -> Result<Response<Body>, Failure> {
    let request = request(parts, body).map_err(|error| {
        Failure::new(
            StatusCode::BAD_REQUEST,
            "BadRequest",
            format!("the request cannot be forwarded: {error}"),
        )
    })?;
    match timeout(ANSWER_DEADLINE, client.send(request)).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(error)) => {
            let why = format!(
                "the watchdog proxy failed to ask kube-apiserver: {}; a write may have happened all the same",
                causes(&error)
            );
            Err(Failure::new(StatusCode::BAD_GATEWAY, "ServiceUnavailable", why))
        }
        Err(_) => {
            let why = format!(
                "kube-apiserver has not answered the watchdog proxy within {ANSWER_DEADLINE:?}; a write may have happened all the same"
            );
            Err(Failure::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", why))
        }
    }
}

fn request(parts: &Parts, body: Option<Bytes>) -> Result<Request<Body>, http::Error> {
    // Only the path counts: a client that names another server in the first line reaches the same one.
    let path = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let mut request = Request::builder().method(parts.method.clone()).uri(path);
    if let Some(headers) = request.headers_mut() {
        *headers = parts.headers.clone();
        remove_own(headers);
        // The length is that of the body which is sent; a read has none.
        headers.remove(header::CONTENT_LENGTH);
    }
    request.body(body.map_or_else(Body::empty, Body::from))
}

fn remove_own(headers: &mut HeaderMap) {
    let listed: Vec<String> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(|name| name.trim().to_ascii_lowercase()))
        .collect();
    let is_own = |name: &HeaderName| {
        OWN.contains(name)
            || OWN_PREFIXES.iter().any(|prefix| name.as_str().starts_with(prefix))
            || listed.iter().any(|listed| listed == name.as_str())
    };
    let own: Vec<HeaderName> = headers.keys().filter(|name| is_own(name)).cloned().collect();
    own.iter().for_each(|name| drop(headers.remove(name)));
}

/// The body of an answer: it is passed on as it comes, and what it holds is free when it ends.
pub struct Streamed<G> {
    body: Body,
    /// Ends a watch when the proxy stops; other answers are passed on to their end.
    stop: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    _held: G,
}

/// The answer of kube-apiserver for the client. `held` is dropped when its body ends.
pub fn streamed<G: Send + 'static>(
    response: Response<Body>,
    stop: Option<CancellationToken>,
    held: G,
) -> Response<Streamed<G>> {
    let (mut parts, body) = response.into_parts();
    remove_own(&mut parts.headers);
    let stop = stop.map(|stop| Box::pin(stop.cancelled_owned()));
    Response::from_parts(parts, Streamed { body, stop, _held: held })
}

impl<G: Unpin> HttpBody for Streamed<G> {
    type Data = Bytes;
    type Error = kube::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, kube::Error>>> {
        if let Some(stop) = &mut self.stop
            && stop.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_the_connection_and_of_the_user_are_not_forwarded() {
        let request = Request::builder()
            .method("PATCH")
            .uri("https://elsewhere.example.org/api/v1/x?fieldManager=a")
            .header("connection", "keep-alive, X-Secret")
            .header("x-secret", "1")
            .header("keep-alive", "1")
            .header("authorization", "Bearer x")
            .header("x-remote-user", "system:admin")
            .header("x-remote-extra-a", "b")
            .header("transfer-encoding", "chunked")
            .header("content-length", "7")
            .header("content-type", "application/json")
            .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
            .body(())
            .expect("a request");
        let (parts, ()) = request.into_parts();
        let sent = super::request(&parts, Some(Bytes::from_static(b"{}"))).expect("a request");
        assert_eq!(sent.uri(), "/api/v1/x?fieldManager=a");
        let mut names: Vec<&str> = sent.headers().keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["accept", "content-type"]);
    }

    #[test]
    fn upgrades_and_other_methods_are_noticed() {
        let of = |name: &'static str| {
            let headers =
                HeaderMap::from_iter([(HeaderName::from_static(name), "x".parse().expect("a value"))]);
            refused_header(&headers)
        };
        assert_eq!(of("upgrade"), Some("Upgrade"));
        assert_eq!(of("x-http-method-override"), Some("x-http-method-override"));
        assert_eq!(of("accept"), None);
    }
}
