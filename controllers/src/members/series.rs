//! Since when members have been seen well without a break, by the clock of this process.

use std::{collections::BTreeMap, time::Duration};

use repot_apimachinery::time::Time;
use repot_etcd_core::members::MemberId;
use tokio::time::Instant;

/// What has been seen of each member, and when.
pub(super) struct HealthHistory {
    began: Instant,
    gap: Duration,
    runs: BTreeMap<MemberId, Run>,
}

/// A time without a break.
struct Run {
    leader: MemberId,
    first: Instant,
    last: Instant,
}

impl HealthHistory {
    pub(super) fn new(gap: Duration) -> Self {
        Self { began: Instant::now(), gap, runs: BTreeMap::new() }
    }

    /// Now, in seconds since this process began to look; not more than have passed.
    pub(super) fn now(&self) -> Time {
        Time(self.began.elapsed().as_secs())
    }

    /// Notes whom each member that is well follows, and forgets all others.
    pub(super) fn note(&mut self, well: &[(MemberId, MemberId)], now: Instant) {
        let mut runs = std::mem::take(&mut self.runs);
        for &(id, leader) in well {
            let unbroken = runs
                .remove(&id)
                .filter(|run| run.leader == leader && now.duration_since(run.last) <= self.gap);
            let first = unbroken.map_or(now, |run| run.first);
            self.runs.insert(id, Run { leader, first, last: now });
        }
    }

    /// Has a member begin anew.
    pub(super) fn forget(&mut self, id: MemberId) {
        self.runs.remove(&id);
    }

    /// Since when a member has been well; not earlier than it was.
    pub(super) fn since(&self, id: MemberId) -> Option<Time> {
        let run = self.runs.get(&id)?;
        let since = run.first.duration_since(self.began);
        Some(Time(since.as_secs() + u64::from(since.subsec_nanos() > 0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breaks_and_gaps_and_new_leaders_begin_anew() {
        let (member, leader, other) = (MemberId(1), MemberId(2), MemberId(3));
        let mut series = HealthHistory::new(Duration::from_secs(10));
        let mut now = series.began;
        let mut later = |seconds: f64, well: &[(MemberId, MemberId)]| {
            now += Duration::from_secs_f64(seconds);
            series.note(well, now);
            series.since(member)
        };
        assert_eq!(later(0.5, &[(member, leader)]), Some(Time(1)));
        assert_eq!(later(9.0, &[(member, leader)]), Some(Time(1)));
        assert_eq!(later(1.0, &[]), None);
        assert_eq!(later(0.25, &[(member, leader)]), Some(Time(11)));
        assert_eq!(later(11.0, &[(member, leader)]), Some(Time(22)));
        assert_eq!(later(1.0, &[(member, other)]), Some(Time(23)));
        series.forget(member);
        assert_eq!(series.since(member), None);
    }
}
