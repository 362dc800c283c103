//! The clock by which deadlines are kept: it counts from the start of the machine, goes on while the machine is suspended, and is
//! the same for all processes. Nobody can set it.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time since the machine was started.
#[must_use]
pub fn now() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let (seconds, nanoseconds) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
    Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds)
}

/// A point after which etcd must not run any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Duration);

impl Deadline {
    /// A reading of [`now`], or a later one.
    #[must_use]
    pub fn at(since_start: Duration) -> Self {
        Self(since_start)
    }

    /// This long from now.
    #[must_use]
    pub fn after(time: Duration) -> Self {
        Self(now().saturating_add(time))
    }

    /// How long it is until then; zero once it is over.
    #[must_use]
    pub fn left(self) -> Duration {
        self.0.saturating_sub(now())
    }

    /// Whether it has passed.
    #[must_use]
    pub fn is_over(self) -> bool {
        self.left().is_zero()
    }

    /// Milliseconds since the start of the machine, rounded down.
    pub(super) fn millis(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }
}
