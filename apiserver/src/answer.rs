//! An answer on its way to its client: how long that may take, and what is done when it is over, however it ends.

use std::{
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, Waker},
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use http::Response;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

/// Bodies up to this size are in the connection's buffer at once: no timer is kept for them.
const UNTIMED: u64 = 64 << 10;

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
    /// How it ended.
    pub end: End,
}

type Then = Box<dyn FnOnce(Sent) + Send>;

/// What the body and its timer share.
struct State {
    inner: Option<Body>,
    bytes: u64,
    then: Option<Then>,
    waker: Option<Waker>,
}

impl State {
    fn over(&mut self, end: End) {
        // What the body holds is given back now, not when the connection gets round to it.
        self.inner = None;
        if let Some(then) = self.then.take() {
            then(Sent { bytes: self.bytes, end });
        }
    }
}

struct Followed {
    state: Arc<Mutex<State>>,
    timer: Option<JoinHandle<()>>,
}

/// Calls `then` once when the answer is over. With `within` it is cut off after that time: a client that does not read would
/// hold memory for ever, and a body that nobody reads is never polled, so the timer stands beside it.
pub fn follow(
    response: Response<Body>,
    within: Option<Duration>,
    then: impl FnOnce(Sent) + Send + 'static,
) -> Response<Body> {
    response.map(|inner| {
        let long = http_body::Body::size_hint(&inner).upper().is_none_or(|upper| upper > UNTIMED);
        let state = State { inner: Some(inner), bytes: 0, then: Some(Box::new(then)), waker: None };
        let state = Arc::new(Mutex::new(state));
        let timer = within.filter(|_| long).map(|within| tokio::spawn(cut(Arc::downgrade(&state), within)));
        Body::new(Followed { state, timer })
    })
}

async fn cut(state: Weak<Mutex<State>>, within: Duration) {
    tokio::time::sleep(within).await;
    let Some(state) = state.upgrade() else { return };
    let waker = {
        let mut state = state.lock();
        state.over(End::Late);
        state.waker.take()
    };
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl http_body::Body for Followed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let mut state = self.state.lock();
        let Some(inner) = state.inner.as_mut() else {
            return Poll::Ready(Some(Err(axum::Error::new("the time for the answer is up"))));
        };
        let polled = Pin::new(inner).poll_frame(cx);
        match &polled {
            Poll::Pending => state.waker = Some(cx.waker().clone()),
            Poll::Ready(Some(Ok(frame))) => {
                state.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
            }
            // The body stays to say that it has ended.
            Poll::Ready(None) => {
                state.over(End::Complete);
                state.inner = Some(Body::empty());
            }
            Poll::Ready(Some(Err(_))) => state.over(End::Broken),
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.state.lock().inner.as_ref().is_some_and(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.state.lock().inner.as_ref().map(http_body::Body::size_hint).unwrap_or_default()
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        if let Some(timer) = &self.timer {
            timer.abort();
        }
        let mut state = self.state.lock();
        // Connections do not ask again after the last byte of an answer whose length is known.
        let complete = state.inner.as_ref().is_some_and(|inner| {
            http_body::Body::is_end_stream(inner) || http_body::Body::size_hint(inner).exact() == Some(0)
        });
        state.over(if complete { End::Complete } else { End::Abandoned });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{StreamExt, stream};
    use http_body_util::BodyExt;
    use tokio::sync::oneshot;

    fn followed(body: Body, within: Option<Duration>) -> (Body, oneshot::Receiver<Sent>) {
        let (told, ended) = oneshot::channel();
        let response = follow(Response::new(body), within, |sent| told.send(sent).expect("somebody listens"));
        (response.into_body(), ended)
    }

    fn endless() -> Body {
        Body::from_stream(stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(b"more"))))
    }

    #[tokio::test]
    async fn tells_how_an_answer_ended_and_how_long_it_was() {
        let (body, ended) = followed(Body::from("whole"), None);
        assert_eq!(body.collect().await.expect("a body").to_bytes(), "whole");
        assert_eq!(ended.await, Ok(Sent { bytes: 5, end: End::Complete }));

        let (body, ended) = followed(Body::empty(), None);
        drop(body);
        assert_eq!(ended.await, Ok(Sent { bytes: 0, end: End::Complete }));

        let (mut body, ended) = followed(endless(), None);
        body.frame().await.expect("a frame").expect("data");
        drop(body);
        assert_eq!(ended.await, Ok(Sent { bytes: 4, end: End::Abandoned }));

        let broken = stream::iter([Ok(Bytes::from_static(b"a")), Err(std::io::Error::other("no more"))]);
        let (body, ended) = followed(Body::from_stream(broken), None);
        assert!(body.collect().await.is_err());
        assert_eq!(ended.await, Ok(Sent { bytes: 1, end: End::Broken }));
    }

    #[tokio::test]
    async fn an_answer_that_nobody_reads_gives_back_what_it_holds_when_its_time_is_up() {
        let held = Arc::new(());
        let holding = held.clone();
        let source = stream::pending::<Result<Bytes, std::io::Error>>().map(move |piece| {
            let _ = &holding;
            piece
        });
        let (body, ended) = followed(Body::from_stream(source), Some(Duration::from_millis(50)));
        assert_eq!(Arc::strong_count(&held), 2);
        // Nobody polls the body meanwhile.
        assert_eq!(ended.await, Ok(Sent { bytes: 0, end: End::Late }));
        assert_eq!(Arc::strong_count(&held), 1);
        assert!(body.collect().await.is_err(), "a late answer looked whole");
    }
}
