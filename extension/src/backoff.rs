//! When an operation that failed is tried again.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::annotations::SeenRequest;

/// Doubling waits between tries, without an end: somebody may repair the cause at any time.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// Wait after the first failure.
    pub initial: Duration,
    /// Longest wait between two tries.
    pub max: Duration,
}

impl Default for Backoff {
    /// From 2 s to 5 min.
    fn default() -> Self {
        Self { initial: Duration::from_secs(2), max: Duration::from_secs(300) }
    }
}

impl Backoff {
    /// The wait after so many failures in a row.
    #[must_use]
    pub fn after(&self, failures: u32) -> Duration {
        let factor = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        self.initial.saturating_mul(factor).min(self.max)
    }
}

/// What a try was for. Another purpose begins without a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Purpose {
    pub(crate) generation: i64,
    pub(crate) request: SeenRequest,
    pub(crate) deleting: bool,
    pub(crate) confirmed: bool,
}

struct Failures {
    purpose: Purpose,
    count: u32,
    not_before: Instant,
}

/// Failures of objects by UID, in memory: after a restart each is tried at once.
pub(crate) struct Retries {
    backoff: Backoff,
    failures: Mutex<HashMap<String, Failures>>,
}

impl Retries {
    pub(crate) fn new(backoff: Backoff) -> Self {
        Self { backoff, failures: Mutex::new(HashMap::new()) }
    }

    /// How long to wait before the next try; `None` where it may begin.
    pub(crate) fn wait(&self, uid: &str, purpose: &Purpose) -> Option<Duration> {
        let failures = self.failures.lock();
        let known = failures.get(uid).filter(|known| known.purpose == *purpose)?;
        let wait = known.not_before.saturating_duration_since(Instant::now());
        (!wait.is_zero()).then_some(wait)
    }

    /// Counts a failure and gives the wait until the next try. The provider may ask for another wait, up to the longest one.
    pub(crate) fn failed(&self, uid: &str, purpose: Purpose, asked: Option<Duration>) -> Duration {
        let now = Instant::now();
        let mut failures = self.failures.lock();
        // Objects that are gone are not reported, so their entries end by age.
        failures.retain(|_, known| now.saturating_duration_since(known.not_before) < 2 * self.backoff.max);
        let before = failures.get(uid).filter(|known| known.purpose == purpose);
        let count = before.map_or(0, |known| known.count).saturating_add(1);
        let wait = asked.unwrap_or_else(|| self.backoff.after(count)).min(self.backoff.max);
        failures.insert(uid.to_owned(), Failures { purpose, count, not_before: now + wait });
        wait
    }

    pub(crate) fn forget(&self, uid: &str) {
        self.failures.lock().remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn purpose(generation: i64) -> Purpose {
        Purpose { generation, request: SeenRequest::default(), deleting: false, confirmed: false }
    }

    #[test]
    fn waits_double_up_to_the_longest() {
        let seconds = Duration::from_secs;
        let backoff = Backoff { initial: seconds(2), max: seconds(60) };
        let waits: Vec<u64> = (1..=7).map(|failures| backoff.after(failures).as_secs()).collect();
        assert_eq!(waits, [2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff.after(u32::MAX), seconds(60));
    }

    #[tokio::test]
    async fn another_purpose_does_not_wait() {
        let retries = Retries::new(Backoff::default());
        let first = retries.failed("uid", purpose(1), None);
        assert!(retries.failed("uid", purpose(1), None) > first, "the second wait is not longer");
        assert!(retries.wait("uid", &purpose(1)).is_some(), "the same purpose does not wait");
        assert!(retries.wait("uid", &purpose(2)).is_none(), "another purpose waits");
        assert!(retries.wait("other", &purpose(1)).is_none(), "another object waits");
        assert_eq!(retries.failed("uid", purpose(2), None), first, "failures of another purpose count");
        retries.forget("uid");
        assert!(retries.wait("uid", &purpose(2)).is_none());
    }

    #[tokio::test]
    async fn provider_may_choose_the_wait_within_the_limit() {
        let retries = Retries::new(Backoff::default());
        let chosen = Duration::from_secs(7);
        assert_eq!(retries.failed("uid", purpose(1), Some(chosen)), chosen);
        assert_eq!(retries.failed("uid", purpose(1), Some(Duration::MAX)), Backoff::default().max);
    }
}
