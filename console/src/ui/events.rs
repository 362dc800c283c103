//! The stream of events that a page follows: all rows first, then what changes, and a beat from time to time.
//!
//! A page that takes its events too slowly loses its stream, and asks for all anew. So a page costs no more memory than the batches that
//! all pages share, and the buffer of its connection.

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};
use futures::stream;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::json;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, broadcast},
    time::{Instant, Interval, MissedTickBehavior, interval_at},
};

use super::{
    error::{Error, Result},
    listen::Hangup,
    state::{Rows, State},
};

/// Pages that follow at a time.
pub(super) const PAGES: usize = 32;
/// How often a page hears that it is connected, and what time it is here.
const BEAT: Duration = Duration::from_secs(10);
/// A connection that takes nothing for so long ends.
const STALLED: Duration = Duration::from_secs(60);

/// Who follows.
pub(super) struct Pages {
    free: Arc<Semaphore>,
    beat: Duration,
    stalled: Duration,
}

impl Default for Pages {
    fn default() -> Self {
        Self { free: Arc::new(Semaphore::new(PAGES)), beat: BEAT, stalled: STALLED }
    }
}

/// One event in the form of `text/event-stream`.
pub(super) fn event(name: &str, data: &impl Serialize) -> Bytes {
    // JSON has no line breaks of its own.
    let data = serde_json::to_string(data).unwrap_or_else(|_| "null".to_owned());
    format!("event: {name}\ndata: {data}\n\n").into()
}

/// What one page still gets.
struct Following {
    first: VecDeque<Rows>,
    batches: broadcast::Receiver<Bytes>,
    beats: Interval,
    /// When the connection took something last.
    taken: Arc<Mutex<Instant>>,
    _page: OwnedSemaphorePermit,
}

impl Pages {
    /// The stream for one page.
    pub(super) fn follow(&self, state: &State, hangup: Hangup) -> Result<Response> {
        let page = self.free.clone().try_acquire_owned().map_err(|_| Error::Full(PAGES))?;
        let subscription = state.subscribe();
        let taken = Arc::new(Mutex::new(Instant::now()));
        let mut beats = interval_at(Instant::now(), self.beat);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let following = Following {
            first: subscription.rows.into_iter().flat_map(Rows::parts).collect(),
            batches: subscription.batches,
            beats,
            taken: taken.clone(),
            _page: page,
        };
        tokio::spawn(end_stalled(Arc::downgrade(&taken), self.stalled, hangup));
        drop(taken);
        let events = stream::unfold(following, async |mut following| {
            let next = following.next().await?;
            Some((Ok::<_, Infallible>(next), following))
        });
        Ok(([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response())
    }
}

impl Following {
    /// The next event; `None` where the page was too slow.
    async fn next(&mut self) -> Option<Bytes> {
        *self.taken.lock() = Instant::now();
        if let Some(rows) = self.first.pop_front() {
            return Some(event("rows", &rows));
        }
        tokio::select! {
            biased;
            _ = self.beats.tick() => Some(event("beat", &json!({"now": Timestamp::now()}))),
            batch = self.batches.recv() => batch.ok(),
        }
    }
}

/// Ends the connection of a page that takes nothing any more; the stream itself cannot, since nobody asks it.
async fn end_stalled(taken: std::sync::Weak<Mutex<Instant>>, limit: Duration, hangup: Hangup) {
    loop {
        let Some(last) = taken.upgrade().map(|taken| *taken.lock()) else { return };
        let due = last + limit;
        if due <= Instant::now() {
            tracing::debug!("a page takes no events, its connection ends");
            return hangup.0.cancel();
        }
        tokio::time::sleep_until(due).await;
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;

    fn pages(beat: Duration, stalled: Duration) -> Pages {
        Pages { free: Arc::new(Semaphore::new(1)), beat, stalled }
    }

    async fn take(body: &mut axum::body::BodyDataStream) -> String {
        let bytes = body.next().await.expect("an event").expect("no error");
        String::from_utf8(bytes.to_vec()).expect("text")
    }

    #[test]
    fn event_is_one_line_of_data() {
        let event = event("rows", &json!({"message": "a\nb\r\n\nevent: evil"}));
        let text = String::from_utf8(event.to_vec()).expect("text");
        assert_eq!(text, "event: rows\ndata: {\"message\":\"a\\nb\\r\\n\\nevent: evil\"}\n\n");
    }

    #[tokio::test]
    async fn page_gets_all_kinds_and_then_beats() {
        let state = State::new();
        let pages = pages(Duration::from_millis(5), Duration::from_secs(5));
        let response = pages.follow(&state, Hangup::default()).expect("a place");
        let mut body = response.into_body().into_data_stream();
        for _ in 0..8 {
            let text = take(&mut body).await;
            assert!(text.starts_with("event: rows\ndata: {\"kind\":"), "{text}");
            assert!(text.contains("\"isFirst\":true"), "{text}");
        }
        for _ in 0..2 {
            assert!(take(&mut body).await.starts_with("event: beat\ndata: {\"now\":\"20"));
        }
    }

    #[tokio::test]
    async fn number_of_pages_is_bounded_and_a_place_comes_back() {
        let state = State::new();
        let pages = pages(Duration::from_secs(1), Duration::from_secs(5));
        let first = pages.follow(&state, Hangup::default()).expect("a place");
        assert!(matches!(pages.follow(&state, Hangup::default()), Err(Error::Full(_))));
        drop(first);
        assert!(pages.follow(&state, Hangup::default()).is_ok());
    }

    #[tokio::test]
    async fn connection_that_takes_nothing_ends() {
        let state = State::new();
        let pages = pages(Duration::from_secs(1), Duration::from_millis(20));
        let hangup = Hangup::default();
        let stalled = pages.follow(&state, hangup.clone()).expect("a place");
        tokio::time::timeout(Duration::from_secs(5), hangup.0.cancelled()).await.expect("the end");
        drop(stalled);
    }

    #[tokio::test]
    async fn page_that_is_too_slow_loses_its_stream() {
        let state = State::new();
        let pages = pages(Duration::from_secs(60), Duration::from_secs(60));
        let response = pages.follow(&state, Hangup::default()).expect("a place");
        for _ in 0..1000 {
            state.send(event("rows", &json!({})));
        }
        let mut body = response.into_body().into_data_stream();
        let mut taken = 0;
        while body.next().await.is_some() {
            taken += 1;
        }
        assert!(taken < 12, "{taken}");
    }
}
