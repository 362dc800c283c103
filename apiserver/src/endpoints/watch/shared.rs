//! Events that many watches show: each is read, decrypted and printed once, and its bytes are shared.
//!
//! The first watch that comes to an event starts the reading; others that come meanwhile wait for the same. What was read stays in
//! memory as long as a connection holds a part of it, and for a few seconds after it was read, since watches come to it at
//! different times. All of it together is bounded by [`ROOM`]; who finds no room waits until others have sent theirs.

use std::{
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures::{
    FutureExt, Stream, StreamExt,
    future::{BoxFuture, Shared},
};
use parking_lot::Mutex;
use repot_storage::{Error, Key, ResourceVersion};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::{negotiate::MetaVersion, wire::Piece};

/// Bytes of events that may be in memory at once.
pub(super) const ROOM: u64 = 128 << 20;
/// Of these, bytes that are kept although nobody sends them just now.
const KEPT: u64 = 32 << 20;
/// How long they are kept.
const KEPT_FOR: Duration = Duration::from_secs(5);
/// Pieces that are shorter are joined.
const JOINED: usize = 64 << 10;
/// Entries of events that are gone are swept out when there are so many.
const SWEEP: usize = 256;

/// Which text it is: the same for all watches that show the same event in the same form.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct BodyKey {
    /// As which API version the object is shown.
    pub(super) api_version: String,
    pub(super) key: Key,
    /// The version that is shown.
    pub(super) version: ResourceVersion,
    /// The last state of an object that is gone, or leaves a selector: at one version an object may have this and a new one.
    pub(super) last: bool,
    pub(super) form: BodyForm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum BodyForm {
    Object,
    Metadata(MetaVersion),
    /// A whole event of this type in protobuf, whose object is metadata.
    Frame(MetaVersion, &'static str),
}

/// The text of an object as one event shows it.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) pieces: Vec<Bytes>,
    pub(super) length: u64,
    _room: OwnedSemaphorePermit,
}

type Outcome = Result<Arc<Encoded>, Error>;

/// The texts that are in memory or being read.
pub(crate) struct Bodies {
    room: Arc<Semaphore>,
    kept: Arc<Semaphore>,
    known: Mutex<HashMap<BodyKey, SharedBody>>,
}

enum SharedBody {
    Reading(Shared<BoxFuture<'static, Outcome>>),
    Read(Weak<Encoded>),
}

/// Permits for so many bytes.
pub(super) fn kib(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(1 << 10).max(1)).unwrap_or(u32::MAX)
}

impl Bodies {
    pub(crate) fn new() -> Arc<Self> {
        let semaphore = |bytes| Arc::new(Semaphore::new(kib(bytes) as usize));
        Arc::new(Self { room: semaphore(ROOM), kept: semaphore(KEPT), known: Mutex::default() })
    }

    /// The text of this key. `length` is about how long it is, and `pieces` how it is read where nobody has done so.
    ///
    /// # Errors
    /// Why it cannot be read. Whoever waited for it is told the same; the next one reads again.
    pub(super) async fn get<S>(
        self: &Arc<Self>,
        key: BodyKey,
        length: u64,
        pieces: impl FnOnce() -> S,
    ) -> Outcome
    where
        S: Stream<Item = Piece> + Send + 'static,
    {
        let reading = {
            let mut known = self.known.lock();
            match known.get(&key) {
                Some(SharedBody::Reading(reading)) => reading.clone(),
                Some(SharedBody::Read(body)) if body.strong_count() > 0 => match body.upgrade() {
                    Some(body) => return Ok(body),
                    None => self.start(&mut known, key, length, pieces()),
                },
                _ => self.start(&mut known, key, length, pieces()),
            }
        };
        reading.await
    }

    /// Reads it in a task of its own: the watch that came first may be the first to leave.
    fn start(
        self: &Arc<Self>,
        known: &mut HashMap<BodyKey, SharedBody>,
        key: BodyKey,
        length: u64,
        pieces: impl Stream<Item = Piece> + Send + 'static,
    ) -> Shared<BoxFuture<'static, Outcome>> {
        if known.len() >= SWEEP {
            known.retain(|_, known| match known {
                SharedBody::Reading(_) => true,
                SharedBody::Read(body) => body.strong_count() > 0,
            });
        }
        let (done, told) = oneshot::channel();
        let bodies = Arc::clone(self);
        let own = key.clone();
        tokio::spawn(async move {
            let read = AssertUnwindSafe(bodies.read(length, pieces)).catch_unwind().await;
            let outcome = read.unwrap_or_else(|_| Err(Error::Unavailable("reading panicked".into())));
            bodies.finish(own, &outcome);
            let _ = done.send(outcome);
        });
        let told = told.map(|told| told.unwrap_or_else(|_| Err(Error::Unavailable("reading ended".into()))));
        let reading = told.boxed().shared();
        known.insert(key, SharedBody::Reading(reading.clone()));
        reading
    }

    async fn read(&self, length: u64, pieces: impl Stream<Item = Piece> + Send) -> Outcome {
        let room = Arc::clone(&self.room).acquire_many_owned(kib(length.min(ROOM))).await;
        let room = room.map_err(|_| Error::Unavailable("there is no room for events".into()))?;
        let mut pieces = std::pin::pin!(pieces);
        let (mut all, mut short, mut length) = (Vec::new(), BytesMut::new(), 0);
        while let Some(piece) = pieces.next().await {
            let piece = piece?;
            length += piece.len() as u64;
            if short.len() + piece.len() < JOINED {
                short.extend_from_slice(&piece);
                continue;
            }
            if !short.is_empty() {
                all.push(short.split().freeze());
            }
            all.push(piece);
        }
        if !short.is_empty() {
            all.push(short.freeze());
        }
        Ok(Arc::new(Encoded { pieces: all, length, _room: room }))
    }

    /// Keeps what was read for those who come to it a little later.
    fn finish(&self, key: BodyKey, outcome: &Outcome) {
        let Ok(body) = outcome else {
            self.known.lock().remove(&key);
            return;
        };
        self.known.lock().insert(key, SharedBody::Read(Arc::downgrade(body)));
        if let Ok(kept) = Arc::clone(&self.kept).try_acquire_many_owned(kib(body.length)) {
            let body = Arc::clone(body);
            tokio::spawn(async move {
                tokio::time::sleep(KEPT_FOR).await;
                drop((body, kept));
            });
        }
    }
}

#[cfg(test)]
impl BodyKey {
    pub(super) fn sample(version: u64) -> Self {
        let key = Key { group: "g".into(), resource: "rs".into(), namespace: "ns".into(), name: "a".into() };
        let version = ResourceVersion(version);
        Self { api_version: "g/v1".into(), key, version, last: false, form: BodyForm::Object }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::stream;

    use super::*;

    const LONG: usize = 1 << 20;

    fn mk_pieces(reads: &Arc<AtomicUsize>, length: usize) -> impl Stream<Item = Piece> + Send + use<> {
        let reads = reads.clone();
        stream::once(async move {
            reads.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            Ok(Bytes::from(vec![b'x'; length]))
        })
    }

    #[tokio::test]
    async fn a_thousand_watches_share_one_reading_and_its_bytes() {
        let (bodies, reads) = (Bodies::new(), Arc::new(AtomicUsize::new(0)));
        let watches =
            (0..1000).map(|_| bodies.get(BodyKey::sample(1), LONG as u64, || mk_pieces(&reads, LONG)));
        let all = futures::future::join_all(watches).await;
        assert_eq!(reads.load(Ordering::SeqCst), 1);
        let first = all[0].as_ref().expect("read");
        assert!(all.iter().all(|body| Arc::ptr_eq(body.as_ref().expect("read"), first)));
        // Another event, the last state before it, and another form are other texts.
        let last = BodyKey { last: true, ..BodyKey::sample(1) };
        let metadata = BodyKey { form: BodyForm::Metadata(MetaVersion::V1), ..BodyKey::sample(1) };
        for (key, count) in [(BodyKey::sample(2), 2), (last, 3), (metadata, 4), (BodyKey::sample(1), 4)] {
            bodies.get(key, 1, || mk_pieces(&reads, 1)).await.expect("read");
            assert_eq!(reads.load(Ordering::SeqCst), count);
        }
    }

    #[tokio::test]
    async fn a_reading_goes_on_for_others_when_the_first_watch_leaves() {
        let (bodies, reads) = (Bodies::new(), Arc::new(AtomicUsize::new(0)));
        let mut first = Box::pin(bodies.get(BodyKey::sample(1), 1, || mk_pieces(&reads, 1)));
        assert!(futures::poll!(first.as_mut()).is_pending());
        let second = bodies.get(BodyKey::sample(1), 1, || mk_pieces(&reads, 1));
        drop(first);
        second.await.expect("read");
        assert_eq!(reads.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_failure_is_told_to_all_who_waited_and_not_remembered() {
        let (bodies, reads) = (Bodies::new(), Arc::new(AtomicUsize::new(0)));
        let failing = || stream::once(async { Err(Error::Unavailable("away".into())) });
        let watches = (0..10).map(|_| bodies.get(BodyKey::sample(1), 1, failing));
        let all = futures::future::join_all(watches).await;
        assert!(all.iter().all(|outcome| matches!(outcome, Err(Error::Unavailable(why)) if why == "away")));
        bodies.get(BodyKey::sample(1), 1, || mk_pieces(&reads, 1)).await.expect("read");
    }

    #[tokio::test]
    async fn what_is_in_memory_is_bounded_and_given_back() {
        let (bodies, reads) = (Bodies::new(), Arc::new(AtomicUsize::new(0)));
        let get =
            |version, length: u64| bodies.get(BodyKey::sample(version), length, || mk_pieces(&reads, 1));
        let large = get(1, ROOM).await.expect("read");
        let mut waiting = std::pin::pin!(get(2, 1));
        let soon = Duration::from_millis(200);
        assert!(tokio::time::timeout(soon, waiting.as_mut()).await.is_err(), "there is no bound");
        drop(large);
        // Kept for a while although nobody sends it; then the room is free.
        tokio::time::timeout(12 * KEPT_FOR, waiting).await.expect("room").expect("read");
    }
}
