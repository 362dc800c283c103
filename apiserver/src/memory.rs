//! How much of the memory requests may fill with bodies and payloads, whatever their number.
//!
//! A request takes room once, for all that it will hold at the worst. When its answer is known it keeps room for the answer
//! alone, until that is sent: a client decides how long that takes. So nobody who holds room waits for more of it, and whoever
//! waits is served in the end. Three lanes keep small requests from waiting
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
//! Each lane is a [`FairPool`]: one user may hold as much as stays free for others, and all requests without credentials hold a
//! twentieth at most. A single request takes more than half of what is free only where it cannot be served otherwise. So a user
//! with slow bodies, or one that does not read its answers, waits for itself. Places to wait for an answer's
//! turn are shared in the same way.
//!
//! Heads of a list are read before it is known how long they are, so requests that read them a page after the other take turns.
//!
//! What is not counted is the base: windows of connections (512 KiB for each request that writes), heads of objects in the
//! watch cache, events on their way to watchers (128 MiB, see `endpoints::watch::limits`), and the store's own buffers.

use std::time::Duration;

use tokio::time::timeout;

use crate::shares::{FairPool, Flow, Permit};

pub use crate::needs::{MemoryEstimate, least};

/// Requests that take no more go through the small lane.
const SMALL: u64 = 1 << 20;
/// What answers on their way may hold beside the budget.
const ANSWERS: u64 = 48 << 20;
/// Answers up to so many bytes are short, and share so many.
pub const SHORT: u64 = 256 << 10;
const SHORT_ANSWERS: u64 = 8 << 20;
/// What one that is streamed holds at most: pieces read ahead, and those that its connection has.
const STREAMED: u64 = 3 << 19;
/// Pieces of an answer that is streamed: one that is made, two that wait, and one that its connection has.
const PIECES: u64 = 4;
/// Heads of objects that an answer holds while it is streamed, in bytes; at least one.
pub const HEADS: u64 = 512 << 10;
/// How long an answer waits for its turn.
const TURN: Duration = Duration::from_secs(10);
/// How many requests read heads of objects for a list at a time. Each holds those of one list.
const READ_HEADS: u64 = 4;
/// How many wait for it. A few seconds' work for a server whose clients read: so hardly any waits for nothing.
const QUEUE: u64 = 128;

/// The memory that requests and answers may take, in lanes.
pub struct Memory {
    small: Lane,
    large: Lane,
    answers: Lane,
    on_their_way: Queued,
    short_on_their_way: Queued,
    read_heads: Turns,
}

/// Requests that do something at a time, and places for those who wait.
struct Turns {
    running: FairPool,
    places: FairPool,
}

/// A lane with places for those who wait.
struct Queued {
    lane: Lane,
    places: FairPool,
}

/// A pool of KiB.
struct Lane(FairPool);

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
pub struct MemoryPermit(Vec<Permit>);

impl Lane {
    fn new(bytes: u64) -> Self {
        Self(FairPool::new((bytes >> 10).max(1)))
    }

    fn now(&self, flow: &Flow, bytes: u64) -> Option<MemoryPermit> {
        self.0.try_take(flow, kib(bytes)).ok().map(|permit| MemoryPermit(vec![permit]))
    }

    /// The same for a request that can be served otherwise: up to a half of what is free.
    fn part_now(&self, flow: &Flow, bytes: u64) -> Option<MemoryPermit> {
        self.0.try_take_part(flow, kib(bytes)).ok().map(|permit| MemoryPermit(vec![permit]))
    }

    /// So many bytes where they are free in time.
    async fn within(&self, flow: &Flow, time: Duration, bytes: u64) -> Option<MemoryPermit> {
        timeout(time, self.0.take(flow, kib(bytes))).await.ok().map(|permit| MemoryPermit(vec![permit]))
    }

    fn most(&self) -> u64 {
        self.0.total() << 10
    }
}

impl Queued {
    fn new(bytes: u64) -> Self {
        Self { lane: Lane::new(bytes), places: FairPool::new(QUEUE) }
    }

    /// So many bytes, or all there are, where they are free now, or in time and there is a place to wait.
    async fn within(&self, flow: &Flow, time: Duration, bytes: u64) -> Option<MemoryPermit> {
        let bytes = bytes.min(self.lane.most());
        if let Some(room) = self.lane.now(flow, bytes) {
            return Some(room);
        }
        let _place = self.places.try_take(flow, 1).ok()?;
        self.lane.within(flow, time, bytes).await
    }
}

/// Rounded up, and something.
fn kib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 10).max(1)
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
            read_heads: Turns { running: FairPool::new(READ_HEADS), places: FairPool::new(QUEUE) },
        }
    }

    /// A turn to read the heads of a list, for as long as all of them are held. `None` where it does not come.
    pub async fn to_read_heads(&self, flow: &Flow) -> Option<Permit> {
        let Turns { running, places } = &self.read_heads;
        if let Ok(turn) = running.try_take(flow, 1) {
            return Some(turn);
        }
        let _place = places.try_take(flow, 1).ok()?;
        timeout(TURN, running.take(flow, 1)).await.ok()
    }

    /// Room for an answer that is streamed, so many bytes in all. `None` where its turn does not come.
    pub async fn to_stream(&self, flow: &Flow, bytes: u64) -> Option<MemoryPermit> {
        self.to_send(flow, bytes.min(STREAMED)).await
    }

    /// The same for an answer whose pieces may be longer than those of a payload; `longest`: the longest of them, in bytes.
    pub async fn to_stream_pieces(&self, flow: &Flow, bytes: u64, longest: u64) -> Option<MemoryPermit> {
        let pieces = longest.saturating_mul(PIECES).saturating_add(HEADS.max(longest));
        self.to_send(flow, bytes.min(STREAMED.max(pieces))).await
    }

    /// Room for an answer that is put together before it is sent. One that is larger than all there is has its turn alone.
    pub async fn to_send(&self, flow: &Flow, bytes: u64) -> Option<MemoryPermit> {
        let lane = if bytes <= SHORT { &self.short_on_their_way } else { &self.on_their_way };
        lane.within(flow, TURN, bytes).await
    }

    /// Waits for room for so many bytes. Whoever comes first is served first, within the share of its flow.
    ///
    /// # Errors
    /// [`TooMuch`] where there will never be so much.
    pub async fn reserve(&self, flow: &Flow, bytes: u64) -> Result<MemoryPermit, TooMuch> {
        let lane = self.lane(bytes);
        if kib(bytes) > lane.0.total() {
            return Err(TooMuch { asked: bytes, most: self.large.most() });
        }
        Ok(MemoryPermit(vec![lane.0.take(flow, kib(bytes)).await]))
    }

    /// The most that one request may have, in bytes.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.large.most()
    }

    /// Makes room larger where that is possible right now: from its own lane, or from that of large requests.
    #[must_use]
    pub fn enlarge(&self, room: &mut MemoryPermit, bytes: u64) -> bool {
        if room.grow_to(bytes) {
            return true;
        }
        let Some(flow) = room.0.first().map(|permit| permit.flow().clone()) else { return false };
        let more = self.large.now(&flow, bytes.saturating_sub(room.bytes()));
        more.map(|more| room.0.extend(more.0)).is_some()
    }

    /// Room for a body while it comes, where there is some right now: up to a half of what is free, since a body that finds none
    /// comes onto the disk.
    #[must_use]
    pub fn for_body(&self, flow: &Flow, bytes: u64) -> Option<MemoryPermit> {
        self.lane(bytes).part_now(flow, bytes)
    }

    /// Room for an answer that is held back until it is checked, where there is some right now: up to a half of what is free,
    /// since an answer that finds none is streamed.
    #[must_use]
    pub fn for_answer(&self, flow: &Flow, bytes: u64) -> Option<MemoryPermit> {
        self.answers.part_now(flow, bytes)
    }

    /// No single request takes more than a quarter of the small lane.
    fn lane(&self, bytes: u64) -> &Lane {
        if bytes <= SMALL.min(self.small.most() / 4) { &self.small } else { &self.large }
    }
}

impl MemoryPermit {
    /// How much it is, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(Permit::units).sum::<u64>() << 10
    }

    /// Makes it so large where that is possible right now. Nobody who holds room waits: two who did could wait for each other.
    #[must_use]
    pub fn grow_to(&mut self, bytes: u64) -> bool {
        let missing = kib(bytes).saturating_sub(self.bytes() >> 10);
        let Some(last) = self.0.last_mut() else { return missing == 0 };
        last.grow_to(last.units() + missing).is_ok()
    }

    /// Gives back what is more than so much.
    pub fn shrink_to(&mut self, bytes: u64) {
        let mut surplus = (self.bytes() >> 10).saturating_sub(kib(bytes));
        for permit in self.0.iter_mut().rev() {
            let given = surplus.min(permit.units());
            permit.shrink_to(permit.units() - given);
            surplus -= given;
        }
    }
}

#[cfg(test)]
impl Memory {
    /// Room for so many bytes where there is some right now.
    pub(crate) fn reserve_now(&self, flow: &Flow, bytes: u64) -> Option<MemoryPermit> {
        self.lane(bytes).now(flow, bytes)
    }
}

#[cfg(test)]
mod tests;
