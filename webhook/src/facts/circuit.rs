//! A circuit breaker for facts. While the cluster answers late, each review that needs facts would hold up its writer for as long as
//! kube-apiserver waits; after a few of them reviews fail at once, and the failure policy of the webhook decides.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// So many late answers in a row open the circuit.
const FAILURES: u32 = 3;
/// For so long; then one review asks the cluster again.
pub(super) const PAUSE: Duration = Duration::from_secs(5);

/// A circuit, closed at first.
#[derive(Default)]
pub(super) struct Circuit(Mutex<State>);

#[derive(Default)]
struct State {
    failures: u32,
    open_until: Option<Instant>,
}

impl Circuit {
    /// Whether the cluster may be asked. While the circuit is open that is so once every [`PAUSE`].
    pub(super) fn admits(&self, now: Instant) -> bool {
        let mut state = self.0.lock();
        match state.open_until {
            Some(until) if now < until => false,
            Some(_) => {
                state.open_until = Some(now + PAUSE);
                true
            }
            None => true,
        }
    }

    /// Records whether the cluster answered in time.
    pub(super) fn record(&self, now: Instant, in_time: bool) {
        let mut state = self.0.lock();
        if in_time {
            if state.open_until.is_some() {
                tracing::info!("facts come in time again");
            }
            *state = State::default();
            return;
        }
        state.failures += 1;
        if state.failures >= FAILURES {
            if state.open_until.is_none() {
                tracing::warn!(
                    pause_ms = PAUSE.as_millis() as u64,
                    "facts come too late, reviews that need them fail at once"
                );
            }
            state.open_until = Some(now + PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_after_late_answers_and_tries_once_a_pause() {
        let (circuit, start) = (Circuit::default(), Instant::now());
        for _ in 0..FAILURES {
            assert!(circuit.admits(start));
            circuit.record(start, false);
        }
        assert!(!circuit.admits(start) && !circuit.admits(start + PAUSE / 2));
        assert!(circuit.admits(start + PAUSE), "nobody tries again");
        assert!(!circuit.admits(start + PAUSE), "two try at once");
        circuit.record(start + PAUSE, false);
        assert!(!circuit.admits(start + PAUSE + PAUSE / 2));
        circuit.record(start + 3 * PAUSE, true);
        assert!(circuit.admits(start + 3 * PAUSE) && circuit.admits(start + 3 * PAUSE));
    }

    #[test]
    fn an_answer_in_time_makes_up_for_late_ones() {
        let (circuit, start) = (Circuit::default(), Instant::now());
        for in_time in [false, false, true, false, false] {
            circuit.record(start, in_time);
        }
        assert!(circuit.admits(start));
    }
}
