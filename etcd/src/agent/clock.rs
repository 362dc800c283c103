//! The clocks by which deadlines are kept. The first counts from the start of the machine, goes on while the machine is suspended, and
//! is the same for all processes. Nobody can set it.
//!
//! It stands still while a hypervisor pauses the whole machine, and so do all clocks in it. The wall clock is set right afterwards, by the
//! hypervisor or by NTP. So a deadline has passed when either of the two says so, and a wall clock that is set forward counts as a pause
//! of that length. Until it is set, nothing inside the machine can know of the pause.

use std::time::{Duration, SystemTime};

use repot_apimachinery::time::Time;
use rustix::time::{ClockId, clock_gettime};

/// A wall clock that is set forward by less than this was only corrected.
const CORRECTION: Duration = Duration::from_secs(1);

/// Time since the machine was started.
#[must_use]
pub fn now() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let (seconds, nanoseconds) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
    Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds)
}

/// [`now`] in whole seconds. They are rounded down, and so are the ends of leases: never too late.
pub(super) fn whole_seconds() -> Time {
    Time(now().as_secs())
}

/// What the wall clock shows, since 1970.
fn wall() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// How far the wall clock was ahead of [`now`] at some moment.
#[derive(Clone, Copy, Debug)]
pub struct WallClockOffset(Duration);

impl WallClockOffset {
    /// Reads both clocks now.
    pub(super) fn read() -> Self {
        Self(wall().saturating_sub(now()))
    }

    /// How long the machine was paused between this reading and a later one, by the wall clock. Less than a second counts as a correction.
    pub(super) fn paused_until(self, later: Self) -> Duration {
        let held = later.0.saturating_sub(self.0);
        if held < CORRECTION { Duration::ZERO } else { held }
    }
}

/// A point after which etcd must not run any more, by each of the two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    since_start: Duration,
    wall: Duration,
}

impl Deadline {
    /// A reading of [`now`], or a later one.
    /// `offset`: how far the wall clock was ahead when what the deadline follows from was decided.
    #[must_use]
    pub fn at(since_start: Duration, offset: WallClockOffset) -> Self {
        Self { since_start, wall: since_start.saturating_add(offset.0) }
    }

    /// This long from now.
    #[must_use]
    pub fn after(time: Duration) -> Self {
        Self { since_start: now().saturating_add(time), wall: wall().saturating_add(time) }
    }

    /// How long it is until then; zero once it is over.
    #[must_use]
    pub fn left(self) -> Duration {
        self.left_at(now(), wall())
    }

    fn left_at(self, since_start: Duration, wall: Duration) -> Duration {
        self.since_start.saturating_sub(since_start).min(self.wall.saturating_sub(wall))
    }

    /// Whether it has passed.
    #[must_use]
    pub fn is_over(self) -> bool {
        self.left().is_zero()
    }

    /// Milliseconds by both clocks, rounded down, as [`Deadline::parse`] reads them.
    pub(super) fn text(self) -> String {
        format!("{} {}", self.since_start.as_millis(), self.wall.as_millis())
    }

    /// What [`Deadline::text`] wrote.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (since_start, wall) = text.split_once(' ')?;
        let millis = |text: &str| text.parse().ok().map(Duration::from_millis);
        Some(Self { since_start: millis(since_start)?, wall: millis(wall)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn deadline_is_over_by_whichever_clock_comes_first() {
        let deadline = Deadline { since_start: seconds(100), wall: seconds(5000) };
        for (since_start, wall, left) in [
            (90, 4990, 10),
            // The machine was paused for 9 seconds, and then for longer.
            (90, 4999, 1),
            (90, 5001, 0),
            // The wall clock was set back.
            (90, 4000, 10),
            (100, 4000, 0),
        ] {
            assert_eq!(
                deadline.left_at(seconds(since_start), seconds(wall)),
                seconds(left),
                "{since_start}, {wall}"
            );
        }
    }

    #[test]
    fn wall_clock_that_is_set_forward_tells_of_a_pause() {
        let offset = WallClockOffset(seconds(4900));
        for (later, held) in [(4900, 0), (4000, 0), (4901, 1), (4960, 60)] {
            assert_eq!(offset.paused_until(WallClockOffset(seconds(later))), seconds(held));
        }
        assert_eq!(
            offset.paused_until(WallClockOffset(seconds(4900) + Duration::from_millis(900))),
            Duration::ZERO
        );
    }

    #[test]
    fn deadlines_are_read_as_they_are_written() {
        let deadline = Deadline { since_start: seconds(100), wall: seconds(5000) };
        assert_eq!(Deadline::parse(&deadline.text()), Some(deadline));
        for nonsense in ["", "1", "1 x", "-1 1", "1 1 1"] {
            assert_eq!(Deadline::parse(nonsense), None, "{nonsense}");
        }
        let soon = Deadline::after(seconds(100));
        assert!(soon.left() > seconds(50) && !soon.is_over());
        assert!(Deadline::at(Duration::ZERO, WallClockOffset::read()).is_over());
        let soon = Deadline::at(now() + seconds(100), WallClockOffset::read());
        assert!(soon.left() > seconds(50) && soon.left() <= seconds(100));
    }
}
