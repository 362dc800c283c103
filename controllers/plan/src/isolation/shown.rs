//! What `status.zoneIsolation` of the Shoot shows of an isolation. Pure.

use std::time::Duration;

use repot_apimachinery::time::Time;

use super::step::Step;
use crate::{
    ledger::{Record, State},
    named_enum,
};

/// The reason of a zone in which nothing has to be done.
pub(super) const ISOLATED: &str = "Isolated";

named_enum! {
    /// Which way an isolation goes.
    pub enum Direction {
        /// The zone is left.
        Failover,
        /// The zone is used again.
        Failback,
    }
}

named_enum! {
    /// How far it has come in that direction.
    pub enum Progress {
        /// Nothing was changed yet.
        Pending,
        /// It is being worked on.
        InProgress,
        /// It was called off before the zone was isolated.
        Aborting,
        /// It is done.
        Done,
        /// A step takes longer than `spec.stepTimeout`. It is worked on all the same.
        Failed,
    }
}

/// `status.zoneIsolation` of a Shoot, but for the time of its last change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// ID that the provider has for the zone.
    pub zone: String,
    /// Code of the zone in the account of the Shoot; empty where it is not known.
    pub code: String,
    /// What field `phase` says.
    pub direction: Direction,
    /// What field `status` says.
    pub progress: Progress,
}

/// How long steps may take before they are shown as failed.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// So long for any step.
    pub step: Duration,
    /// So much longer while machines are drained.
    pub drain: Duration,
}

/// How far an isolation is. `record` gives the record of a step, whichever side has it.
#[must_use]
pub fn progress<'a>(
    record: impl Fn(Step) -> Option<&'a Record>,
    was_isolated: bool,
    (now, limits): (Time, Limits),
) -> (Direction, Progress) {
    let is_settled = |step| record(step).is_some_and(|it: &Record| it.state == State::Succeeded);
    let is_started = |step| record(step).is_some_and(|it: &Record| it.started.is_some());
    let is_late = |step: &Step| {
        let limit = match step {
            Step::MachinesGone => limits.step + limits.drain,
            _ => limits.step,
        };
        let running = record(*step).filter(|it| it.state == State::Running);
        running.and_then(|it| it.started).is_some_and(|started| now.since(started) > limit)
    };
    // Machines that come back, and networks that are not cut off any more, are worked on again.
    let is_kept =
        || record(Step::ZoneKeptEmpty).is_none_or(|it| it.reason == ISOLATED || it.started.is_none());
    let (direction, steps, is_done) = match is_settled(Step::IsolationEnds) {
        false => (Direction::Failover, FAILOVER, is_settled(Step::SubnetIsolated) && is_kept()),
        true => (Direction::Failback, FAILBACK, is_settled(Step::IsolationClosed)),
    };
    let progress = if is_done {
        Progress::Done
    } else if steps.iter().any(is_late) {
        Progress::Failed
    } else if direction == Direction::Failback {
        if was_isolated { Progress::InProgress } else { Progress::Aborting }
    } else if is_started(Step::WorkerUpdated) {
        Progress::InProgress
    } else {
        Progress::Pending
    };
    (direction, progress)
}

const FAILOVER: &[Step] = &[
    Step::IsolationRecorded,
    Step::ZoneKnown,
    Step::CapacitySuffices,
    Step::NodesCordoned,
    Step::WorkerUpdated,
    Step::MachinesGone,
    Step::SubnetIsolated,
];
const FAILBACK: &[Step] =
    &[Step::SubnetFound, Step::SubnetReleased, Step::WorkerRestored, Step::NodesUncordoned];

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const LIMITS: Limits = Limits { step: Duration::from_secs(600), drain: Duration::from_secs(3_600) };

    fn at(now: u64, steps: &[(Step, State)], was_isolated: bool) -> (Direction, Progress) {
        let record = |state| Record { state, started: Some(Time(100)), ..Record::pending() };
        let records: BTreeMap<Step, Record> =
            steps.iter().map(|(step, state)| (*step, record(*state))).collect();
        progress(|step| records.get(&step), was_isolated, (Time(now), LIMITS))
    }

    #[test]
    fn status_tells_direction_and_progress() {
        use Direction::{Failback, Failover};
        use State::{Running, Succeeded};
        assert_eq!(at(100, &[], false), (Failover, Progress::Pending));
        let grows = [(Step::CapacitySuffices, Succeeded), (Step::WorkerUpdated, Running)];
        assert_eq!(at(100, &grows, false), (Failover, Progress::InProgress));
        assert_eq!(at(701, &grows, false), (Failover, Progress::Failed));
        let drains = [(Step::WorkerUpdated, Succeeded), (Step::MachinesGone, Running)];
        assert_eq!(at(4_300, &drains, false), (Failover, Progress::InProgress));
        assert_eq!(at(4_301, &drains, false), (Failover, Progress::Failed));
        let isolated = [(Step::WorkerUpdated, Succeeded), (Step::SubnetIsolated, Succeeded)];
        assert_eq!(at(9_000, &isolated, true), (Failover, Progress::Done));
        // Machines are there again.
        let again = [isolated.as_slice(), &[(Step::ZoneKeptEmpty, Running)]].concat();
        assert_eq!(at(9_000, &again, true), (Failover, Progress::InProgress));
        let ended = [(Step::IsolationEnds, Succeeded), (Step::SubnetReleased, Running)];
        assert_eq!(at(100, &ended, true), (Failback, Progress::InProgress));
        assert_eq!(at(100, &ended, false), (Failback, Progress::Aborting));
        assert_eq!(at(701, &ended, true), (Failback, Progress::Failed));
        let closed = [(Step::IsolationEnds, Succeeded), (Step::IsolationClosed, Succeeded)];
        assert_eq!(at(701, &closed, true), (Failback, Progress::Done));
    }
}
