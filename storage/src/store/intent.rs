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
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use tokio::{sync::Mutex, time::sleep};

use super::{core::Core, path};
use crate::{
    Error, Result,
    backend::{Compare, Op, Outcome, Revision, Txn},
    seal,
};

/// How often a number is drawn for an intent.
const DRAWS: usize = 3;
/// Between tries to remove an intent; the last one ends it.
const PAUSES_MILLIS: [u64; 5] = [100, 500, 2_000, 10_000, 60_000];

/// The intents of a process.
pub(crate) struct Intents {
    core: Arc<Core>,
    /// How many have been begun to be made.
    begun: AtomicU64,
    current: Mutex<Current>,
}

/// What came of making the last one.
#[derive(Default)]
struct Current {
    intent: Option<Arc<Intent>>,
    /// Why none was made, and which one that was, as counted by [`Intents::begun`].
    failure: Option<(u64, Error)>,
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
        Self { core, begun: AtomicU64::new(0), current: Mutex::default() }
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The intent to write under. Makes one where there is none that is young enough. Whoever waits while one is being made
    /// shares the next failure: a backend that hangs costs each of them two bounds of time, and not one for each who waits.
    pub(crate) async fn acquire(&self) -> Result<Arc<Intent>> {
        self.acquire_by(|| Intent::make(Arc::clone(&self.core))).await
    }

    async fn acquire_by<F: Future<Output = Result<Intent>>>(
        &self,
        make: impl FnOnce() -> F,
    ) -> Result<Arc<Intent>> {
        let before = self.begun.load(Ordering::SeqCst);
        let mut current = self.current.lock().await;
        if let Some(intent) = &current.intent
            && intent.since.elapsed() < self.core.options.intent_rotation
        {
            return Ok(Arc::clone(intent));
        }
        if let Some((number, error)) = &current.failure
            && *number > before
        {
            return Err(error.clone());
        }
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        match make().await {
            Ok(intent) => Ok(Arc::clone(current.intent.insert(Arc::new(intent)))),
            Err(error) => {
                current.failure = Some((number, error.clone()));
                Err(error)
            }
        }
    }

    /// Forgets an intent that was found to be gone.
    pub(crate) async fn lost(&self, intent: &Intent) {
        let mut current = self.current.lock().await;
        current.intent.take_if(|own| own.number == intent.number);
    }

    /// Lets go of the current intent if it is old: an idle process must not keep garbage of its own alive. Waits for nobody: where
    /// one is being made, there is no old one.
    pub(crate) fn rotate(&self) {
        let Ok(mut current) = self.current.try_lock() else { return };
        current.intent.take_if(|intent| intent.since.elapsed() >= self.core.options.intent_rotation);
    }

    /// Lets go of the current intent, and waits until it is removed if nobody writes under it.
    pub(crate) async fn close(&self) {
        let intent = self.current.lock().await.intent.take();
        if let Some(intent) = intent.and_then(Arc::into_inner) {
            intent.remove().await;
        }
    }
}

impl Intent {
    /// Makes one. Where the backend says that there is one of this number, it was drawn twice, or its transaction was delivered twice:
    /// another number is drawn, and what may be there goes as an intent does that was forgotten.
    async fn make(core: Arc<Core>) -> Result<Self> {
        for _ in 0..DRAWS {
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
                    return Ok(Self { core, number, made, since: Instant::now(), writes: AtomicU32::new(0) });
                }
                Ok(Outcome::Failed) => {}
                // Nothing was written under it: what may be left, also of a full etcd, is swept as ephemeral or as too old.
                Err(Error::UnknownOutcome(what)) => return Err(Error::Unavailable(what)),
                Err(error) => return Err(error),
            }
        }
        Err(Error::Unavailable(format!("{DRAWS} write intents in turn were said to be there already")))
    }

    /// What the names of a new write under this intent carry: the number of the intent, and that of the write.
    pub(crate) fn next_write(&self) -> (u64, u32) {
        (self.number, self.writes.fetch_add(1, Ordering::Relaxed))
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use futures::{future::join_all, poll};
    use tokio::sync::Semaphore;

    use super::*;
    use crate::{
        Keyring, StoreOptions,
        backend::embedded::{Embedded, Options},
    };

    const KEYS: &str = "{apiVersion: apiserver.config.k8s.io/v1, kind: EncryptionConfiguration, \
                        resources: [{resources: ['*.*'], providers: [{identity: {}}]}]}";

    #[tokio::test]
    async fn writers_do_not_wait_for_each_others_failures_in_turn() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { min_free_bytes: 0, ..Options::default() };
        let backend = Arc::new(Embedded::open(dir.path(), options).await.unwrap());
        let keys = Arc::new(Keyring::parse(KEYS).unwrap());
        let core = Core::new(backend, keys, StoreOptions::default()).await.unwrap();
        let intents = Intents::new(Arc::new(core));
        let (asked, gate) = (AtomicUsize::new(0), Semaphore::new(0));
        let hung = || async {
            asked.fetch_add(1, Ordering::SeqCst);
            gate.acquire().await.unwrap().forget();
            Err(Error::Unavailable("no answer".into()))
        };
        let mut writers = Box::pin(join_all((0..12).map(|_| intents.acquire_by(hung))));
        assert!(poll!(&mut writers).is_pending());
        gate.add_permits(12);
        assert!(writers.await.into_iter().all(|intent| intent.is_err()));
        assert_eq!(asked.load(Ordering::SeqCst), 2, "the others share the second failure");
        // Whoever comes later asks anew.
        assert!(intents.acquire().await.is_ok());
    }
}
