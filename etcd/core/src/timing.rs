//! The epochs of owners and the durations by which both sides go, so that never do both serve.

use std::time::Duration;

use repot_api::conditions::Reason;

/// The epoch of an owner id: the number after its last slash, as in `seed-a/7`. `None` where it has none.
#[must_use]
pub fn epoch(id: &str) -> Option<u64> {
    let (_, epoch) = id.rsplit_once('/')?;
    epoch.bytes().all(|byte| byte.is_ascii_digit()).then(|| epoch.parse().ok())?
}

/// Durations by which both sides go. They are the same on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long an answer may come from a cache on the way.
    pub ttl: Duration,
    /// From one look to the next.
    pub interval: Duration,
    /// The longest that a look may take.
    pub timeout: Duration,
    /// The longest that etcd may take to end.
    pub stop: Duration,
    /// What the other side waits beyond TTL and interval.
    pub grace: Duration,
}

impl Timing {
    /// Timing with which never do both sides serve.
    ///
    /// # Errors
    /// Why it would not.
    pub fn check(self) -> Result<Self, Reason> {
        let needed = self.timeout + self.stop;
        if self.interval.is_zero() || self.timeout.is_zero() {
            return Err(Reason::new("NoInterval", "interval and timeout must be longer than nothing"));
        }
        if self.grace < needed {
            let message = format!(
                "a grace of {} seconds is shorter than timeout and stop together, {} seconds",
                self.grace.as_secs(),
                needed.as_secs()
            );
            return Err(Reason::new("GraceTooShort", message));
        }
        Ok(self)
    }

    /// How long the own id counts after the look that gave it began.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.interval + self.timeout
    }

    /// How long after the record has changed the owner before may serve, in whole seconds, rounded up. This allows for clocks of
    /// the two sides and of caches that each run too fast or too slow by 1 percent at most: 1.01 / 0.99 is less than 41 / 40.
    #[must_use]
    pub fn wait(&self) -> Duration {
        let longest = (self.ttl + self.interval + self.grace).as_millis().div_ceil(1000);
        let longest = u64::try_from(longest).unwrap_or(u64::MAX);
        Duration::from_secs(longest.saturating_add(longest.div_ceil(40)))
    }
}
