//! Bodies of requests: taken from the connection as they come, into memory where there is room for all that will be made of
//! them, else sealed onto a disk until there is. A connection never stalls behind a body that waits, and a body that waits
//! holds no more than a piece of itself in memory.

mod gaps;

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use repot_storage::spool::{self, Spooled};

use self::gaps::Gaps;
use crate::{
    call::Call,
    memory::{MemoryEstimate, MemoryPermit, TooMuch},
    needs::SLACK,
    server::Server,
    status::Status,
};

/// A longer body is not taken into memory before it is there as a whole: a client that sends slowly would keep others out.
const IN_MEMORY: u64 = 16 << 20;
/// A client that sends such a body slower than this keeps others out of the memory.
const DEADLINE: Duration = Duration::from_secs(30);
/// A request that waits for its turn gives up so long before its time is up, to say so.
const LAST_WORD: Duration = Duration::from_secs(2);

/// As much every YAML may come to, with all its aliases written out.
const YAML: u64 = 256 << 10;

/// A body that has come.
pub(crate) struct Sent {
    kept: Kept,
    /// What it looks like, read as JSON.
    seen: Gaps,
}

enum Kept {
    /// The call holds room for it.
    Memory(Bytes),
    Spooled(Spooled),
}

impl Sent {
    /// How long it is, in bytes.
    pub(crate) fn len(&self) -> u64 {
        match &self.kept {
            Kept::Memory(bytes) => bytes.len() as u64,
            Kept::Spooled(spooled) => spooled.len(),
        }
    }

    /// Whether it is so short that it needs no room of its own.
    pub(crate) fn is_short(&self) -> bool {
        matches!(&self.kept, Kept::Spooled(spooled) if spooled.in_memory())
    }

    /// What it may come to as JSON, where it is YAML, in bytes. Only what is written with aliases, which nobody does for large
    /// bodies, comes to more. Most of what is sent as YAML is JSON.
    pub(crate) fn as_json(&self) -> u64 {
        let times = if self.seen.starts_as_object() { 1 } else { 3 };
        (times * self.len()).max(YAML)
    }

    /// What it takes in memory. `yaml`: whether it may be YAML. `reviewed`: as in [`MemoryEstimate`].
    pub(crate) fn needs(&self, yaml: bool, reviewed: Option<u64>) -> MemoryEstimate {
        let from_yaml = (yaml && !self.seen.starts_as_object()).then(|| self.as_json());
        MemoryEstimate { body: self.len(), indented: self.seen.found(), from_yaml, reviewed, parsed: 0 }
    }

    /// Whether it has no whitespace between its tokens, where it is JSON: see [`Gaps::is_compact`].
    pub(crate) fn is_compact(&self) -> bool {
        self.seen.is_compact()
    }
}

impl Server {
    /// Takes the body of a request from its connection.
    ///
    /// # Errors
    /// 413 with the limit when it is longer, having taken no more than that; 400 when the client ends it early or takes too
    /// long; 507 when it does not fit where it has to wait.
    pub(crate) async fn receive(&self, call: &mut Call) -> Result<Sent, Status> {
        let limit = self.limits.object_bytes as u64 + SLACK;
        let too_large = || Status::too_large(self.limits.object_bytes);
        let announced = call.announced();
        if announced.is_some_and(|length| length > limit) {
            return Err(too_large());
        }
        let mut frames =
            Frames { body: std::mem::take(call.body.get_mut()), left: limit, seen: Gaps::default() };
        let worth_room = announced.filter(|length| (spool::PIECE as u64 + 1..=IN_MEMORY).contains(length));
        let room = worth_room
            .and_then(|length| Some((length, self.memory.for_body(&call.user.flow(), 3 * length)?)));
        let taking = async {
            match room {
                Some((length, room)) => {
                    *call.room.lock() = Some(room);
                    frames.whole(length).await.map(Kept::Memory)
                }
                None => self.onto_disk(&mut frames).await.map(Kept::Spooled),
            }
        };
        let taken = match announced.is_some_and(|length| length <= IN_MEMORY) {
            true => tokio::time::timeout(DEADLINE, taking).await.unwrap_or(Err(Broken::Late)),
            false => taking.await,
        };
        match taken {
            Ok(kept) => Ok(Sent { kept, seen: frames.seen }),
            Err(Broken::TooLong) => Err(too_large()),
            Err(Broken::Early) => Err(Status::bad_request("the body of the request ended early")),
            Err(Broken::Late) => Err(Status::bad_request("the body of the request did not come in time")),
            Err(Broken::Spool(error)) => Err(unspoolable(&error)),
        }
    }

    async fn onto_disk(&self, frames: &mut Frames) -> Result<Spooled, Broken> {
        let mut writer = self.spool.writer();
        while let Some(data) = frames.next().await? {
            writer.push(&data).await?;
        }
        Ok(writer.finish().await?)
    }

    /// The body in memory, once there is room for `need` bytes, which is what the request holds at the worst. Room that it has
    /// is part of that.
    ///
    /// # Errors
    /// 429 when there is no room before the time of the request is up; 413 when there will never be so much; 500.
    pub(crate) async fn open(&self, call: &mut Call, sent: Sent, need: u64) -> Result<Bytes, Status> {
        let Sent { kept, seen } = sent;
        let kept = self.make_room(call, kept, need).await?;
        self.read(call, Sent { kept, seen }).await
    }

    /// A body that is in memory, once there is room for `need` bytes: what was read of it shows that it takes more than its length
    /// tells. The caller holds no other reference to it.
    ///
    /// # Errors
    /// As [`Server::open`].
    pub(crate) async fn keep(&self, call: &mut Call, body: Bytes, need: u64) -> Result<Bytes, Status> {
        match self.make_room(call, Kept::Memory(body), need).await? {
            Kept::Memory(bytes) => Ok(bytes),
            Kept::Spooled(spooled) => spooled.read().await.map_err(|error| unspoolable(&error)),
        }
    }

    /// Whether the room that a request has can be made as large as `need` at once; `None`: it has none.
    pub(crate) fn fits(&self, call: &Call, need: u64) -> Option<bool> {
        call.room.lock().as_mut().map(|room| {
            room.shrink_to(need);
            self.memory.enlarge(room, need)
        })
    }

    async fn make_room(&self, call: &mut Call, kept: Kept, need: u64) -> Result<Kept, Status> {
        self.expect_room(need)?;
        let kept = match (kept, self.fits(call, need)) {
            (Kept::Memory(bytes), Some(false)) => {
                // Nobody holds room and waits for more: the body makes place, and comes back when there is enough.
                let mut writer = self.spool.writer();
                writer.push(&bytes).await.map_err(|error| unspoolable(&error))?;
                drop(bytes);
                *call.room.lock() = None;
                Kept::Spooled(writer.finish().await.map_err(|error| unspoolable(&error))?)
            }
            (kept, _) => kept,
        };
        self.reserve(call, need).await?;
        Ok(kept)
    }

    /// A body that needs no room, being [short](Sent::is_short), or has it.
    ///
    /// # Errors
    /// 500.
    pub(crate) async fn read(&self, call: &mut Call, sent: Sent) -> Result<Bytes, Status> {
        let body = match sent.kept {
            Kept::Memory(bytes) => bytes,
            Kept::Spooled(spooled) => spooled.read().await.map_err(|error| unspoolable(&error))?,
        };
        if let Some(trail) = &mut call.trail {
            trail.keep_sent(&body);
        }
        Ok(body)
    }

    /// A body that is no object and so has to be short.
    ///
    /// # Errors
    /// As [`Server::receive`]; 413.
    pub(crate) async fn take_short_body(&self, call: &mut Call) -> Result<Bytes, Status> {
        if call.announced().is_some_and(|length| length > spool::PIECE as u64) {
            return Err(Status::too_large(spool::PIECE));
        }
        match self.receive(call).await? {
            sent if !sent.is_short() => Err(Status::too_large(spool::PIECE)),
            sent => self.read(call, sent).await,
        }
    }

    /// Sees to it that a request has room for so many bytes and no more: waits where it has none, and makes it larger where that
    /// is possible at once.
    ///
    /// # Errors
    /// 429 when there is no room before the time of the request is up; 413 when there will never be so much.
    pub(crate) async fn reserve(&self, call: &Call, bytes: u64) -> Result<(), Status> {
        if let Some(room) = call.room.lock().as_mut() {
            room.shrink_to(bytes);
            return self.grow(room, bytes);
        }
        let room = self.room(call, bytes).await?;
        *call.room.lock() = Some(room);
        Ok(())
    }

    /// So many bytes more for a request that has room, until [`Server::reserve`] says again how much it needs.
    ///
    /// # Errors
    /// 429 when they are not free now; 413 when there will never be so much.
    pub(crate) fn charge(&self, call: &Call, more: u64) -> Result<(), Status> {
        match call.room.lock().as_mut() {
            Some(room) => {
                let bytes = room.bytes() + more;
                self.grow(room, bytes)
            }
            None => Ok(()),
        }
    }

    /// That there may ever be so much for one request.
    ///
    /// # Errors
    /// 413.
    pub(crate) fn expect_room(&self, bytes: u64) -> Result<(), Status> {
        let most = self.memory.most();
        if bytes > most { Err(too_much(TooMuch { asked: bytes, most })) } else { Ok(()) }
    }

    fn grow(&self, room: &mut MemoryPermit, bytes: u64) -> Result<(), Status> {
        self.expect_room(bytes)?;
        if self.memory.enlarge(room, bytes) { Ok(()) } else { Err(Status::too_many_requests()) }
    }

    /// How long a request may wait for its turn, so that it can still be told that it had none.
    pub(crate) fn patience(&self, call: &Call) -> Duration {
        let left = call.left(self.limits.request_timeout);
        left.saturating_sub(LAST_WORD).max(left / 2)
    }

    /// Room beside what the request has; only for who has none.
    ///
    /// # Errors
    /// As [`Server::reserve`].
    pub(crate) async fn room(&self, call: &Call, bytes: u64) -> Result<MemoryPermit, Status> {
        match tokio::time::timeout(self.patience(call), self.memory.reserve(&call.user.flow(), bytes)).await {
            Ok(Ok(room)) => Ok(room),
            Ok(Err(error)) => Err(too_much(error)),
            Err(_) => Err(Status::too_many_requests()),
        }
    }
}

fn too_much(error: TooMuch) -> Status {
    let TooMuch { asked, most } = error;
    Status::too_much(format!(
        "the request would take {asked} bytes of memory, and one may take {most}: send less at once (many small fields take more \
         than few large ones), or let the server have more by --max-inflight-bytes"
    ))
}

/// Why there is no body.
enum Broken {
    TooLong,
    Early,
    Late,
    Spool(spool::Error),
}

impl From<spool::Error> for Broken {
    fn from(error: spool::Error) -> Self {
        Self::Spool(error)
    }
}

fn unspoolable(error: &spool::Error) -> Status {
    // Which directory it is, is for who runs the server.
    tracing::error!(%error, "a body cannot wait for room in memory");
    match error {
        spool::Error::Full(_) => {
            Status::no_space("the place where bodies wait for room in memory (--spool-dir) has no space left")
        }
        _ => Status::internal(
            "the place where bodies wait for room in memory (--spool-dir) fails; see the server's log",
        ),
    }
}

/// A body as it comes.
struct Frames {
    body: Body,
    /// Bytes that may still come.
    left: u64,
    seen: Gaps,
}

impl Frames {
    async fn next(&mut self) -> Result<Option<Bytes>, Broken> {
        while let Some(frame) = self.body.frame().await {
            let Ok(data) = frame.map_err(|_| Broken::Early)?.into_data() else { continue };
            self.left = self.left.checked_sub(data.len() as u64).ok_or(Broken::TooLong)?;
            self.seen.look(&data);
            return Ok(Some(data));
        }
        Ok(None)
    }

    /// `length`: what it has, as far as one knows.
    async fn whole(&mut self, length: u64) -> Result<Bytes, Broken> {
        let Some(first) = self.next().await? else { return Ok(Bytes::new()) };
        // A body that comes in one frame is not copied.
        let Some(second) = self.next().await? else { return Ok(first) };
        // At once, and not by doubling; a client that only announced so much has not sent it yet.
        let mut whole = BytesMut::with_capacity(usize::try_from(length).unwrap_or_default());
        whole.extend_from_slice(&first);
        whole.extend_from_slice(&second);
        while let Some(data) = self.next().await? {
            whole.extend_from_slice(&data);
        }
        Ok(whole.freeze())
    }
}

#[cfg(test)]
mod tests;
