//! A small flow over two clusters, as an example: a server moves with its data. `docs/design/adding-a-flow.md` explains it.

mod clusters;
mod faults;
mod flow;
mod rules;

use clusters::Clusters;
use flow::{MOVE, Mode, Move, PLANS, Side, Step};
use repot_apimachinery::time::Time;

use super::sim::{Build, missed, schedules};
use crate::{
    flow::{Abort, Evidence, Input, LedgerOf, Plans, decide},
    ledger::{Phase, Record, State},
};

/// As many schedules as a fault may hide in.
const SCHEDULES: u64 = 4_000;

fn mode(seed: u64) -> Mode {
    if seed.is_multiple_of(4) { Mode::Forced } else { Mode::Planned }
}

fn sound(mode: Mode) -> Build<Clusters> {
    Build::new(mode, &PLANS)
}

#[test]
fn tables_have_a_sound_form() {
    for plan in PLANS.versions.iter().chain(UPGRADED.versions) {
        assert_eq!(plan.problems(), [""; 0], "version {}", plan.version);
    }
}

#[test]
fn every_schedule_comes_to_a_good_end() {
    let (count, ends) = schedules::<Clusters>(4, |seed| sound(mode(seed)));
    for end in ["Planned Succeeded", "Planned RolledBack", "Planned Cancelled", "Forced Succeeded"] {
        let found = ends.get(end).copied().unwrap_or_default();
        assert!(found >= count / 100, "{found} schedules ended in {end}: {ends:#?}");
    }
}

/// Another version: the row order differs, so an unfinished move would not survive it.
static UPGRADED: Plans<Move> = Plans { versions: &[&MOVE, &flow::MOVE_2] };

#[test]
fn controllers_are_upgraded_in_the_middle() {
    let build = |seed| Build { upgrade: Some(&UPGRADED), ..sound(mode(seed)) };
    let (count, ends) = schedules::<Clusters>(4, build);
    for end in ["Planned Succeeded", "Planned Succeeded by version 2", "Planned RolledBack by version 2"] {
        let found = ends.get(end).copied().unwrap_or_default();
        assert!(found >= count / 200, "{found} schedules ended in {end}: {ends:#?}");
    }
}

#[test]
fn schedules_find_every_planted_fault() {
    let missed = missed(faults::FAULTS.iter(), sound, SCHEDULES);
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

fn record(state: State, at: u64) -> Record {
    Record { state, started: Some(Time(at)), completed: Some(Time(at)), attempts: 1, ..Record::pending() }
}

fn ledger(phase: Phase, steps: &[(Step, State)]) -> LedgerOf<Move> {
    let steps = steps.iter().map(|(step, state)| (*step, record(*state, 1_000))).collect();
    let (started, observed) = (Some(Time(1_000)), Some(Time(1_000)));
    LedgerOf::<Move> { version: 1, phase, started, observed, steps, ..LedgerOf::<Move>::default() }
}

/// What a side decides.
fn next(
    side: Side,
    now: u64,
    own: &LedgerOf<Move>,
    others: &Evidence<Move>,
    change: impl Fn(&mut flow::Observed),
) -> LedgerOf<Move> {
    let mut observed = flow::Observed::default();
    change(&mut observed);
    let input = Input { side, observed: &observed, ledger: own, others, now: Time(now) };
    decide(&PLANS, &input).records.unwrap_or_else(|| own.clone())
}

const REACHED: State = State::Succeeded;

#[test]
fn a_row_that_waits_stops_only_those_behind_it() {
    let own = ledger(Phase::Running, &[(Step::BucketReadable, REACHED), (Step::WarmCopied, REACHED)]);
    let source = ledger(Phase::Running, &[(Step::WriterStopped, REACHED), (Step::Exported, REACHED)]);
    let next = next(Side::Destination, 1_010, &own, &[(Side::Source, source)], |_| {});
    // Both of them wait for the export alone; what is behind them has not started.
    for (step, state) in [
        (Step::OwnerMoved, State::Running),
        (Step::Imported, State::Running),
        (Step::LeaseExpired, State::Pending),
        (Step::Serving, State::Pending),
    ] {
        assert_eq!(next.state(step), state, "{step}");
    }
    assert_eq!(next.message.split(':').next(), Some("OwnerMoved"), "{}", next.message);
}

#[test]
fn a_row_that_does_not_apply_is_left_out() {
    let own = ledger(Phase::Running, &[(Step::BucketReadable, REACHED)]);
    let found = next(Side::Destination, 1_010, &own, &[], |observed| observed.is_large = false);
    assert_eq!(found.state(Step::WarmCopied), State::Skipped);
    assert!(!found.is_started(Step::WarmCopied), "nothing was requested for it");
    let found = next(Side::Destination, 1_010, &own, &[], |observed| observed.is_large = true);
    assert_eq!(found.state(Step::WarmCopied), State::Running);
}

#[test]
fn a_time_follows_from_what_was_observed() {
    let mut steps =
        vec![(Step::OwnerMoved, REACHED), (Step::Imported, REACHED), (Step::LeaseExpired, State::Running)];
    steps.extend([(Step::BucketReadable, REACHED), (Step::WarmCopied, REACHED)]);
    let own = ledger(Phase::Running, &steps);
    let source = ledger(Phase::Running, &[(Step::WriterStopped, REACHED), (Step::Exported, REACHED)]);
    let wait = flow::LEASE.as_secs();
    let at = |now| {
        let change = |observed: &mut flow::Observed| observed.owner = Some((Side::Destination, 2));
        next(Side::Destination, now, &own, &[(Side::Source, source.clone())], change)
    };
    assert_eq!(at(1_000 + wait - 1).state(Step::LeaseExpired), State::Running);
    assert_eq!(at(1_000 + wait).state(Step::LeaseExpired), REACHED);
}

#[test]
fn a_silent_side_stops_only_the_rows_that_need_it() {
    let mut own = ledger(Phase::Running, &[(Step::WriterStopped, REACHED), (Step::Exported, State::Running)]);
    own.notes.writers = Some(1);
    let destination = ledger(Phase::Running, &[(Step::BucketReadable, REACHED), (Step::WarmCopied, REACHED)]);
    let limit = MOVE.side_limit.as_secs();
    let now = 1_000 + limit + 1;
    let exported = |observed: &mut flow::Observed| observed.exported = Some(0);
    let exporting = own.steps.get_mut(&Step::Exported).expect("a record");
    exporting.started = Some(Time(now - 10));
    // Its own row goes on as long as it needs; only what is behind the silent side's rows is given up.
    let found = next(Side::Source, now, &own, &[(Side::Destination, destination.clone())], |_| {});
    assert_eq!((found.phase, found.state(Step::Exported)), (Phase::Running, State::Running));
    let found = next(Side::Source, now, &own, &[(Side::Destination, destination.clone())], exported);
    assert_eq!(found.state(Step::Exported), REACHED);
    assert_eq!((found.phase, found.reason.as_str()), (Phase::RollingBack, "OtherSideSilent"), "{found:?}");
    // One that shows that it is alive is waited for.
    let alive = LedgerOf::<Move> { observed: Some(Time(now - 10)), ..destination };
    let found = next(Side::Source, now, &own, &[(Side::Destination, alive)], exported);
    assert_eq!((found.phase, found.reason.as_str()), (Phase::Running, "WaitingForOtherSide"));
    assert!(found.message.contains("of the destination"), "{}", found.message);
}

#[test]
fn an_abort_is_a_request_that_may_be_refused_and_can_be_forced() {
    let steps = [(Step::WriterStopped, REACHED), (Step::Exported, State::Running)];
    let mut own = ledger(Phase::Running, &steps);
    own.notes.writers = Some(1);
    let other = ledger(Phase::Running, &[(Step::BucketReadable, REACHED), (Step::WarmCopied, REACHED)]);
    let others = [(Side::Destination, other)];
    let ask = |abort, is_locked| {
        next(Side::Source, 1_010, &own, &others, |observed| {
            (observed.abort, observed.is_abort_locked) = (abort, is_locked);
        })
    };
    assert_eq!(ask(Abort::Abort, false).phase, Phase::RollingBack);
    let refused = ask(Abort::Abort, true);
    assert_eq!(refused.phase, Phase::Running);
    assert!(refused.message.contains("not aborted: the move is locked"), "{}", refused.message);
    assert_eq!(ask(Abort::Force, true).phase, Phase::RollingBack);
    // Past the point of no return neither comes through.
    let past = [(Side::Destination, ledger(Phase::Running, &[(Step::Serving, State::Running)]))];
    for abort in [Abort::Abort, Abort::Force] {
        let found = next(Side::Source, 1_010, &own, &past, |observed| observed.abort = abort);
        assert_eq!(found.phase, Phase::Running);
    }
}

#[test]
fn a_side_follows_another_one_that_rolls_back() {
    let mut own = ledger(Phase::Running, &[(Step::WriterStopped, REACHED)]);
    own.notes.writers = Some(1);
    let mut other = ledger(Phase::RollingBack, &[]);
    "NoRoom".clone_into(&mut other.reason);
    "the volume is full".clone_into(&mut other.message);
    let found = next(Side::Source, 1_010, &own, &[(Side::Destination, other)], |_| {});
    assert_eq!((found.phase, found.reason.as_str()), (Phase::RollingBack, "NoRoom"));
    assert_eq!(found.message, "the destination rolls back: the volume is full");
}

#[test]
fn a_running_side_shows_that_it_is_alive() {
    let own = ledger(Phase::Running, &[(Step::WriterStopped, REACHED), (Step::Exported, REACHED)]);
    let other = ledger(Phase::Running, &[(Step::BucketReadable, REACHED), (Step::WarmCopied, REACHED)]);
    let at = |now| next(Side::Source, now, &own, &[(Side::Destination, other.clone())], |_| {}).observed;
    assert_eq!(at(1_000 + crate::flow::HEARTBEAT.as_secs()), Some(Time(1_060)));
}
