//! How much of the memory requests may fill with bodies and payloads, whatever their number.
//!
//! A request takes room once, for all that it will hold at the worst, and gives it back when its answer is sent. So nobody who
//! holds room waits for more of it, and whoever waits is served in the end. Three lanes keep small requests from waiting
//! behind large ones, and writers from waiting for clients that read slowly:
//!
//! | lane | share | for |
//! |---|---|---|
//! | small | 1/16 | requests that take up to a MiB |
//! | large | 11/16 | all others that write |
//! | answers | 1/4 | payloads that are read to the end before their answer begins; who finds no room there streams |
//!
//! Beside the budget there are 48 MiB for answers on their way: the pieces of one that is streamed, or all of one without payload.
//! Who finds none of it within ten seconds is told to come again, and who finds 128 others waiting is told so at once: clients
//! that do not read their answers cost others their turn, and not the server its memory. Answers up to 256 KiB have 8 MiB of their
//! own, so that an operator still sees what there is.
//!
//! What is not counted is the base: windows of connections (512 KiB for each request that writes), heads of objects in the
//! watch cache, events on their way to watchers, and the store's own buffers.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

pub use crate::needs::{Needs, least};

/// Requests that take no more go through the small lane.
const SMALL: u64 = 1 << 20;
/// What answers on their way may hold beside the budget.
const ANSWERS: u64 = 48 << 20;
/// Answers up to so many bytes are short, and share so many.
const SHORT: u64 = 256 << 10;
const SHORT_ANSWERS: u64 = 8 << 20;
/// What one that is streamed holds at most: pieces read ahead, and those that its connection has.
const STREAMED: u64 = 3 << 19;
/// How long an answer waits for its turn.
const TURN: Duration = Duration::from_secs(10);
/// How many wait for it. A few seconds' work for a server whose clients read: so hardly any waits for nothing.
const QUEUE: usize = 128;

/// What there is.
pub struct Memory {
    small: Lane,
    large: Lane,
    answers: Lane,
    on_their_way: Queued,
    short_on_their_way: Queued,
}

/// A lane with places for those who wait.
struct Queued {
    lane: Lane,
    places: Semaphore,
}

struct Lane {
    free: Arc<Semaphore>,
    kib: u32,
}

/// More than one request may ever have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMuch {
    /// What was asked for, in bytes.
    pub asked: u64,
    /// What one may have, in bytes.
    pub most: u64,
}

/// Room that is taken until it is dropped.
#[derive(Debug)]
pub struct Room {
    /// Where more can be had.
    lane: Arc<Semaphore>,
    permits: Vec<OwnedSemaphorePermit>,
}

impl Lane {
    fn new(bytes: u64) -> Self {
        let kib = u32::try_from(bytes >> 10).unwrap_or(u32::MAX).max(1);
        Self { free: Arc::new(Semaphore::new(kib as usize)), kib }
    }

    fn now(&self, bytes: u64) -> Option<Room> {
        let permit = Arc::clone(&self.free).try_acquire_many_owned(kib(bytes)?).ok()?;
        Some(self.room(permit))
    }

    /// So many bytes where they are free in time.
    async fn within(&self, time: Duration, bytes: u64) -> Option<Room> {
        let permits = Arc::clone(&self.free).acquire_many_owned(kib(bytes)?);
        let permit = timeout(time, permits).await.ok()?.ok()?;
        Some(self.room(permit))
    }

    fn room(&self, permit: OwnedSemaphorePermit) -> Room {
        Room { lane: Arc::clone(&self.free), permits: vec![permit] }
    }

    fn most(&self) -> u64 {
        u64::from(self.kib) << 10
    }
}

impl Queued {
    fn new(bytes: u64) -> Self {
        Self { lane: Lane::new(bytes), places: Semaphore::new(QUEUE) }
    }

    /// So many bytes, or all there are, where they are free now, or in time and there is a place to wait.
    async fn within(&self, time: Duration, bytes: u64) -> Option<Room> {
        let bytes = bytes.min(self.lane.most());
        if let Some(room) = self.lane.now(bytes) {
            return Some(room);
        }
        let _place = self.places.try_acquire().ok()?;
        self.lane.within(time, bytes).await
    }
}

/// Rounded up; `None`: more than can be counted.
fn kib(bytes: u64) -> Option<u32> {
    u32::try_from(bytes.div_ceil(1 << 10).max(1)).ok()
}

impl Memory {
    /// So many bytes in all.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let (small, answers) = (bytes / 16, bytes / 4);
        Self {
            small: Lane::new(small),
            large: Lane::new(bytes - small - answers),
            answers: Lane::new(answers),
            on_their_way: Queued::new(ANSWERS),
            short_on_their_way: Queued::new(SHORT_ANSWERS),
        }
    }

    /// Room for an answer that is streamed, so many bytes in all. `None` where its turn does not come.
    pub async fn to_stream(&self, bytes: u64) -> Option<Room> {
        self.to_send(bytes.min(STREAMED)).await
    }

    /// Room for an answer that is put together before it is sent. One that is larger than all there is has its turn alone.
    pub async fn to_send(&self, bytes: u64) -> Option<Room> {
        let lane = if bytes <= SHORT { &self.short_on_their_way } else { &self.on_their_way };
        lane.within(TURN, bytes).await
    }

    /// Waits for room for so many bytes. Whoever comes first is served first.
    ///
    /// # Errors
    /// [`TooMuch`] where there will never be so much.
    pub async fn reserve(&self, bytes: u64) -> Result<Room, TooMuch> {
        let too_much = || TooMuch { asked: bytes, most: self.large.most() };
        let lane = self.lane(bytes);
        let kib = kib(bytes).filter(|kib| *kib <= lane.kib).ok_or_else(too_much)?;
        let permit = Arc::clone(&lane.free).acquire_many_owned(kib).await;
        permit.map(|permit| lane.room(permit)).map_err(|_| too_much())
    }

    /// The most that one request may have, in bytes.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.large.most()
    }

    /// Makes room larger where that is possible right now: from its own lane, or from that of large requests.
    #[must_use]
    pub fn enlarge(&self, room: &mut Room, bytes: u64) -> bool {
        if room.grow_to(bytes) {
            return true;
        }
        let more = self.large.now(bytes.saturating_sub(room.bytes()));
        more.map(|more| room.permits.extend(more.permits)).is_some()
    }

    /// Room for so many bytes where there is some right now.
    #[must_use]
    pub fn reserve_now(&self, bytes: u64) -> Option<Room> {
        self.lane(bytes).now(bytes)
    }

    /// Room for an answer that is held back until it is checked, where there is some right now.
    #[must_use]
    pub fn for_answer(&self, bytes: u64) -> Option<Room> {
        self.answers.now(bytes)
    }

    fn lane(&self, bytes: u64) -> &Lane {
        if bytes <= SMALL.min(self.small.most()) { &self.small } else { &self.large }
    }
}

impl Room {
    /// How much it is, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.permits.iter().map(|permit| permit.num_permits() as u64).sum::<u64>() << 10
    }

    /// Makes it so large where that is possible right now. Nobody who holds room waits: two who did could wait for each other.
    #[must_use]
    pub fn grow_to(&mut self, bytes: u64) -> bool {
        let missing = bytes.saturating_sub(self.bytes());
        if missing == 0 {
            return true;
        }
        let more = kib(missing).and_then(|kib| Arc::clone(&self.lane).try_acquire_many_owned(kib).ok());
        more.map(|more| self.permits.push(more)).is_some()
    }

    /// Gives back what is more than so much.
    pub fn shrink_to(&mut self, bytes: u64) {
        let mut surplus = usize::try_from((self.bytes() >> 10).saturating_sub(bytes.div_ceil(1 << 10)));
        for permit in &mut self.permits {
            let Ok(left) = &mut surplus else { return };
            let given = (*left).min(permit.num_permits());
            *left -= given;
            drop(permit.split(given));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[tokio::test]
    async fn room_is_lent_once_and_given_back() {
        let memory = Memory::new(160 * MIB);
        let mut held = memory.reserve(60 * MIB).await.expect("room");
        assert_eq!(held.bytes(), 60 * MIB);
        assert!(memory.reserve_now(60 * MIB).is_none());
        assert!(!held.grow_to(111 * MIB) && held.grow_to(110 * MIB));
        held.shrink_to(30 * MIB);
        assert_eq!(held.bytes(), 30 * MIB);
        let other = memory.reserve_now(80 * MIB).expect("what was given back");
        drop((held, other));
        assert!(memory.reserve_now(110 * MIB).is_some());
    }

    #[tokio::test]
    async fn large_requests_neither_hold_up_small_ones_nor_answers() {
        let memory = Memory::new(160 * MIB);
        let _all = memory.reserve(110 * MIB).await.expect("room");
        assert!(memory.reserve_now(2 * MIB).is_none());
        assert!(memory.reserve_now(MIB / 2).is_some());
        let answer = memory.for_answer(40 * MIB).expect("a lane of their own");
        assert!(memory.for_answer(1).is_none());
        drop(answer);
    }

    #[tokio::test]
    async fn a_small_request_that_turns_out_large_takes_from_the_large_lane() {
        let memory = Memory::new(160 * MIB);
        let mut held = memory.reserve(MIB / 2).await.expect("room");
        assert!(memory.enlarge(&mut held, 20 * MIB) && held.bytes() == 20 * MIB);
        assert!(memory.reserve_now(100 * MIB).is_none() && memory.reserve_now(90 * MIB).is_some());
        assert!(!memory.enlarge(&mut held, memory.most() + 20 * MIB));
        held.shrink_to(MIB);
        assert!(memory.reserve_now(109 * MIB).is_some(), "what was given back is not there");
    }

    #[tokio::test]
    async fn answers_wait_for_their_turn_and_not_for_ever() {
        const SOON: Duration = Duration::from_millis(20);
        let memory = Memory::new(160 * MIB);
        let mut held = Vec::new();
        for _ in 0..ANSWERS / STREAMED {
            held.push(memory.to_stream(100 * MIB).await.expect("room"));
        }
        assert!(memory.on_their_way.within(SOON, 1).await.is_none());
        assert!(memory.to_send(SHORT).await.is_some(), "a short one waits behind long ones");
        let (waiting, ()) = tokio::join!(memory.to_stream(MIB), async { drop(held.pop()) });
        assert!(waiting.is_some());
        drop((waiting, held));
        let alone = memory.to_send(1000 * MIB).await.expect("its turn");
        assert_eq!(alone.bytes(), ANSWERS);
    }

    #[tokio::test]
    async fn who_finds_no_place_to_wait_is_told_at_once() {
        let memory = Memory::new(160 * MIB);
        let held = memory.to_send(ANSWERS).await.expect("room");
        let mut waiting: Vec<_> = (0..QUEUE).map(|_| Box::pin(memory.to_stream(MIB))).collect();
        for one in &mut waiting {
            assert!(futures::poll!(one).is_pending());
        }
        let asked = std::pin::pin!(memory.to_stream(MIB));
        assert!(matches!(futures::poll!(asked), Poll::Ready(None)), "it waits behind {QUEUE}");
        drop(held);
        let served = futures::future::join_all(waiting.into_iter().take(20)).await;
        assert!(served.iter().all(Option::is_some));
        drop(served);
        let _held = memory.to_send(ANSWERS).await.expect("room");
        let next = std::pin::pin!(memory.to_stream(MIB));
        assert!(futures::poll!(next).is_pending(), "places are not given back");
    }

    #[tokio::test]
    async fn what_never_fits_is_not_waited_for() {
        let memory = Memory::new(160 * MIB);
        for asked in [111 * MIB, u64::MAX] {
            let error = memory.reserve(asked).await.expect_err("more than there is");
            assert_eq!(error, TooMuch { asked, most: 110 * MIB });
        }
    }
}
