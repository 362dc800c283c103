//! How often a member that cannot be reached is dialled, by all clients together.
//!
//! An API server has about a hundred connections to the gateway, and each of them has its own to a member. Where etcd has stopped, as
//! after it lost ownership, each call on each of them would look up the member's name and dial it every 25 ms. So clients share
//! what the last attempt showed: until the pause after it is over, calls fail with the same error and without a dial.

use std::io;

use parking_lot::Mutex;
use tokio::time::{Duration, Instant};

/// The pauses between two attempts: a quarter of the time for which attempts have failed, within these.
const FIRST: Duration = Duration::from_millis(25);
const LONGEST: Duration = Duration::from_millis(500);

/// The pause after so long a time without success: [`FIRST`] at the beginning, later at most `longest`.
pub(super) fn pause(failing_for: Duration, longest: Duration) -> Duration {
    (failing_for / 4).clamp(FIRST, longest)
}

/// What attempts to reach a member have shown.
#[derive(Debug, Default)]
pub(super) struct Backoff(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The first failure after which there was no answer.
    failing_since: Option<Instant>,
    /// The next attempt, and why the last one failed.
    next: Option<(Instant, io::ErrorKind, String)>,
}

impl Backoff {
    /// Takes the next attempt, if it is due.
    ///
    /// # Errors
    /// Why the last one failed, until the pause after it is over. After failures one attempt is made in each pause: whoever asks
    /// while it is made gets the earlier error.
    pub(super) fn begin(&self, now: Instant) -> io::Result<()> {
        let mut state = self.0.lock();
        let failing_since = state.failing_since;
        let Some((next, kind, why)) = &mut state.next else { return Ok(()) };
        if now < *next {
            return Err(io::Error::new(*kind, why.clone()));
        }
        *next = now + pause(failing_since.map_or(Duration::ZERO, |since| now - since), LONGEST);
        Ok(())
    }

    /// No connection was made, or it ended before it took a call.
    pub(super) fn failed(&self, now: Instant, error: &io::Error) {
        let mut state = self.0.lock();
        let since = *state.failing_since.get_or_insert(now);
        state.next = Some((now + pause(now - since, LONGEST), error.kind(), error.to_string()));
    }

    /// A connection was made: other clients may make theirs.
    pub(super) fn connected(&self) {
        self.0.lock().next = None;
    }

    /// The member has answered a call.
    pub(super) fn answered(&self) {
        *self.0.lock() = State::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> io::Error {
        io::Error::new(io::ErrorKind::ConnectionRefused, "refused")
    }

    /// Attempts of clients that ask every millisecond, from one of them to another.
    fn attempts(backoff: &Backoff, start: Instant, from: u64, to: u64) -> usize {
        let moments = (from..to).map(|ms| start + Duration::from_millis(ms));
        let made = moments.filter(|now| backoff.begin(*now).is_ok());
        made.inspect(|now| backoff.failed(*now, &refused())).count()
    }

    #[test]
    fn attempts_become_rare_and_the_error_is_that_of_the_last_one() {
        let (backoff, start) = (Backoff::default(), Instant::now());
        let first = attempts(&backoff, start, 0, 200);
        assert!((4..=12).contains(&first), "{first}");
        attempts(&backoff, start, 200, 5_000);
        let later = attempts(&backoff, start, 5_000, 15_000);
        assert!((19..=21).contains(&later), "{later}");
        let error = backoff.begin(start).expect_err("a pause");
        assert_eq!((error.kind(), error.to_string().as_str()), (io::ErrorKind::ConnectionRefused, "refused"));
    }

    #[test]
    fn one_attempt_at_a_time_after_a_failure_and_any_number_after_success() {
        let (backoff, start) = (Backoff::default(), Instant::now());
        assert!(backoff.begin(start).is_ok() && backoff.begin(start).is_ok());
        backoff.failed(start, &refused());
        let later = start + FIRST;
        assert!(backoff.begin(later).is_ok() && backoff.begin(later).is_err());
        backoff.connected();
        assert!(backoff.begin(later).is_ok() && backoff.begin(later).is_ok());
        backoff.failed(later, &refused());
        assert!(backoff.begin(later).is_err());
        backoff.answered();
        assert!(backoff.begin(later).is_ok());
    }
}
