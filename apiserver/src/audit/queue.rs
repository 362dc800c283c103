//! Events that wait for the thread that writes them. Those of requests that were refused before anybody knew who asked have a
//! share of their own, and so have those of users that sent too many: a flood of either costs other events neither a place nor
//! much time, and what one user has too much of takes no place of what another one has.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use parking_lot::{Condvar, Mutex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::{
    event::Event,
    slots::{Slot, Slots},
};
use crate::shares::Flow;

/// Bytes of bodies that may wait with events of authenticated requests.
const BODY_BYTES: usize = 64 << 20;
/// What each of the shares of refused requests has of everything, as a divisor.
const REFUSED_PART: usize = 10;
/// So many events of authenticated requests are written for one of a refused request, of either sort, where both wait.
const KNOWN_PER_REFUSED: usize = 10;
/// A permit of the memory for bodies, in bytes.
const UNIT: usize = 1 << 10;

/// Whose event it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// Of an authenticated request that was let in.
    Known,
    /// Of an authenticated request that was refused because there are too many (429). Its places are shared among users.
    Throttled,
    /// Of a request that is anonymous, or failed to authenticate (401).
    Refused,
}

impl Share {
    pub(super) const ALL: [Self; 3] = [Self::Known, Self::Throttled, Self::Refused];

    /// The value of the label of metrics.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Known => "authenticated",
            Self::Throttled => "throttled",
            Self::Refused => "refused",
        }
    }
}

/// An event in the queue.
pub(super) struct Entry {
    pub(super) event: Event,
    pub(super) share: Share,
    /// Told whether the event was written; without it nobody waits.
    pub(super) written: Option<oneshot::Sender<bool>>,
    pub(super) places: Places,
}

/// The place of an event, and the memory of its bodies, until it is dropped.
pub(super) struct Places {
    _event: Option<Slot>,
    _bodies: Option<OwnedSemaphorePermit>,
}

/// An event on its way into the queue.
pub(super) struct Waiting {
    pub(super) event: Event,
    pub(super) share: Share,
    /// Whose request it was.
    pub(super) flow: Flow,
    pub(super) written: Option<oneshot::Sender<bool>>,
}

/// What limits a share.
struct Limits {
    events: Slots,
    bodies: Arc<Semaphore>,
    /// Units of all bodies.
    body_units: usize,
    /// Events that wait for a place.
    outside: Slots,
}

impl Limits {
    fn new(events: usize, body_bytes: usize, by_user: bool) -> Self {
        let body_units = body_bytes / UNIT;
        Self {
            events: Slots::new(events, by_user),
            bodies: Arc::new(Semaphore::new(body_units)),
            body_units,
            outside: Slots::new(events, by_user),
        }
    }

    /// Permits for the bodies of an event. Bodies that never fit are left out.
    fn units(&self, event: &mut Event) -> u32 {
        let units = event.weight().div_ceil(UNIT);
        if units > self.body_units {
            event.lighten();
            return 0;
        }
        u32::try_from(units).unwrap_or(u32::MAX)
    }
}

#[derive(Default)]
struct State {
    known: VecDeque<Entry>,
    throttled: VecDeque<Entry>,
    refused: VecDeque<Entry>,
    /// Events of authenticated requests that were taken since the last one of a refused request.
    in_a_row: usize,
    /// Whether the last one of a refused request was one of a user.
    throttled_last: bool,
    closed: bool,
}

impl State {
    fn next(&mut self) -> Option<Entry> {
        let due = self.in_a_row >= KNOWN_PER_REFUSED || self.known.is_empty();
        if due && let Some(entry) = self.next_refused() {
            self.in_a_row = 0;
            return Some(entry);
        }
        self.in_a_row += 1;
        self.known.pop_front()
    }

    /// Of both sorts by turns.
    fn next_refused(&mut self) -> Option<Entry> {
        let Self { throttled, refused, throttled_last, .. } = self;
        let (first, second) = if *throttled_last { (refused, throttled) } else { (throttled, refused) };
        let entry = first.pop_front().or_else(|| second.pop_front())?;
        *throttled_last = entry.share == Share::Throttled;
        Some(entry)
    }

    fn of(&self, share: Share) -> &VecDeque<Entry> {
        match share {
            Share::Known => &self.known,
            Share::Throttled => &self.throttled,
            Share::Refused => &self.refused,
        }
    }

    fn len(&self) -> usize {
        Share::ALL.iter().map(|share| self.of(*share).len()).sum()
    }
}

/// The queue between requests and the thread that writes.
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    known: Limits,
    throttled: Limits,
    refused: Limits,
}

impl Queue {
    /// For so many events of authenticated requests, and a tenth of that for each sort of the others.
    pub(super) fn new(events: usize) -> Self {
        let events = events.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            known: Limits::new(events, BODY_BYTES, false),
            throttled: Limits::new(events.div_ceil(REFUSED_PART), BODY_BYTES / REFUSED_PART, true),
            refused: Limits::new(events.div_ceil(REFUSED_PART), BODY_BYTES / REFUSED_PART, false),
        }
    }

    fn limits(&self, share: Share) -> &Limits {
        match share {
            Share::Known => &self.known,
            Share::Throttled => &self.throttled,
            Share::Refused => &self.refused,
        }
    }

    /// Puts an event in where there is a place for it, without its bodies where there is none for them and `lighten` says so.
    ///
    /// # Errors
    /// The event, where there is no place now.
    pub(super) fn try_push(&self, mut waiting: Waiting, lighten: bool) -> Result<(), Box<Waiting>> {
        let limits = self.limits(waiting.share);
        let Some(event) = limits.events.try_take(&waiting.flow) else { return Err(Box::new(waiting)) };
        let units = limits.units(&mut waiting.event);
        let bodies = match limits.bodies.clone().try_acquire_many_owned(units) {
            Ok(bodies) => Some(bodies),
            Err(_) if lighten => {
                waiting.event.lighten();
                None
            }
            Err(_) => return Err(Box::new(waiting)),
        };
        self.push(waiting, Places { _event: Some(event), _bodies: bodies })
    }

    /// A permit to wait for a place: as many events as have places may do so.
    pub(super) fn wait_outside(&self, waiting: &Waiting) -> Option<Slot> {
        self.limits(waiting.share).outside.try_take(&waiting.flow)
    }

    /// Puts an event in as soon as there is a place for it.
    ///
    /// # Errors
    /// The event, when the queue is closed.
    pub(super) async fn push_later(&self, mut waiting: Waiting) -> Result<(), Box<Waiting>> {
        let limits = self.limits(waiting.share);
        let units = limits.units(&mut waiting.event);
        // In this order everywhere; who has a place waits for bodies that are being written.
        let event = limits.events.take(&waiting.flow).await;
        let bodies = limits.bodies.clone().acquire_many_owned(units).await.ok();
        self.push(waiting, Places { _event: event, _bodies: bodies })
    }

    fn push(&self, waiting: Waiting, places: Places) -> Result<(), Box<Waiting>> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(Box::new(waiting));
        }
        let Waiting { event, share, written, .. } = waiting;
        let entry = Entry { event, share, written, places };
        match share {
            Share::Known => state.known.push_back(entry),
            Share::Throttled => state.throttled.push_back(entry),
            Share::Refused => state.refused.push_back(entry),
        }
        self.changed.notify_one();
        Ok(())
    }

    /// The next events, at most `most`; waits for the first, and for the others no longer than `wait`. `None`: the queue is
    /// closed and empty.
    pub(super) fn take(&self, most: usize, wait: Duration) -> Option<Vec<Entry>> {
        let mut state = self.state.lock();
        while state.len() == 0 {
            if state.closed {
                return None;
            }
            self.changed.wait(&mut state);
        }
        let until = std::time::Instant::now() + wait;
        while most > 1 && !wait.is_zero() && state.len() < most && !state.closed {
            if self.changed.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        Some(std::iter::from_fn(|| state.next()).take(most).collect())
    }

    /// Lets no more events in, and [`Queue::take`] end behind the last one.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    /// Waits for a time, or until the queue is closed.
    pub(super) fn pause(&self, time: Duration) {
        let Some(until) = std::time::Instant::now().checked_add(time) else { return };
        let mut state = self.state.lock();
        while !state.closed && !self.changed.wait_until(&mut state, until).timed_out() {}
    }

    /// Events that wait, of a share.
    pub(super) fn len(&self, share: Share) -> usize {
        self.state.lock().of(share).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(uri: &str, share: Share) -> Waiting {
        of_user("alice", uri, share)
    }

    fn of_user(user: &str, uri: &str, share: Share) -> Waiting {
        Waiting { event: Event::of_uri(uri), share, flow: Flow::User(user.into()), written: None }
    }

    fn taken(queue: &Queue, most: usize) -> Vec<Share> {
        queue.take(most, Duration::ZERO).expect("open").iter().map(|entry| entry.share).collect()
    }

    #[test]
    fn events_of_refused_requests_wait_behind_ten_others_and_take_no_place_of_theirs() {
        let queue = Queue::new(20);
        let pushed = |share| (0..30).filter(|_| queue.try_push(waiting("/", share), true).is_ok()).count();
        assert_eq!((pushed(Share::Refused), pushed(Share::Known)), (2, 20));
        let mut order = taken(&queue, 11);
        assert_eq!((order[..10].to_vec(), order.pop()), (vec![Share::Known; 10], Some(Share::Refused)));
        assert_eq!(taken(&queue, 11).last(), Some(&Share::Refused));
        // Alone, they do not wait for others.
        assert!(queue.try_push(waiting("/", Share::Refused), true).is_ok());
        assert_eq!(taken(&queue, 1), [Share::Refused]);
    }

    #[test]
    fn events_of_a_user_that_sends_too_much_take_no_place_of_another_user_or_of_strangers() {
        let queue = Queue::new(200);
        let pushed = |user: &str, share| {
            (0..300).filter(|_| queue.try_push(of_user(user, "/", share), true).is_ok()).count()
        };
        let mallory = pushed("mallory", Share::Throttled);
        assert_eq!(mallory, 10, "a half of the places for such events");
        assert!(queue.wait_outside(&of_user("mallory", "/", Share::Throttled)).is_some());
        assert!(pushed("alice", Share::Throttled) >= 3, "one user has the places of another one");
        assert_eq!((pushed("nobody", Share::Refused), pushed("alice", Share::Known)), (20, 200));
        // Each eleventh is one of a refused request, of both sorts by turns.
        let order = taken(&queue, 44);
        let refused: Vec<_> = order.iter().filter(|share| **share != Share::Known).copied().collect();
        assert_eq!(refused, [Share::Throttled, Share::Refused, Share::Throttled, Share::Refused]);
    }

    #[test]
    fn a_place_is_free_again_when_its_event_is_written() {
        let queue = Queue::new(1);
        assert!(queue.try_push(waiting("/", Share::Known), true).is_ok());
        let entries = queue.take(1, Duration::ZERO).expect("an event");
        assert!(queue.try_push(waiting("/", Share::Known), true).is_err(), "while it is being written");
        drop(entries);
        assert!(queue.try_push(waiting("/", Share::Known), true).is_ok());
    }

    #[tokio::test]
    async fn bodies_wait_for_memory_or_are_left_out() {
        let queue = Arc::new(Queue::new(10));
        let with_body = |bytes| {
            let mut waiting = waiting("/", Share::Known);
            waiting.event.sent = Some(bytes::Bytes::from(vec![b' '; bytes]));
            waiting
        };
        assert!(queue.try_push(with_body(BODY_BYTES), false).is_ok());
        let second = queue.try_push(with_body(UNIT), false).expect_err("there is no memory left");
        assert!(queue.try_push(with_body(UNIT), true).is_ok());
        let later = tokio::spawn({
            let queue = queue.clone();
            async move { queue.push_later(*second).await.is_ok() }
        });
        let first = queue.take(2, Duration::ZERO).expect("events");
        assert_eq!(first.iter().map(|entry| entry.event.weight()).collect::<Vec<_>>(), [BODY_BYTES, 0]);
        drop(first);
        assert!(later.await.expect("no panic"));
        let second = queue.take(1, Duration::ZERO).expect("an event");
        assert_eq!(second[0].event.weight(), UNIT);
        // A body that never fits is left out.
        assert!(queue.try_push(with_body(BODY_BYTES + 1), false).is_ok());
        assert_eq!(queue.take(1, Duration::ZERO).expect("an event")[0].event.weight(), 0);
    }

    #[test]
    fn a_batch_is_complete_when_it_is_full_or_its_time_is_up_or_at_the_end() {
        let queue = Queue::new(10);
        let push = |n: usize| (0..n).all(|_| queue.try_push(waiting("/", Share::Known), true).is_ok());
        assert!(push(3));
        let long = Duration::from_secs(3600);
        assert_eq!(queue.take(2, long).map(|entries| entries.len()), Some(2));
        let (began, wait) = (std::time::Instant::now(), Duration::from_millis(50));
        assert_eq!(queue.take(2, wait).map(|entries| entries.len()), Some(1));
        assert!(began.elapsed() >= wait);
        assert!(push(1));
        queue.close();
        assert!(!push(1), "a closed queue takes events");
        assert_eq!(queue.take(2, long).map(|entries| entries.len()), Some(1));
        assert!(queue.take(2, long).is_none());
        queue.pause(long);
    }
}
