//! The high-water mark: the newest version that was given out, kept outside of the backend.
//!
//! A server that runs notices when its backend is put back to an older copy, since it knows the revisions that it has met.
//! One that starts knows nothing: so servers record the newest version every few seconds and when they stop, and a server
//! that starts compares ([`compare`]). What was given out after the last record is not known to anybody: a rollback by less
//! than [`Guard::every`] is not noticed when every server was killed.

mod file;
mod metrics;
mod object;

use std::{
    fmt,
    str::FromStr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use super::{core::Core, types::ResourceVersion};
use crate::{Error, Result};
pub use file::FileMark;
pub(super) use metrics::Metrics;
pub use object::ObjectMark;

/// Versions that may have been given out after the last record: as many as etcd's own advice for a restore, a week of 1,500
/// writes a second.
const GIVEN_OUT_SINCE: u64 = 1_000_000_000;
/// The longest that one request to where the mark is may take.
const REQUEST: Duration = Duration::from_secs(5);
/// Between tries to read the mark.
const PAUSE: Duration = Duration::from_secs(1);

/// What is recorded: the newest version that was met, and the store it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HighWaterMark {
    /// The store, as its epoch names it. A copy of a store has the same name.
    pub store: Uuid,
    /// The etcd cluster below it, where there is one.
    pub cluster: Option<String>,
    /// The newest version that a server had met.
    pub resource_version: u64,
}

impl fmt::Display for HighWaterMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "store: {}", self.store)?;
        if let Some(cluster) = &self.cluster {
            writeln!(f, "etcdCluster: {cluster}")?;
        }
        writeln!(f, "resourceVersion: {}", self.resource_version)
    }
}

impl FromStr for HighWaterMark {
    type Err = MarkError;

    fn from_str(text: &str) -> Result<Self, MarkError> {
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
        let parsed = || {
            Some(Self {
                store: value("store")?.parse().ok()?,
                cluster: value("etcdCluster").map(str::to_owned),
                resource_version: value("resourceVersion")?.parse().ok()?,
            })
        };
        parsed().ok_or_else(|| MarkError("what is recorded there is no high-water mark".into()))
    }
}

/// The mark cannot be read or written.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct MarkError(pub String);

/// A place for one mark, which is not lost or put back together with the backend.
#[async_trait]
pub trait MarkStore: Send + Sync + fmt::Debug {
    /// What is recorded; `None`: nothing yet.
    async fn load(&self) -> Result<Option<HighWaterMark>, MarkError>;
    /// Replaces what is recorded. May fail where another server does so at the same time.
    async fn save(&self, mark: &HighWaterMark) -> Result<(), MarkError>;
    /// Where it is, for messages.
    fn location(&self) -> String;
}

/// What a server does that starts on a store which was put back to an older copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnRollback {
    /// It does not start.
    #[default]
    Refuse,
    /// It raises versions above all that were given out, and serves what is there.
    Continue,
}

/// How a store is guarded against rollbacks.
#[derive(Clone, Debug)]
pub struct Guard {
    /// Where the mark is.
    pub marks: Arc<dyn MarkStore>,
    /// What to do where the store is behind it.
    pub on_rollback: OnRollback,
    /// How long to wait for a mark that cannot be read.
    pub patience: Duration,
    /// How often it is recorded, where versions went on.
    pub every: Duration,
}

impl Guard {
    /// With the defaults of a server.
    #[must_use]
    pub fn new(marks: Arc<dyn MarkStore>) -> Self {
        let (patience, every) = (Duration::from_secs(30), Duration::from_secs(5));
        Self { marks, on_rollback: OnRollback::default(), patience, every }
    }
}

/// What a store is and how far it has come.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    store: Uuid,
    cluster: Option<String>,
    version: u64,
    /// Versions up to here were given out before the last time that versions were raised, if at all. All are expired.
    offset: u64,
}

/// How a store stands to a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    /// No version of before can come to mean something else.
    Sound,
    /// It is a copy of before, by so many versions.
    Behind(u64),
    /// The same store on another cluster: it was restored, and who knows what has happened there since.
    OtherCluster,
    /// Another store.
    OtherStore,
}

/// Compares. A store whose versions were raised above the mark is sound whatever else it is: every version that the mark
/// knows is expired there. So raising is all that an operator has to do.
fn compare(mark: &HighWaterMark, found: &Found) -> Standing {
    if found.offset >= mark.resource_version {
        Standing::Sound
    } else if mark.store != found.store {
        Standing::OtherStore
    } else if found.version < mark.resource_version {
        Standing::Behind(mark.resource_version - found.version)
    } else if mark.cluster.is_some() && found.cluster.is_some() && mark.cluster != found.cluster {
        Standing::OtherCluster
    } else {
        Standing::Sound
    }
}

/// What is wrong, and what to do.
fn complaint(standing: &Standing, mark: &HighWaterMark, found: &Found, location: &str) -> String {
    let named = |cluster: &Option<String>| match cluster {
        Some(cluster) => format!(" of etcd cluster {cluster}"),
        None => String::new(),
    };
    let (was, is) = (named(&mark.cluster), named(&found.cluster));
    let what = match standing {
        Standing::Sound => return String::new(),
        Standing::Behind(by) => format!(
            "it was put back to an older copy while no server ran: its newest resource version{is} is {}, and {} \
             was recorded{was}, {by} later. Writes that were acknowledged are lost",
            found.version, mark.resource_version
        ),
        Standing::OtherCluster => format!(
            "it was restored elsewhere: the store is that{is}, and the high-water mark was recorded on that{was}. Writes that \
             were acknowledged may be lost"
        ),
        Standing::OtherStore => format!(
            "the high-water mark was recorded for another store: {}{was}, and this is {}{is}. Is the address, the directory or \
             the prefix a wrong one, or was the store lost",
            mark.store, found.store
        ),
    };
    let above = mark.resource_version.saturating_add(GIVEN_OUT_SINCE);
    format!(
        "{what}. The mark is in {location}. To serve what is there, stop all servers, run `repot storage bump-revision --above \
         {above}`, and start again"
    )
}

/// Keeps the mark of an open store.
#[derive(Debug)]
pub(crate) struct Keeper {
    guard: Guard,
    store: Uuid,
    cluster: Option<String>,
    metrics: Metrics,
}

impl Keeper {
    /// Compares the store with the mark, before anything is served.
    ///
    /// # Errors
    /// [`Error::Damaged`] where the store is behind, or another one; [`Error::Unavailable`] where the mark cannot be read.
    pub(crate) async fn check(core: &Core, guard: Guard, metrics: Metrics) -> Result<Self> {
        let cluster = core.backend.cluster().await.map_err(|error| core.error(error))?;
        let keeper = Self { guard, store: core.epoch.store(), cluster, metrics };
        let location = keeper.guard.marks.location();
        let Some(mark) = keeper.read().await? else {
            tracing::info!(location, "no high-water mark yet");
            return Ok(keeper);
        };
        core.revision().await?;
        let found = keeper.found(core);
        let standing = compare(&mark, &found);
        let complaint = complaint(&standing, &mark, &found, &location);
        match (standing, keeper.guard.on_rollback) {
            (Standing::Sound, _) => {}
            // Another store is no copy of this one, and an empty one says that all is lost: nobody goes on with that unasked.
            (Standing::Behind(_) | Standing::OtherCluster, OnRollback::Continue) => {
                tracing::error!(
                    complaint,
                    "the store went back; versions are raised, and it is served as it is"
                );
                let above = ResourceVersion(mark.resource_version.saturating_add(GIVEN_OUT_SINCE));
                core.epoch.raise_past(&*core.backend, above).await?;
                keeper.metrics.rolled_back();
            }
            _ => return Err(Error::Damaged(complaint)),
        }
        Ok(keeper)
    }

    async fn read(&self) -> Result<Option<HighWaterMark>> {
        let begin = Instant::now();
        loop {
            let why = match timeout(REQUEST, self.guard.marks.load()).await {
                Ok(Ok(mark)) => return Ok(mark),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer".to_owned(),
            };
            let location = self.guard.marks.location();
            if begin.elapsed() >= self.guard.patience {
                return Err(Error::Unavailable(format!(
                    "the high-water mark in {location} cannot be read, so nobody knows whether the store was put back to an older \
                     copy: {why}"
                )));
            }
            tracing::warn!(location, error = why, "the high-water mark cannot be read, trying again");
            sleep(PAUSE.min(self.guard.patience)).await;
        }
    }

    fn found(&self, core: &Core) -> Found {
        Found {
            store: self.store,
            cluster: self.cluster.clone(),
            version: core.version(core.seen()).0,
            offset: core.epoch.offset(),
        }
    }

    /// Records until the store is closed, and once more then.
    pub(crate) async fn run(self, core: Arc<Core>) {
        let mut confirmed = 0;
        loop {
            let goes_on = core.stop.run_until_cancelled(sleep(self.guard.every)).await.is_some();
            let found = self.found(&core);
            if found.version > confirmed && core.sound().is_ok() {
                match timeout(REQUEST, self.record(&found)).await {
                    Ok(Ok(was_there)) => {
                        // Looked at once more: another server may have written a lower one at the same time.
                        confirmed = if was_there { found.version } else { confirmed };
                        self.metrics.recorded(SystemTime::now());
                    }
                    Ok(Err(error)) => self.metrics.failed(&error),
                    Err(_) => self.metrics.failed(&MarkError("no answer".into())),
                }
            }
            if !goes_on {
                return;
            }
        }
    }

    /// Records what is met, unless it or more is recorded already. Whether it was.
    async fn record(&self, found: &Found) -> Result<bool, MarkError> {
        let (store, cluster) = (found.store, found.cluster.clone());
        let own = HighWaterMark { store, cluster, resource_version: found.version };
        if let Some(mark) = self.guard.marks.load().await? {
            match compare(&mark, found) {
                // Another server has met more.
                Standing::Behind(_) => return Ok(true),
                Standing::OtherStore | Standing::OtherCluster => {
                    return Err(MarkError(format!(
                        "the high-water mark in {} is that of another store",
                        self.guard.marks.location()
                    )));
                }
                Standing::Sound if mark == own => return Ok(true),
                Standing::Sound => {}
            }
        }
        self.guard.marks.save(&own).await.map(|()| false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: u64 = 1000;

    fn found(store: u128, cluster: &str, version: u64, offset: u64) -> Found {
        Found { store: Uuid::from_u128(store), cluster: Some(cluster.into()), version, offset }
    }

    #[test]
    fn tells_a_store_that_went_back_from_one_that_went_on() {
        let mark =
            HighWaterMark { store: Uuid::from_u128(1), cluster: Some("c".into()), resource_version: MARK };
        let cases = [
            (found(1, "c", MARK, 0), Standing::Sound),
            (found(1, "c", MARK + 5, 0), Standing::Sound),
            (found(1, "c", MARK - 1, 0), Standing::Behind(1)),
            (found(1, "c", MARK - 1, MARK - 900), Standing::Behind(1)),
            (found(1, "other", MARK - 1, 0), Standing::Behind(1)),
            (found(1, "other", MARK + 5, 0), Standing::OtherCluster),
            (found(2, "c", MARK + 5, 0), Standing::OtherStore),
            (found(2, "c", 1, 0), Standing::OtherStore),
            // Raised: too little, and enough.
            (found(1, "c", MARK + 5, MARK - 1), Standing::Sound),
            (found(1, "other", MARK + 5, MARK - 1), Standing::OtherCluster),
            (found(1, "other", MARK + 5, MARK), Standing::Sound),
            (found(2, "other", MARK + 5, MARK), Standing::Sound),
        ];
        for (found, expected) in cases {
            assert_eq!(compare(&mark, &found), expected, "{found:?}");
        }
        let embedded = Found { cluster: None, ..found(1, "", MARK, 0) };
        assert_eq!(compare(&mark, &embedded), Standing::Sound);
    }

    #[test]
    fn is_read_as_it_was_written() {
        for cluster in [None, Some("c".to_owned())] {
            let mark = HighWaterMark { store: Uuid::from_u128(1), cluster, resource_version: MARK };
            assert_eq!(mark.to_string().parse::<HighWaterMark>().expect("parsed"), mark);
        }
        for text in ["", "store: x\nresourceVersion: 1\n", "store: 00000000-0000-0000-0000-000000000001\n"] {
            assert!(text.parse::<HighWaterMark>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_complaint_names_both_and_says_what_to_do() {
        let mark =
            HighWaterMark { store: Uuid::from_u128(1), cluster: Some("aa".into()), resource_version: MARK };
        for found in [found(1, "bb", 7, 0), found(1, "bb", 2000, 0), found(2, "bb", 2000, 0)] {
            let told = complaint(&compare(&mark, &found), &mark, &found, "somewhere");
            for word in ["aa", "bb", "somewhere", "bump-revision --above 1000001000"] {
                assert!(told.contains(word), "no {word}: {told}");
            }
        }
    }
}
