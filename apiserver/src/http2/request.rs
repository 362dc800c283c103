//! A request as it comes over HTTP/2.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use axum::body::Body;
use bytes::Bytes;
use h2::RecvStream;
use http::{HeaderMap, Request, header};
use http_body::{Frame, SizeHint};

/// The request with a body that takes in what comes as it is read, so that the client may send more.
pub(super) fn from_wire(request: Request<RecvStream>) -> Request<Body> {
    let (parts, stream) = request.into_parts();
    // A body that has ended with its headers is empty.
    let left = if stream.is_end_stream() { Some(0) } else { content_length(&parts.headers) };
    Request::from_parts(parts, Body::new(Received { stream, left }))
}

/// What is announced; h2 sees to it that no more and no less comes.
fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

struct Received {
    stream: RecvStream,
    left: Option<u64>,
}

impl http_body::Body for Received {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let polled = self.stream.poll_data(cx);
        if let Poll::Ready(Some(Ok(data))) = &polled {
            let length = data.len();
            if let Some(left) = &mut self.left {
                *left = left.saturating_sub(length as u64);
            }
            // It fails for more than has come, and this has.
            let _ = self.stream.flow_control().release_capacity(length);
        }
        polled.map(|data| data.map(|data| data.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map(SizeHint::with_exact).unwrap_or_default()
    }
}
