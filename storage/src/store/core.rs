//! What all parts of a store share: the backend, the keys, and how a record becomes an object.

use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    StoreOptions,
    epoch::Epoch,
    metrics::{Metrics, Part},
    path,
    revisions::Revisions,
    types::{Key, Object, ResourceVersion},
};
use crate::{
    Error, Keyring, Result,
    backend::{self, Backend, KeyValue, RangeRequest, Revision},
    keyring, record,
    seal::Defect,
};

/// How often a revision is looked for that has not come yet: for all together who wait.
const LOOK: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug)]
pub(crate) struct Core {
    /// Where it all rests.
    pub backend: Arc<dyn Backend>,
    /// What wraps data keys.
    pub keys: Arc<Keyring>,
    /// What was set at opening.
    pub options: StoreOptions,
    /// Makes versions that clients see from revisions of the backend.
    pub epoch: Epoch,
    /// Cancelled when the store is closed or its last handle is dropped.
    pub stop: CancellationToken,
    /// Background work, to be waited for when the store is closed.
    pub tasks: TaskTracker,
    /// Where damage, rollbacks and passes of the collector are counted.
    pub metrics: Metrics,
    /// Since when the collector has known an intent, by its key and the revision that made it.
    pub known_intents: Mutex<HashMap<(Bytes, Revision), Instant>>,
    /// The newest revision this handle has met.
    seen: AtomicU64,
    /// Changes whenever that does.
    progress: watch::Sender<Revision>,
    revisions: Revisions,
    nudges: Revisions,
    /// What to answer once revisions went back.
    rolled_back: OnceLock<Error>,
}

impl Core {
    pub(crate) async fn new(
        backend: Arc<dyn Backend>,
        keys: Arc<Keyring>,
        options: StoreOptions,
    ) -> Result<Self> {
        let epoch = Epoch::load(&*backend).await?;
        let metrics = Metrics::new().map_err(|error| Error::Damaged(error.to_string()))?;
        let (stop, tasks, seen) = (CancellationToken::new(), TaskTracker::new(), AtomicU64::new(0));
        let (known_intents, rolled_back) = (Mutex::default(), OnceLock::new());
        let (progress, revisions, nudges) = Default::default();
        let core = Self {
            backend,
            keys,
            options,
            epoch,
            stop,
            tasks,
            metrics,
            known_intents,
            seen,
            progress,
            revisions,
            nudges,
            rolled_back,
        };
        core.revision().await?;
        Ok(core)
    }

    /// The newest revision (linearizable).
    pub(crate) async fn revision(&self) -> Result<Revision> {
        self.revisions.newest(|| self.ask_revision()).await
    }

    async fn ask_revision(&self) -> Result<Revision> {
        let before = self.seen();
        let revision = self.backend.revision().await.map_err(|error| self.error(error))?;
        self.later(before, revision)
    }

    /// Asks all watches of the backend how far they are; to etcd that is a read. Those who ask at the same time ask once.
    pub(crate) async fn request_progress(&self) {
        let asked = async || {
            self.backend.request_progress().await;
            Ok(Revision::default())
        };
        let _ = self.nudges.newest(asked).await;
    }

    /// Waits until the backend has come to a revision, whoever brings it there. Those who wait share their questions.
    ///
    /// # Errors
    /// [`Error::Future`] if it has not in time.
    pub(crate) async fn wait_for(&self, target: Revision, timeout: Duration) -> Result<()> {
        let mut progress = self.progress.subscribe();
        if self.seen() >= target {
            return Ok(());
        }
        let reached = async {
            while self.revisions.recent(LOOK, || self.ask_revision()).await? < target {
                // Writes of other replicas to resources that nobody watches here are told by nobody.
                let met = progress.wait_for(|revision| *revision >= target);
                if let Ok(Ok(_)) = tokio::time::timeout(LOOK, met).await {
                    break;
                }
            }
            Ok(())
        };
        match tokio::time::timeout(timeout, reached).await {
            Ok(result) => result,
            Err(_) => Err(Error::Future { current: self.version(self.seen()) }),
        }
    }

    /// Remembers a revision that this handle has met.
    pub(crate) fn met(&self, revision: Revision) -> Revision {
        if self.seen.fetch_max(revision.0, Ordering::SeqCst) < revision.0 {
            self.progress.send_if_modified(|newest| {
                let newer = revision > *newest;
                *newest = revision.max(*newest);
                newer
            });
        }
        revision
    }

    /// Remembers a revision that was asked for, or made, when `before` had been met already. An older one can only be if the
    /// backend was put back to an earlier state: then nothing this handle knows is true any more, and it stops.
    pub(crate) fn later(&self, before: Revision, told: Revision) -> Result<Revision> {
        if told < before {
            let (version, offset) = (self.version(before), before.0 - told.0);
            let error = Error::Damaged(format!(
                "it was put back by {offset} revisions to an older copy of itself; stop all servers, run \
                 `repot storage bump-revision --above {version}` (or what else clients have seen, if that is more), and \
                 start again"
            ));
            tracing::error!(%error, "the store stops");
            self.metrics.set_rolled_back();
            let _ = self.rolled_back.set(error); // Somebody else may have noticed first.
            self.stop.cancel();
        }
        self.sound()?;
        Ok(self.met(told))
    }

    /// The answer to whoever asks for a version of an earlier epoch.
    pub(crate) async fn expired<T>(&self) -> Result<T> {
        let oldest = self.backend.oldest().await.map_err(|error| self.error(error))?;
        Err(Error::Expired { oldest: self.version(oldest.max(Revision(1))) })
    }

    /// # Errors
    /// [`Error::Damaged`] once revisions went back.
    pub(crate) fn sound(&self) -> Result<()> {
        self.rolled_back.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// The newest revision this handle has met: whatever it does from now on happens later.
    pub(crate) fn seen(&self) -> Revision {
        Revision(self.seen.load(Ordering::SeqCst))
    }

    /// The newest version of the record at this path, and the revision at which it was read.
    pub(crate) async fn read(&self, path: &Bytes) -> Result<(Option<KeyValue>, Revision)> {
        // A range, not a get: a get does not tell at which revision it read, and the chunks of an object that was last
        // written before the history window can be read only at a revision inside it.
        let request =
            RangeRequest { keys: path::only(path), at: None, limit: 1, max_bytes: 0, keys_only: false };
        let before = self.seen();
        let mut page = self.backend.range(request).await.map_err(|error| self.error(error))?;
        Ok((page.kvs.pop(), self.later(before, page.revision)?))
    }

    /// Opens a record that was read at revision `at`; damage is counted.
    pub(crate) async fn open(&self, kv: KeyValue, at: Revision) -> Result<Object> {
        let opened = self.open_stored(kv, at).await;
        if let Err(Error::Corrupt { key, what }) = &opened {
            self.metrics.found_damage(Part::Record, key, what);
        }
        opened
    }

    async fn open_stored(&self, kv: KeyValue, at: Revision) -> Result<Object> {
        let Some(key) = path::parse_record(&kv.key) else {
            return Err(Error::Corrupt { key: foreign(&kv.key), what: "its key is not that of an object" });
        };
        match self.open_record(&key, &kv, at).await {
            Ok(object) => Ok(object),
            Err(Broken::Defect(what)) => Err(Error::Corrupt { key, what }),
            Err(Broken::Key(keyring::Error::Altered)) => Err(Error::Corrupt {
                key,
                what: "its data key was altered or moved, or the wrapping key changed",
            }),
            // A key management service may be back soon.
            Err(Broken::Key(error @ keyring::Error::Unavailable { .. })) => {
                Err(Error::Unavailable(error.to_string()))
            }
            Err(Broken::Key(source)) => Err(Error::Sealing { key, source: source.into() }),
        }
    }

    async fn open_record(&self, key: &Key, kv: &KeyValue, at: Revision) -> Result<Object, Broken> {
        let sealed = record::Sealed::parse(kv.value.clone()).map_err(Broken::Defect)?;
        let unwrapped = self.keys.unwrap(key, &kv.key, &sealed.wrapped).await.map_err(Broken::Key)?;
        let (uid, wrapped) = (sealed.uid, sealed.wrapped.clone());
        let opened = sealed.open(&kv.key, &unwrapped.key).map_err(Broken::Defect)?;
        Ok(Object {
            key: key.clone(),
            uid,
            version: self.epoch.version(kv.modified),
            meta: opened.meta,
            summary: opened.summary,
            payload_len: opened.payload_len,
            stale: unwrapped.stale,
            at,
            modified: kv.modified,
            record: Arc::new(record::Opened {
                key: unwrapped.key,
                wrapped,
                token: opened.token,
                payload: opened.payload,
            }),
        })
    }

    /// What a failure of the backend means to a caller of the store.
    pub(crate) fn error(&self, error: backend::Error) -> Error {
        match error {
            backend::Error::Compacted { oldest, .. } => Error::Expired { oldest: self.version(oldest) },
            backend::Error::Future { newest, .. } => Error::Future { current: self.version(newest) },
            backend::Error::TooLarge { size, limit } => Error::TooLarge { size, limit },
            backend::Error::NoSpace(what) => Error::NoSpace(what),
            // Its word is good enough for a caller, who may try again.
            backend::Error::Unavailable(what) | backend::Error::Declined(what) => Error::Unavailable(what),
            backend::Error::Refused(what) => Error::Refused(what),
            backend::Error::Unknown(what) => Error::UnknownOutcome(what),
            backend::Error::Corrupt(what) => Error::Damaged(what),
        }
    }

    /// The version of a revision.
    pub(crate) fn version(&self, revision: Revision) -> ResourceVersion {
        self.epoch.version(revision)
    }
}

/// Why a record did not open.
enum Broken {
    Defect(Defect),
    Key(keyring::Error),
}

/// Something to call a record whose path is not that of an object.
fn foreign(path: &[u8]) -> Key {
    let name = String::from_utf8_lossy(path).into_owned();
    Key { group: String::new(), resource: String::new(), namespace: String::new(), name }
}
