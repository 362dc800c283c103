//! One certain fault in one certain row: what a row of the page of faults is computed from.

use super::clusters::Clusters;
use crate::{
    classic::PLAN,
    flow::{Decision, Row, StepContext},
    ledger::{Phase, State},
    migration::{MigrationFlow, Side, Step, effect::Effect, observed::Observed},
    tests::sim::{Fate, Ledgers, NEVER},
};

/// What goes wrong while a row is worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowFault {
    /// Requests of the row are refused for five minutes.
    Refused,
    /// They are refused without end.
    AlwaysRefused,
    /// The first pass that requests them loses them on the way.
    Lost,
    /// Those of the first minute arrive ten minutes later.
    Late,
    /// Each arrives at once, after ten minutes, and after two hours.
    Repeated,
    /// The controller is killed before it records that the row starts.
    KilledBeforeRecord,
    /// It is killed between the record and the first request.
    KilledBeforeEffect,
    /// It is killed after the first request.
    KilledAfterEffect,
    /// The kube-apiserver that the row's controller acts on does not answer for a minute.
    OwnApiAway,
    /// The kube-apiserver of the garden does not answer for a minute.
    GardenApiAway,
    /// The source has no link to the garden for fifteen minutes.
    SourceCut,
    /// The destination has no link to the garden for fifteen minutes.
    DestinationCut,
    /// No server of the zone answers anybody for fifteen minutes.
    ZoneCut,
    /// The destination has no link to the bucket of the source for fifteen minutes.
    BucketCut,
    /// `spec.abort` is set when the row starts.
    Aborted,
}

/// A fault in a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Script {
    pub(super) step: Step,
    pub(super) fault: RowFault,
}

const MINUTE: u64 = 60;
/// How long a killed controller is away.
const RESTART: u64 = MINUTE;
const CUT: u64 = 15 * MINUTE;
/// Step of the destination at which a migration is aborted whose rollback is looked at: everything has to be rolled back by then.
const TURNING_POINT: Step = Step::EtcdServes;

/// A script that is played.
pub(super) struct Play {
    script: Script,
    row: &'static Row<MigrationFlow>,
    is_of_rollback: bool,
    /// When the row was started.
    pub(super) begun: Option<u64>,
    /// What the row requests in this pass.
    targets: Vec<Effect>,
    /// When something went wrong for the first time.
    pub(super) struck: Option<u64>,
}

impl Play {
    pub(super) fn new(script: Script) -> Self {
        let find = |rows: &'static [Row<MigrationFlow>]| rows.iter().find(|row| row.step == script.step);
        let is_of_rollback = find(PLAN.forward).is_none();
        let row = find(PLAN.forward).or_else(|| find(PLAN.rollback)).expect("a row of the plan");
        Self { script, row, is_of_rollback, begun: None, targets: Vec::new(), struck: None }
    }

    /// Before a side records and acts.
    pub(super) fn interrupt(
        &mut self,
        clusters: &mut Clusters,
        (side, observed): (Side, &Observed),
        ledgers: &Ledgers<Clusters>,
        decision: &mut Decision<MigrationFlow>,
    ) {
        self.turn(clusters, ledgers);
        if side != self.row.side {
            return;
        }
        let ledger = &ledgers[&side];
        let is_here = (ledger.phase == Phase::RollingBack) == self.is_of_rollback;
        let state = ledger.state(self.script.step);
        let next = decision.records.as_ref().map_or(state, |next| next.state(self.script.step));
        self.targets.clear();
        if is_here && state == State::Running {
            let others: Vec<_> =
                ledgers.iter().filter(|(other, _)| **other != side).map(|(s, l)| (*s, l.clone())).collect();
            let now = repot_apimachinery::time::Time(clusters.now);
            let context = StepContext { now, observed, notes: &ledger.notes, ledger, others: &others };
            self.targets = (self.row.effects)(&context);
        }
        let is_worked_on = matches!(next, State::Running | State::Succeeded | State::Failed);
        if is_here && is_worked_on && self.struck.is_none() {
            self.begun.get_or_insert(clusters.now);
            self.strike(clusters, state, decision);
        }
    }

    /// A rollback begins where all of it has something to do.
    fn turn(&self, clusters: &mut Clusters, ledgers: &Ledgers<Clusters>) {
        let is_there = ledgers[&Side::Destination].is_started(TURNING_POINT);
        if self.is_of_rollback && is_there && clusters.abort_at == NEVER {
            clusters.abort_at = clusters.now;
        }
    }

    /// The row is being started or runs.
    fn strike(&mut self, clusters: &mut Clusters, state: State, decision: &mut Decision<MigrationFlow>) {
        let (now, side) = (clusters.now, self.row.side);
        match self.script.fault {
            RowFault::KilledBeforeRecord => clusters.leave(&[side], RESTART),
            // All others come when the start of the row is recorded.
            _ if state == State::Pending => return,
            // A row that is reached at once has no such moment.
            RowFault::KilledBeforeEffect | RowFault::KilledAfterEffect if state != State::Running => return,
            RowFault::KilledBeforeEffect => clusters.leave(&[side], RESTART),
            RowFault::KilledAfterEffect => {
                clusters.leave(&[side], RESTART);
                self.struck = Some(now);
                return;
            }
            RowFault::OwnApiAway => clusters.leave(&[side], MINUTE),
            RowFault::GardenApiAway => {
                clusters.leave(&[Side::Garden, Side::Source, Side::Destination], MINUTE)
            }
            RowFault::SourceCut => clusters.leave(&[Side::Source], CUT),
            RowFault::DestinationCut => clusters.leave(&[Side::Destination], CUT),
            RowFault::ZoneCut => clusters.zone.silent = (now, now + CUT),
            RowFault::BucketCut => clusters.trouble.bucket_cut = (now, now + CUT),
            RowFault::Aborted => clusters.abort_at = now,
            // What is done to effects is done where they are requested.
            RowFault::Refused
            | RowFault::AlwaysRefused
            | RowFault::Lost
            | RowFault::Late
            | RowFault::Repeated => return,
        }
        self.struck = Some(now);
        // Who is away in this moment records nothing, and does nothing.
        if clusters.is_side_away(side) {
            *decision = Decision { effects: Vec::new(), records: None, requeue: decision.requeue };
        }
    }

    /// What becomes of an effect.
    pub(super) fn fate(&mut self, now: u64, side: Side, effect: &Effect) -> Option<Fate> {
        let is_target = side == self.row.side && self.targets.contains(effect);
        let fate = match self.script.fault {
            RowFault::AlwaysRefused if is_target => Fate::Lost,
            RowFault::Refused if is_target && self.is_within(now, 5 * MINUTE) => Fate::Lost,
            RowFault::Lost if is_target && self.is_within(now, 1) => Fate::Lost,
            RowFault::Late if is_target && self.is_within(now, MINUTE) => Fate::Late(10 * MINUTE),
            RowFault::Repeated if is_target => Fate::Again(&[600, 7_200]),
            _ => return Some(Fate::Again(&[])),
        };
        self.struck.get_or_insert(now);
        Some(fate)
    }

    /// Whether somebody has to help: the fault has no end.
    pub(super) fn is_without_end(&self) -> bool {
        self.script.fault == RowFault::AlwaysRefused
    }

    fn is_within(&self, now: u64, period: u64) -> bool {
        self.struck.is_none_or(|struck| now < struck + period)
    }
}
