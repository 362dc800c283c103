//! The last event of a request: it is written before the client sees the end of the response, and what the request holds is given
//! back only when the event is written or its time is up.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::body::Body;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::Response;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::{Facts, Trail, event::Outcome, policy::Stage};
use crate::{answer::is_over, early_response::is_refusal};

/// The event with which a request ends. It is handed to the log once: at the end of the response, or when this is dropped.
pub(crate) struct Completion(Mutex<State>);

enum State {
    Open(Box<Ending>),
    /// The log has it.
    Storing(BoxFuture<'static, bool>),
    Stored,
}

struct Ending {
    trail: Trail,
    stage: Stage,
    facts: Facts,
    outcome: Outcome,
}

impl State {
    /// Hands the event over, where that was not done.
    fn start(&mut self) {
        if let Self::Open(_) = self
            && let Self::Open(ending) = std::mem::replace(self, Self::Stored)
        {
            let Ending { trail, stage, facts, outcome } = *ending;
            if let Some(event) = trail.event(stage, facts, Some(outcome)) {
                *self = Self::Storing(Box::pin(trail.store(event)));
            }
        }
    }
}

impl Completion {
    pub(super) fn new(trail: Trail, stage: Stage, facts: Facts, outcome: Outcome) -> Self {
        Self(Mutex::new(State::Open(Box::new(Ending { trail, stage, facts, outcome }))))
    }

    /// Records that a response begins that may go on for long.
    pub(crate) async fn begins(&self) {
        let stored = match &*self.0.lock() {
            State::Open(ending) => {
                let Ending { trail, facts, outcome, .. } = &**ending;
                let outcome = Outcome { code: outcome.code, status: outcome.status.clone() };
                trail
                    .event(Stage::ResponseStarted, facts.clone(), Some(outcome))
                    .map(|event| trail.store(event))
            }
            _ => None,
        };
        if let Some(stored) = stored {
            stored.await;
        }
    }

    /// Hands the event over, and ends when it is written or nobody waits for it any more.
    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        state.start();
        if let State::Storing(storing) = &mut *state {
            ready!(storing.as_mut().poll(cx));
            *state = State::Stored;
        }
        Poll::Ready(())
    }

    /// The response is over, however it ended. `held` is dropped when the event is written or nobody waits for it any more.
    pub(crate) fn settle(&self, held: impl Send + 'static) {
        let mut state = self.0.lock();
        state.start();
        let State::Storing(storing) = std::mem::replace(&mut *state, State::Stored) else { return };
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                storing.await;
                drop(held);
            });
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        self.0.get_mut().start();
    }
}

/// Holds the last piece of a response back until its event is written.
pub(crate) async fn hold(response: Response<Body>, completion: Option<&Arc<Completion>>) -> Response<Body> {
    let Some(completion) = completion else { return response };
    if is_refusal(response.status()) || is_over(response.body()) {
        // There is no piece to hold back, or it must not be apart from the head.
        std::future::poll_fn(|cx| completion.poll(cx)).await;
        return response;
    }
    let completion = completion.clone();
    response.map(|body| Body::new(Held { body, completion, last: None, phase: Phase::Sending }))
}

struct Held {
    body: Body,
    completion: Arc<Completion>,
    last: Option<Frame<Bytes>>,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Sending,
    Storing,
    Over,
}

impl http_body::Body for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        if this.phase == Phase::Sending {
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) if is_over(&this.body) => this.last = Some(frame),
                None => {}
                frame => return Poll::Ready(frame),
            }
            this.phase = Phase::Storing;
        }
        if this.phase == Phase::Storing {
            ready!(this.completion.poll(cx));
            this.phase = Phase::Over;
        }
        Poll::Ready(this.last.take().map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.phase == Phase::Over && self.last.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.last {
            Some(last) => SizeHint::with_exact(last.data_ref().map_or(0, |data| data.len() as u64)),
            None => self.body.size_hint(),
        }
    }
}
