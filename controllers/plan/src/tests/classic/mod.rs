//! Simulated classic migrations: a garden and two seeds, whose controllers crash, are cut off and act on stale caches.

mod again;
mod clusters;
mod defects;
mod effects;
mod faults;
mod gardenlet;
#[path = "../../../tests/golden/mod.rs"]
pub(super) mod golden;
mod life;
mod observe;
mod page;
mod people;
mod retries;
mod rules;
mod script;
pub(super) mod site;
mod superseded;
mod trouble;
pub(super) mod zone;

use clusters::{Clusters, Kind, Setup};
use repot_apimachinery::time::Time;

use super::{
    rng::Rng,
    sim::{Build, Ledgers, Model, NEVER, ends, missed},
};
use crate::{
    classic::{PLAN, PLANS},
    flow::{Abort, Input, LedgerOf, decide},
    ledger::{Phase, Record, State},
    migration::{
        MigrationFlow, Side, Step,
        observed::{Facts, GardenFacts, Observed, Workloads},
    },
};

/// How many schedules are run, and how many of them in the long form.
const SCHEDULES: u64 = 1_000;
const SOAK: u64 = 100_000;
/// As many schedules as a fault may hide in.
const HIDDEN: u64 = 2_000;

fn kind(seed: u64) -> Kind {
    match seed % 8 {
        0 => Kind::Hibernated,
        1 => Kind::Workerless,
        2 => Kind::OneMember,
        _ => Kind::Awake,
    }
}

fn sound(setup: Setup) -> Build<Clusters> {
    Build::new(setup, &PLANS)
}

#[test]
fn tables_have_a_sound_form() {
    for plan in PLANS.versions {
        assert_eq!(plan.problems(), [""; 0], "version {}", plan.version);
    }
}

#[test]
fn every_schedule_comes_to_a_good_end() {
    let count = golden::schedules(SCHEDULES, SOAK);
    let ends = ends::<Clusters>(count, |seed| sound(Setup::of(kind(seed))));
    for end in [
        "Awake Succeeded",
        "Awake RolledBack",
        "Awake Cancelled",
        "Hibernated Succeeded",
        "Workerless Succeeded",
    ] {
        let found = ends.get(end).copied().unwrap_or_default();
        assert!(found >= count / 100, "{found} schedules ended in {end}: {ends:#?}");
    }
    let again = ends.get("Awake Succeeded, tried again").copied().unwrap_or_default();
    assert!(again >= count / 1_000, "{again} schedules succeeded after a retry: {ends:#?}");
}

#[test]
fn schedules_find_every_planted_fault() {
    let missed = missed(faults::FAULTS.iter(), sound, HIDDEN);
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

fn ledger(reached: &[Step], observed: u64) -> LedgerOf<MigrationFlow> {
    let time = Some(Time(1_000));
    let record =
        Record { state: State::Succeeded, started: time, completed: time, attempts: 1, ..Record::pending() };
    let mut ledger = LedgerOf::<MigrationFlow> {
        version: 1,
        phase: Phase::Running,
        started: time,
        observed: Some(Time(observed)),
        steps: reached.iter().map(|step| (*step, record.clone())).collect(),
        ..LedgerOf::<MigrationFlow>::default()
    };
    ledger.notes.changed = true;
    ledger
}

/// What becomes of the garden, which waits for a destination that has recorded nothing for longer than `limit`.
fn after_silence(limit: u64, committed: bool) -> LedgerOf<MigrationFlow> {
    let mut clusters = Clusters::new(Setup::of(Kind::Awake), Rng::new(1));
    clusters.now = 1_000 + limit + 1;
    let (observed, _) = clusters.observe(Side::Garden);
    let own = ledger(&[Step::TurnTaken, Step::MigrationRecorded, Step::DestinationFit], clusters.now);
    let commit = [Step::MoveCommitted];
    let destination = ledger(if committed { &commit } else { &[] }, 1_000);
    // The source has done all that it can do.
    let all = PLAN.forward.iter().filter(|row| row.side == Side::Source).map(|row| row.step);
    let source = ledger(&all.collect::<Vec<_>>(), clusters.now);
    let others = [(Side::Destination, destination), (Side::Source, source)];
    let input = Input {
        side: Side::Garden,
        observed: &observed,
        ledger: &own,
        others: &others,
        now: Time(clusters.now),
    };
    decide(&PLANS, &input).records.unwrap_or(own)
}

#[test]
fn a_silent_side_is_waited_for_longer_once_the_migration_is_committed() {
    let (early, late) = (PLAN.side_limit.as_secs(), PLAN.committed_side_limit.as_secs());
    // `StatusMoved` of the garden fails where it is not reached; before the commit the migration rolls back all the same.
    let found = after_silence(early, false);
    assert_eq!((found.phase, found.reason.as_str()), (Phase::RollingBack, "OtherSideSilent"));
    assert_eq!(after_silence(early, true).phase, Phase::Running);
    let found = after_silence(late, true);
    assert_eq!((found.phase, found.reason.as_str()), (Phase::Failed, "OtherSideSilent"));
}

/// What a side decides at its first look.
fn first(side: Side, clusters: &mut Clusters, change: impl Fn(&mut Observed)) -> LedgerOf<MigrationFlow> {
    let (mut observed, _) = clusters.observe(side);
    change(&mut observed);
    let own = LedgerOf::<MigrationFlow> {
        version: 1,
        phase: Phase::Running,
        started: Some(Time(1_000)),
        ..LedgerOf::<MigrationFlow>::default()
    };
    let input = Input { side, observed: &observed, ledger: &own, others: &[], now: Time(clusters.now) };
    decide(&PLANS, &input).records.unwrap_or(own)
}

#[test]
fn a_migration_that_cannot_start_changes_nothing() {
    let change = |change: fn(&mut GardenFacts)| {
        let mut clusters = Clusters::new(Setup::of(Kind::Awake), Rng::new(1));
        let found = first(Side::Garden, &mut clusters, |observed| {
            if let Facts::Garden(facts) = &mut observed.facts {
                change(facts);
            }
        });
        assert!(found.message.contains("nothing was changed"), "{}", found.message);
        (found.phase, found.reason)
    };
    let found = change(|facts| facts.other_migration = Some("first".into()));
    assert_eq!(found, (Phase::RolledBack, "AnotherMigration".to_owned()));
    let found = change(|facts| facts.status_seed = "seed-c".into());
    assert_eq!(found, (Phase::RolledBack, "NotAtSource".to_owned()));
}

#[test]
fn a_migration_waits_for_its_turn_and_changes_nothing_meanwhile() {
    let mut clusters = Clusters::new(Setup::of(Kind::Awake), Rng::new(1));
    clusters.queued_until = NEVER;
    let look = |clusters: &mut Clusters, own: &LedgerOf<MigrationFlow>, abort: Abort| {
        let (mut observed, _) = clusters.observe(Side::Garden);
        (observed.request.finalizer, observed.request.abort) = (true, abort);
        let now = Time(clusters.now);
        decide(&PLANS, &Input { side: Side::Garden, observed: &observed, ledger: own, others: &[], now })
    };
    let found = first(Side::Garden, &mut clusters, |observed| observed.request.finalizer = true);
    assert_eq!((found.phase, &*found.reason), (Phase::Running, "Queued"));
    assert!(found.message.contains("seed a has others"), "{}", found.message);
    clusters.now += 10 * 3600;
    let later = look(&mut clusters, &found, Abort::None);
    let waits = later.records.expect("a sign of life");
    assert_eq!((later.effects, waits.state(Step::ShootIgnored)), (Vec::new(), State::Pending));
    let aborted = look(&mut clusters, &waits, Abort::Abort).records.expect("an end");
    assert_eq!(aborted.phase, Phase::RollingBack);
    clusters.queued_until = 0;
    let begun = look(&mut clusters, &waits, Abort::None).records.expect("a turn");
    assert_eq!(
        (begun.state(Step::TurnTaken), begun.state(Step::ShootIgnored)),
        (State::Succeeded, State::Running)
    );
}

#[test]
fn a_pause_holds_nothing_while_the_api_is_stopped() {
    let all = |side| PLAN.forward.iter().filter(move |row| row.side == side).map(|row| row.step);
    let next = |last: Step| {
        let mut clusters = Clusters::new(Setup::of(Kind::Awake), Rng::new(1));
        clusters.advance(&Ledgers::<Clusters>::default());
        let (mut observed, _) = clusters.observe(Side::Source);
        observed.request.paused = true;
        if let Facts::Source(facts) = &mut observed.facts {
            facts.controllers = Workloads { fence: "u1/forward".into(), ..Workloads::default() };
            facts.unsynced = Some(1);
        }
        let reached: Vec<Step> = all(Side::Source).take_while(|step| *step != last).chain([last]).collect();
        let own = ledger(&reached, clusters.now);
        let destination = all(Side::Destination).take_while(|step| *step != Step::MoveCommitted);
        let others = [
            (Side::Garden, ledger(&all(Side::Garden).collect::<Vec<_>>(), clusters.now)),
            (Side::Destination, ledger(&destination.collect::<Vec<_>>(), clusters.now)),
        ];
        let now = Time(clusters.now);
        let input = Input { side: Side::Source, observed: &observed, ledger: &own, others: &others, now };
        decide(&PLANS, &input).records.expect("a record")
    };
    let found = next(Step::SourceServes);
    assert_eq!((found.state(Step::StateSynced), found.reason.as_str()), (State::Pending, "Paused"));
    let found = next(Step::SourceControllersStopped);
    assert_eq!(found.state(Step::FinalStateSynced), State::Running, "{found:?}");
}
