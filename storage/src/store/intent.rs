//! Write intents: "chunks that carry this number are being written".
//!
//! An intent exists before the first chunk that carries its number, and its number is never used again. A commit that
//! names such chunks compares that the intent is still the one that was made. So once the intent is gone, no record can
//! come to name a chunk of that number that no record names already: that is what the collector builds on.
//!
//! One intent serves all writes of a process for about a minute, so that a write pays no round trip for it.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use tokio::{sync::Mutex, time::sleep};

use super::{core::Core, path};
use crate::{
    Error, Result,
    backend::{Compare, Op, Outcome, Revision, Txn},
    canary::Canary,
    seal,
};

/// Between tries to remove an intent; the last one ends it.
const PAUSES_MILLIS: [u64; 5] = [100, 500, 2_000, 10_000, 60_000];

/// The intents of a process.
pub(crate) struct Intents {
    core: Arc<Core>,
    current: Mutex<Option<Arc<Intent>>>,
}

/// An intent. When the last write under it has ended, it is removed.
pub(crate) struct Intent {
    core: Arc<Core>,
    number: u64,
    /// The revision that made it.
    made: Revision,
    since: Instant,
    writes: AtomicU32,
}

impl Intents {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, current: Mutex::new(None) }
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The intent to write under. Makes one where there is none that is young enough.
    pub(crate) async fn acquire(&self) -> Result<Arc<Intent>> {
        let mut current = self.current.lock().await;
        if let Some(intent) = current.as_ref()
            && intent.since.elapsed() < self.core.options.intent_rotation
        {
            return Ok(Arc::clone(intent));
        }
        let intent = Arc::new(Intent::make(Arc::clone(&self.core)).await?);
        *current = Some(Arc::clone(&intent));
        Ok(intent)
    }

    /// Forgets an intent that was found to be gone.
    pub(crate) async fn lost(&self, intent: &Intent) {
        let mut current = self.current.lock().await;
        if current.as_ref().is_some_and(|own| own.number == intent.number) {
            *current = None;
        }
    }

    /// Lets go of the current intent if it is old: an idle process must not keep garbage of its own alive.
    pub(crate) async fn rotate(&self) {
        let mut current = self.current.lock().await;
        let old = |intent: &Arc<Intent>| intent.since.elapsed() >= self.core.options.intent_rotation;
        if current.as_ref().is_some_and(old) {
            *current = None;
        }
    }

    /// Lets go of the current intent, and waits until it is removed if nobody writes under it.
    pub(crate) async fn close(&self) {
        if let Some(intent) = self.current.lock().await.take().and_then(Arc::into_inner) {
            intent.remove().await;
        }
    }
}

impl Intent {
    async fn make(core: Arc<Core>) -> Result<Self> {
        let number = u64::from_be_bytes(seal::random().map_err(|_| no_random())?);
        let key = path::intent(number);
        let txn = Txn {
            compares: vec![Compare::ModifiedAt(key.clone(), Revision(0))],
            ops: vec![Op::PutEphemeral(key, stamp(SystemTime::now()))],
        };
        let before = core.seen();
        match core.backend.txn(txn).await.map_err(|error| core.error(error)) {
            Ok(Outcome::Committed(made)) => {
                let made = core.later(before, made)?;
                Ok(Self { core, number, made, since: Instant::now(), writes: AtomicU32::new(0) })
            }
            Ok(Outcome::Failed) => Err(Error::Unavailable("two write intents drew one number".into())),
            // Nothing was written under it: what may be left, also of a full etcd, is swept as ephemeral or as too old.
            Err(Error::UnknownOutcome(what)) => Err(Error::Unavailable(what)),
            Err(error) => Err(error),
        }
    }

    /// What the names of a new write under this intent carry: the number of the intent, and that of the write.
    pub(crate) fn next_write(&self) -> (u64, u32) {
        (self.number, self.writes.fetch_add(u32::from(!Canary::NamesNotFresh.sings()), Ordering::Relaxed))
    }

    /// Holds as long as the intent is the one that was made: not removed, and not put again after it was lost.
    pub(crate) fn compare(&self) -> Compare {
        Compare::ModifiedAt(path::intent(self.number), self.made)
    }

    async fn remove(&self) {
        let _ = remove(&self.core, self.number).await;
    }
}

impl Drop for Intent {
    fn drop(&mut self) {
        // Once more where `remove` was called: removing what is gone is no change.
        if let Ok(runtime) = tokio::runtime::Handle::try_current()
            && !self.core.stop.is_cancelled()
        {
            self.core.tasks.spawn_on(remove_in_the_end(Arc::clone(&self.core), self.number), &runtime);
        }
    }
}

impl fmt::Debug for Intents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Intents")
    }
}

/// An intent that stays keeps what was given up under it for as long as this process lives, or the collector's patience: so what
/// fails is tried again.
async fn remove_in_the_end(core: Arc<Core>, number: u64) {
    for pause in PAUSES_MILLIS.map(Duration::from_millis) {
        if remove(&core, number).await || core.stop.run_until_cancelled(sleep(pause)).await.is_none() {
            return;
        }
    }
}

/// Whether it is surely gone.
async fn remove(core: &Core, number: u64) -> bool {
    let txn = Txn { compares: Vec::new(), ops: vec![Op::Delete(path::intent(number))] };
    let removed = core.backend.txn(txn).await;
    if let Err(error) = &removed {
        tracing::debug!(%error, "write intent was not removed; it vanishes with its lease");
    }
    removed.is_ok()
}

/// When an intent was made, for people who look. Nothing is decided by it: clocks jump, and those of replicas differ.
pub(super) fn stamp(now: SystemTime) -> Bytes {
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Bytes::copy_from_slice(&seconds.to_be_bytes())
}

fn no_random() -> Error {
    Error::Unavailable("no random numbers".into())
}
