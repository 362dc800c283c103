//! Ownership of a Shoot: only the seed that owns it may act on its infrastructure.
//!
//! The bad-case paper of GEP-7 calls this the extension controller watchdog. The check is asked before an operation begins and
//! regularly while it runs. When ownership is lost, the future of the operation is dropped: its last statement is the one it awaits, and
//! nothing more is written. Threads that the operation started (`spawn`, `spawn_blocking`) are beyond that reach; providers must not
//! start any.

use std::{future::Future, time::Duration};

use futures::future::BoxFuture;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

/// The object whose Shoot is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Kind of the extension object.
    pub kind: &'a str,
    /// Its namespace, which is that of the Shoot's control plane; `None` for cluster-scoped kinds.
    pub namespace: Option<&'a str>,
    /// Name of the extension object.
    pub name: &'a str,
}

/// The owner could not be found out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to find out who owns the Shoot: {0}")]
pub struct OwnershipUnknown(pub String);

/// Whether this seed owns a Shoot.
pub trait Ownership: Send + Sync + 'static {
    /// `true` while this seed owns the Shoot of the object. It is called from several operations at once.
    ///
    /// # Errors
    /// When the owner cannot be found out; callers treat that as lost after a while.
    fn check<'a>(&'a self, subject: Subject<'a>) -> BoxFuture<'a, Result<bool, OwnershipUnknown>>;

    /// Resolves when another check is worth while before its time. It may be dropped and called again at any time.
    fn changed<'a>(&'a self, subject: Subject<'a>) -> BoxFuture<'a, ()> {
        let _ = subject;
        Box::pin(std::future::pending())
    }
}

/// For landscapes without owner records, as Gardener is since 1.66: this seed owns every Shoot that it has objects of.
#[derive(Clone, Copy, Debug, Default)]
pub struct AlwaysOwner;

impl Ownership for AlwaysOwner {
    fn check<'a>(&'a self, _: Subject<'a>) -> BoxFuture<'a, Result<bool, OwnershipUnknown>> {
        Box::pin(std::future::ready(Ok(true)))
    }
}

/// Ownership that somebody else watches. A sender that is gone makes the owner unknown.
#[derive(Clone, Debug)]
pub struct WatchedOwnership(pub watch::Receiver<bool>);

impl Ownership for WatchedOwnership {
    fn check<'a>(&'a self, _: Subject<'a>) -> BoxFuture<'a, Result<bool, OwnershipUnknown>> {
        let known = self.0.has_changed().is_ok();
        let value = *self.0.borrow();
        let closed = || OwnershipUnknown("the watch of the owner has ended".to_owned());
        Box::pin(std::future::ready(known.then_some(value).ok_or_else(closed)))
    }

    fn changed<'a>(&'a self, _: Subject<'a>) -> BoxFuture<'a, ()> {
        let mut receiver = self.0.clone();
        Box::pin(async move {
            if *receiver.borrow_and_update() && receiver.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }
}

/// How often the owner is asked for.
#[derive(Clone, Copy, Debug)]
pub struct WatchdogTiming {
    /// From one check to the next.
    pub interval: Duration,
    /// Longest duration of one check; an unanswered check leaves the owner unknown.
    pub timeout: Duration,
    /// How long a running operation goes on after the last positive answer while the owner is unknown.
    pub unknown_limit: Duration,
}

impl Default for WatchdogTiming {
    /// 10 s, 5 s and 30 s.
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { interval: seconds(10), timeout: seconds(5), unknown_limit: seconds(30) }
    }
}

/// Why an operation did not begin, or was stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOwner {
    /// Another seed owns the Shoot.
    #[error("another seed owns the Shoot")]
    Lost,
    /// Nobody could tell for too long.
    #[error(transparent)]
    Unknown(#[from] OwnershipUnknown),
}

/// Runs an operation only while this seed owns the Shoot.
///
/// # Errors
/// When ownership is not proved at the beginning, or lost later; the operation is then dropped.
pub async fn while_owner<T>(
    ownership: &dyn Ownership,
    timing: WatchdogTiming,
    subject: Subject<'_>,
    operation: impl Future<Output = T>,
) -> Result<T, NotOwner> {
    if !check(ownership, timing, subject).await? {
        return Err(NotOwner::Lost);
    }
    tokio::select! {
        // When both are ready, the loss counts.
        biased;
        reason = until_lost(ownership, timing, subject) => Err(reason),
        outcome = operation => Ok(outcome),
    }
}

async fn check(
    ownership: &dyn Ownership,
    timing: WatchdogTiming,
    subject: Subject<'_>,
) -> Result<bool, OwnershipUnknown> {
    let late = || OwnershipUnknown(format!("no answer within {:?}", timing.timeout));
    timeout(timing.timeout, ownership.check(subject)).await.map_err(|_| late())?
}

async fn until_lost(ownership: &dyn Ownership, timing: WatchdogTiming, subject: Subject<'_>) -> NotOwner {
    let mut proved = Instant::now();
    loop {
        tokio::select! {
            () = sleep(timing.interval) => {}
            () = ownership.changed(subject) => {}
        }
        let asked = Instant::now();
        match check(ownership, timing, subject).await {
            Ok(true) => proved = asked,
            Ok(false) => return NotOwner::Lost,
            Err(unknown) if proved.elapsed() >= timing.unknown_limit => return NotOwner::Unknown(unknown),
            Err(unknown) => {
                tracing::warn!(%unknown, "the owner is unknown, the operation goes on for a while")
            }
        }
        // A watch that reports without a change must not occupy a processor.
        sleep(timing.interval.min(Duration::from_millis(10))).await;
    }
}

#[cfg(test)]
#[path = "tests/ownership.rs"]
mod tests;
