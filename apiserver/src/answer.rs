//! An answer on its way to its client: how long that may take, and what is given back when.
//!
//! Two things are held for an answer. What counts requests that are served ends when the body is *produced*: at once for a body
//! that is whole in memory. What counts memory ends when the last byte has left this program: pieces of a body know the
//! answer that they belong to, wherever the connection keeps them. Neither outlives the time limit of the answer, because the
//! connection resets its stream then ([`crate::http2`]), or ends (HTTP/1.1).

use std::{
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use axum::body::Body;
use bytes::{Buf, Bytes};
use http::Response;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::{sync::Notify, task::JoinHandle, time::Instant};

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Handed over to the last byte.
    Complete,
    /// Its source failed, and it was cut short.
    Broken,
    /// Its time was up.
    Late,
    /// The client went away.
    Abandoned,
}

/// An answer that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Bytes of its body, as sent.
    pub bytes: u64,
    /// Whether the answer was complete, and if not, why.
    pub end: End,
}

/// How long an answer may take.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// All of it until this moment.
    Until(Instant),
    /// As long as it likes, but the client may not take nothing for so long.
    Stalled(Duration),
}

type Then = Box<dyn FnOnce(Sent) + Send>;
type Held = Box<dyn Send>;
type Polled = Option<Result<Frame<Bytes>, axum::Error>>;

/// What the body, its timer and its pieces share. The last of them that is dropped ends the answer.
struct Shared {
    state: Mutex<State>,
    /// Pieces that are not sent yet.
    pieces: AtomicUsize,
    /// There is none any more.
    flushed: Notify,
}

struct State {
    inner: Option<Body>,
    /// What the body said when it was asked whether it is whole.
    first: Option<Polled>,
    bytes: u64,
    end: Option<End>,
    producing: Option<Held>,
    then: Option<Then>,
    waker: Option<Waker>,
}

impl State {
    /// What produces the body is given back now, not when the connection gets round to it.
    fn over(&mut self, end: End) {
        self.end.get_or_insert(end);
        (self.inner, self.first, self.producing) = (None, None, None);
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Polled> {
        match (self.first.take(), &mut self.inner) {
            (Some(first), _) => Poll::Ready(first),
            (None, Some(inner)) => http_body::Body::poll_frame(Pin::new(inner), cx),
            (None, None) if self.end == Some(End::Complete) => Poll::Ready(None),
            (None, None) => {
                Poll::Ready(Some(Err(axum::Error::new("the time limit of the response has passed"))))
            }
        }
    }

    /// Whether nothing of the body is left to be taken.
    fn is_taken(&self) -> bool {
        self.end == Some(End::Complete) || (self.first.is_none() && self.inner.as_ref().is_some_and(is_over))
    }

    /// A body of which nothing is left but what is at hand is produced.
    fn look_whether_produced(&mut self) {
        if self.inner.as_ref().is_none_or(is_over) {
            self.producing = None;
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let end = state.end.unwrap_or(End::Abandoned);
        state.over(end);
        if let Some(then) = state.then.take() {
            then(Sent { bytes: state.bytes, end });
        }
    }
}

/// Whether nothing of a body is left: it says so, or as much as it announced has come.
pub(crate) fn is_over(body: &Body) -> bool {
    http_body::Body::is_end_stream(body) || http_body::Body::size_hint(body).exact() == Some(0)
}

/// The body of an answer.
pub struct Followed {
    shared: Arc<Shared>,
    limit: Limit,
    timer: Option<JoinHandle<()>>,
}

/// Bytes of a body that keep what is held for their answer until they are sent.
pub struct Piece {
    data: Bytes,
    answer: Option<Arc<Shared>>,
}

/// Drops `producing` when the body is produced, and calls `then` when the answer is over, each once. That may be while h2 holds
/// the lock of the connection: neither may hold a body of a request.
pub fn follow(
    response: Response<Body>,
    limit: Limit,
    producing: impl Send + 'static,
    then: impl FnOnce(Sent) + Send + 'static,
) -> Response<Followed> {
    response.map(|mut inner| {
        // What comes of a request that ends is asked for at once, to learn whether it is whole.
        let first = match limit {
            Limit::Until(_) => first_of(&mut inner),
            Limit::Stalled(_) => None,
        };
        let mut state = State {
            inner: Some(inner),
            first,
            bytes: 0,
            end: None,
            producing: Some(Box::new(producing)),
            then: Some(Box::new(then)),
            waker: None,
        };
        state.look_whether_produced();
        let (pieces, flushed) = Default::default();
        let shared = Shared { state: Mutex::new(state), pieces, flushed };
        Followed { shared: Arc::new(shared), limit, timer: None }
    })
}

fn first_of(inner: &mut Body) -> Option<Polled> {
    if is_over(inner) {
        return None;
    }
    // A body that is not ready is asked again by who sends it.
    let mut nobody = Context::from_waker(Waker::noop());
    match http_body::Body::poll_frame(Pin::new(inner), &mut nobody) {
        Poll::Ready(first) => Some(first),
        Poll::Pending => None,
    }
}

impl Followed {
    /// How long it may take to send it.
    #[must_use]
    pub fn limit(&self) -> Limit {
        self.limit
    }

    /// Ends the answer: what is not sent will not be.
    pub fn cut(&self, end: End) {
        self.shared.state.lock().over(end);
    }

    /// As [`http_body::Body::poll_frame`], with the data alone.
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, axum::Error>>> {
        loop {
            let mut state = self.shared.state.lock();
            let Poll::Ready(polled) = state.poll(cx) else {
                state.waker = Some(cx.waker().clone());
                return Poll::Pending;
            };
            match polled {
                Some(Ok(frame)) => {
                    // Trailers are not sent: nothing here has any.
                    let Ok(data) = frame.into_data() else { continue };
                    state.bytes += data.len() as u64;
                    state.look_whether_produced();
                    return Poll::Ready(Some(Ok(data)));
                }
                Some(Err(error)) => {
                    state.over(End::Broken);
                    return Poll::Ready(Some(Err(error)));
                }
                None => {
                    state.over(End::Complete);
                    return Poll::Ready(None);
                }
            }
        }
    }

    /// Makes bytes of this body a piece of it.
    #[must_use]
    pub fn piece(&self, data: Bytes) -> Piece {
        self.shared.pieces.fetch_add(1, Ordering::AcqRel);
        Piece { data, answer: Some(self.shared.clone()) }
    }

    /// Waits until all pieces are sent, or thrown away.
    pub async fn flushed(&self) {
        while self.shared.pieces.load(Ordering::Acquire) > 0 {
            self.shared.flushed.notified().await;
        }
    }

    /// Nothing of the body is left to be taken.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.shared.state.lock().is_taken()
    }

    /// For a connection that does not ask while its client reads nothing (HTTP/1.1): a timer beside the body, which calls
    /// `late` when it has ended the answer.
    #[must_use]
    pub fn with_timer(mut self, late: impl FnOnce() + Send + 'static) -> Self {
        if let Limit::Until(moment) = self.limit {
            self.timer = Some(tokio::spawn(end_at(Arc::downgrade(&self.shared), moment, late)));
        }
        self
    }
}

async fn end_at(shared: Weak<Shared>, moment: Instant, late: impl FnOnce()) {
    tokio::time::sleep_until(moment).await;
    let Some(shared) = shared.upgrade() else { return };
    let waker = {
        let mut state = shared.state.lock();
        state.over(End::Late);
        state.waker.take()
    };
    late();
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl http_body::Body for Followed {
    type Data = Piece;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, Self::Error>>> {
        let polled = self.poll_data(cx);
        polled.map(|data| data.map(|data| data.map(|data| Frame::data(self.piece(data)))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_taken()
    }

    fn size_hint(&self) -> SizeHint {
        let state = self.shared.state.lock();
        let inner = state.inner.as_ref().map(http_body::Body::size_hint).unwrap_or_default();
        let first = match &state.first {
            Some(Some(Ok(frame))) => frame.data_ref().map_or(0, |data| data.len() as u64),
            _ => 0,
        };
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + first);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + first);
        }
        hint
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        if let Some(timer) = &self.timer {
            timer.abort();
        }
        let mut state = self.shared.state.lock();
        // Connections do not ask again after the last byte of an answer whose length is known.
        let end = if state.is_taken() { End::Complete } else { End::Abandoned };
        state.over(end);
    }
}

impl Piece {
    /// The end of a body without data.
    #[must_use]
    pub fn end() -> Self {
        Self { data: Bytes::new(), answer: None }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let Some(answer) = &self.answer
            && answer.pieces.fetch_sub(1, Ordering::AcqRel) == 1
        {
            answer.flushed.notify_one();
        }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.data.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.data.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.data.advance(count);
    }
}

#[cfg(test)]
mod tests;
