//! Responses that may come before the request is complete.
//!
//! curl 7.88 ends a request with `END_STREAM` as soon as it sees the head of a refusal, with less of a body than it announced. h2
//! resets such a stream with `PROTOCOL_ERROR`, and discards what is still queued on it. So a refusal must be ready as a whole when its
//! head is sent: head, body and the end of the stream then leave together, before the client can react.

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{Response, StatusCode};
use http_body_util::BodyExt;

/// Longer bodies are not gathered, in bytes: a `Status` with a few errors is far shorter.
const MOST: usize = 256 << 10;

/// Whether a response refuses its request.
#[must_use]
pub fn is_refusal(code: StatusCode) -> bool {
    code.is_client_error() || code.is_server_error()
}

/// Gathers the body of a refusal up to 256 KiB. Other responses, and what is longer, stay as they are.
pub async fn gather(response: Response<Body>) -> Response<Body> {
    if !is_refusal(response.status()) || http_body::Body::size_hint(response.body()).lower() > MOST as u64 {
        return response;
    }
    let (head, mut body) = response.into_parts();
    let mut gathered = BytesMut::new();
    loop {
        match body.frame().await {
            None => return Response::from_parts(head, Body::from(gathered.freeze())),
            Some(Ok(frame)) => gathered.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new())),
            Some(Err(error)) => {
                let pieces = [Ok(gathered.freeze()), Err(error)];
                return Response::from_parts(head, Body::from_stream(futures::stream::iter(pieces)));
            }
        }
        if gathered.len() > MOST {
            let first = futures::stream::iter([Ok(gathered.freeze())]);
            let rest = futures::StreamExt::chain(first, body.into_data_stream());
            return Response::from_parts(head, Body::from_stream(rest));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    fn response(code: StatusCode, pieces: Vec<Result<Bytes, std::io::Error>>) -> Response<Body> {
        let mut response = Response::new(Body::from_stream(stream::iter(pieces)));
        *response.status_mut() = code;
        response
    }

    fn pieces() -> Vec<Result<Bytes, std::io::Error>> {
        vec![Ok(Bytes::from_static(b"one ")), Ok(Bytes::from_static(b"two"))]
    }

    #[tokio::test]
    async fn a_refusal_is_one_piece_that_is_known_to_be_the_last() {
        let mut body = gather(response(StatusCode::FORBIDDEN, pieces())).await.into_body();
        let first = body.frame().await.expect("a frame").expect("no error");
        assert_eq!(first.into_data().expect("data"), "one two");
        assert!(http_body::Body::is_end_stream(&body));
    }

    #[tokio::test]
    async fn what_is_long_or_breaks_off_or_is_no_refusal_stays_what_it_is() {
        let mut body = gather(response(StatusCode::OK, pieces())).await.into_body();
        assert_eq!(
            body.frame().await.expect("a frame").expect("no error").into_data().expect("data"),
            "one "
        );
        let long = vec![
            Ok(Bytes::from(vec![b'x'; MOST])),
            Ok(Bytes::from_static(b"y")),
            Ok(Bytes::from_static(b"z")),
        ];
        let body = gather(response(StatusCode::CONFLICT, long)).await.into_body();
        assert_eq!(body.collect().await.expect("a body").to_bytes().len(), MOST + 2);
        let broken = vec![Ok(Bytes::from_static(b"one")), Err(std::io::Error::other("no more"))];
        let mut body = gather(response(StatusCode::CONFLICT, broken)).await.into_body();
        assert_eq!(body.frame().await.expect("a frame").expect("no error").into_data().expect("data"), "one");
        assert!(body.frame().await.expect("a frame").is_err(), "a body that broke off looks whole");
    }
}
