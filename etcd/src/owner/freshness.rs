//! Whether an answer is young enough.
//!
//! What a cache still keeps for longer than the configured TTL may be older than the other side counts on, and so may what it says
//! later from the same record: nobody tells how old an answer is. So after an answer with a longer TTL no answer counts until
//! that one would have been forgotten. Flags of an answer do not help: CoreDNS says of cached answers that they are authoritative.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The longest that answers do not count because of one; caches keep nothing for longer.
const LONGEST_DOUBT: Duration = Duration::from_secs(24 * 3600);

/// What is remembered of the TTLs of answers.
#[derive(Debug)]
pub struct Freshness {
    ttl: Duration,
    doubted_until: Mutex<Option<Instant>>,
}

impl Freshness {
    /// Answers may be as old as this.
    #[must_use]
    pub fn new(ttl: Duration) -> Self {
        Self { ttl, doubted_until: Mutex::default() }
    }

    /// Whether an answer counts that may be kept for so much longer.
    ///
    /// # Errors
    /// Why it does not.
    pub(super) fn check(&self, left: Duration) -> Result<(), String> {
        self.check_at(left, Instant::now())
    }

    fn check_at(&self, left: Duration, now: Instant) -> Result<(), String> {
        let ttl = self.ttl;
        let mut doubted_until = self.doubted_until.lock();
        if left > ttl {
            *doubted_until = (*doubted_until).max(Some(now + left.min(LONGEST_DOUBT)));
            return Err(format!(
                "its answer may be kept for {left:?} more, which is longer than the ttl of {ttl:?}"
            ));
        }
        match doubted_until.filter(|until| now < *until) {
            None => Ok(()),
            Some(until) => Err(format!(
                "its answer may be older than the ttl of {ttl:?}: another one could be kept for longer, for {}s from now",
                (until - now).as_secs() + 1
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_an_answer_that_may_be_kept_for_long_none_counts_until_it_is_forgotten() {
        let seconds = Duration::from_secs;
        let (freshness, start) = (Freshness::new(seconds(60)), Instant::now());
        let check = |left, at| freshness.check_at(left, start + at);
        assert!(check(seconds(60), seconds(0)).is_ok() && check(seconds(0), seconds(0)).is_ok());
        let why = check(seconds(120), seconds(0)).expect_err("too long");
        assert!(why.contains("120s more") && why.contains("60s"), "{why}");
        // The same answer, out of the same cache, a minute and a half later.
        let why = check(seconds(30), seconds(90)).expect_err("the same one");
        assert!(why.contains("for 31s from now"), "{why}");
        // A record whose TTL was changed in the meantime.
        assert!(check(seconds(30), seconds(120)).is_ok());
        // A TTL that is not to be believed costs a day.
        assert!(check(Duration::MAX, seconds(120)).is_err());
        assert!(check(seconds(60), LONGEST_DOUBT).is_err());
        assert!(check(seconds(60), LONGEST_DOUBT + seconds(120)).is_ok());
    }
}
