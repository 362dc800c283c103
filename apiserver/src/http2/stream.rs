//! One response over HTTP/2, within its time.
//!
//! Bytes are handed to the connection only within the window of the stream. So what a client does not take stays in the body,
//! where it is counted, and not in the queue of the connection; the end of the stream is never queued behind bytes that
//! have no window, and until then the stream can be reset, which frees all of it.

use std::{convert::Infallible, future::poll_fn, pin::Pin, task::Poll, time::Duration};

use bytes::Bytes;
use h2::{Reason, SendStream, server::SendResponse};
use http::{HeaderMap, HeaderValue, Method, Response, header};
use tokio::time::{Instant, timeout, timeout_at};

use crate::answer::{End, Followed, Limit, Piece};

/// Headers that are about an HTTP/1.1 connection (RFC 9113, 8.2.2).
const OF_CONNECTIONS: [header::HeaderName; 4] =
    [header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE, header::TE];

/// Waits for the response and sends it. A client that resets the stream ends both.
pub(super) async fn answer(
    method: Method,
    answered: Pin<Box<impl Future<Output = Result<Response<Followed>, Infallible>>>>,
    mut respond: SendResponse<Piece>,
) {
    let response = {
        // Dropped at the end of this block.
        let mut answered = answered;
        tokio::select! {
            biased;
            Ok(response) = answered.as_mut() => response,
            _ = poll_fn(|cx| respond.poll_reset(cx)) => return,
        }
    };
    let (mut parts, mut body) = response.into_parts();
    complete(&mut parts.headers, &body);
    let empty = method == Method::HEAD || body.is_taken();
    match respond.send_response(Response::from_parts(parts, ()), empty) {
        Ok(_) if empty => {}
        Ok(stream) => send(&mut body, stream).await,
        Err(error) => {
            tracing::debug!(%error, "a response could not be sent");
            respond.send_reset(Reason::INTERNAL_ERROR);
        }
    }
}

/// What every response has, and none of what HTTP/2 does not allow.
fn complete(headers: &mut HeaderMap, body: &Followed) {
    for name in OF_CONNECTIONS {
        headers.remove(name);
    }
    if let Some(length) = http_body::Body::size_hint(body).exact() {
        headers.entry(header::CONTENT_LENGTH).or_insert_with(|| length.into());
    }
    if let Some(date) = date() {
        headers.entry(header::DATE).or_insert(date);
    }
}

fn date() -> Option<HeaderValue> {
    let printer = jiff::fmt::rfc2822::DateTimePrinter::new();
    let text = printer.timestamp_to_rfc9110_string(&jiff::Timestamp::now()).ok()?;
    HeaderValue::from_str(&text).ok()
}

/// Why sending ended before the body did.
enum Failure {
    /// The body cannot be read.
    Body,
    /// The client reset the stream, or is gone.
    Gone,
    /// The client took nothing for too long.
    Stalled,
}

/// Sends the body within its limit, or resets the stream.
async fn send(body: &mut Followed, mut stream: SendStream<Piece>) {
    let sent = match body.limit() {
        Limit::Until(moment) => {
            let sending = async {
                pieces(body, &mut stream, None).await?;
                // A client may take a window back that it gave: what is queued then waits for it again.
                body.flushed().await;
                Ok(())
            };
            timeout_at(moment, sending).await.unwrap_or(Err(Failure::Stalled))
        }
        Limit::Stalled(most) => match pieces(body, &mut stream, Some(most)).await {
            Ok(()) => timeout(most, body.flushed()).await.map_err(|_| Failure::Stalled),
            failed => failed,
        },
    };
    let reason = match sent {
        Ok(()) | Err(Failure::Gone) => return,
        Err(Failure::Body) => Reason::INTERNAL_ERROR,
        Err(Failure::Stalled) => {
            body.cut(End::Late);
            Reason::CANCEL
        }
    };
    // Explicitly: a stream that is merely dropped keeps what is queued for it (h2, `schedule_implicit_reset`).
    stream.send_reset(reason);
}

/// `stall`: how long the client may take for what is at hand.
async fn pieces(
    body: &mut Followed,
    stream: &mut SendStream<Piece>,
    stall: Option<Duration>,
) -> Result<(), Failure> {
    loop {
        let mut data = match next(body, stream).await? {
            Some(data) => data,
            None => return hand_over(stream, Piece::end(), true),
        };
        let last = body.is_taken();
        let deadline = stall.map(|stall| Instant::now() + stall);
        while !data.is_empty() {
            stream.reserve_capacity(data.len());
            let capacity = match deadline {
                Some(deadline) => {
                    timeout_at(deadline, capacity(stream)).await.unwrap_or(Err(Failure::Stalled))?
                }
                None => capacity(stream).await?,
            };
            let part = data.split_to(capacity.min(data.len()));
            hand_over(stream, body.piece(part), last && data.is_empty())?;
        }
        if last {
            return Ok(());
        }
    }
}

/// The next bytes of the body, unless the client resets the stream while they are waited for.
async fn next(body: &mut Followed, stream: &mut SendStream<Piece>) -> Result<Option<Bytes>, Failure> {
    poll_fn(|cx| {
        if stream.poll_reset(cx).is_ready() {
            return Poll::Ready(Err(Failure::Gone));
        }
        body.poll_data(cx).map(|data| data.transpose().map_err(|_| Failure::Body))
    })
    .await
}

/// How many bytes the client takes now, at least one.
async fn capacity(stream: &mut SendStream<Piece>) -> Result<usize, Failure> {
    poll_fn(|cx| {
        if stream.poll_reset(cx).is_ready() {
            return Poll::Ready(Err(Failure::Gone));
        }
        loop {
            match stream.capacity() {
                0 => {}
                capacity => return Poll::Ready(Ok(capacity)),
            }
            match stream.poll_capacity(cx) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(Err(Failure::Gone)),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await
}

fn hand_over(stream: &mut SendStream<Piece>, piece: Piece, end: bool) -> Result<(), Failure> {
    stream.send_data(piece, end).map_err(|_| Failure::Gone)
}
