//! Controllers are upgraded in the middle of a workflow: it goes to its end by the version of the tables that started it.

use repot_apimachinery::time::Time;

use super::{
    cluster::{Kind, NEVER, REPLICAS, Truth, calm, old_set, sound},
    rng::Rng,
    sim::{Build, Model, schedules},
};
use crate::{
    etcd::{EtcdFlow, EtcdLedger, Step},
    flow::{Input, Plan, Plans, Row},
    ledger::{Check, Phase, State},
    status::{Error, from_status, to_status},
};

/// Version 2 of a kind, beside version 1. An unfinished workflow of version 1 would not survive it: it knows nothing of the notes of
/// version 1, and its rows stand in another order.
fn upgraded(plans: &Plans<EtcdFlow>) -> &'static Plans<EtcdFlow> {
    let old: &'static Plan<EtcdFlow> = plans.newest();
    let mut forward: Vec<Row<EtcdFlow>> = old.forward.to_vec();
    let last = forward.len() - 1;
    for row in &mut forward {
        row.check = |_| Check::blocked("Version2", "a workflow of version 1 is worked on by version 2");
    }
    forward.swap(0, last);
    let new = Plan { version: 2, forward: forward.leak(), rollback: &[], point_of_no_return: None, ..*old };
    Box::leak(Box::new(Plans { versions: Box::leak(Box::new([old, Box::leak(Box::new(new))])) }))
}

/// Version 2 of a kind with the rows of version 1, beside version 1.
fn relabelled(plans: &Plans<EtcdFlow>) -> &'static Plans<EtcdFlow> {
    let old: &'static Plan<EtcdFlow> = plans.newest();
    let new = Plan { version: 2, ..*old };
    Box::leak(Box::new(Plans { versions: Box::leak(Box::new([old, Box::leak(Box::new(new))])) }))
}

struct Run {
    build: Build<Truth>,
    truth: Truth,
    ledger: EtcdLedger,
}

impl Run {
    fn new(kind: Kind) -> Self {
        let mut truth = Truth::with(Rng::new(13), calm());
        if kind == Kind::Restore {
            truth.add_backup("from");
        }
        Self { build: sound(kind), truth, ledger: EtcdLedger::default() }
    }

    /// A pass, with the ledger as its status.
    fn step(&mut self) {
        self.truth.pass(&self.ledger);
        let (observed, seen) = self.truth.look();
        let input = Input::alone(&observed, &self.ledger, Time(self.truth.now));
        let decision = Truth::decide(&self.build, &input);
        if let Some(next) = &decision.records {
            let plans = self.build.plans;
            let plan = plans.of(next.version).unwrap_or(plans.newest());
            self.ledger = from_status(plans, &to_status(plan, next)).expect("a status");
        }
        decision.effects.iter().for_each(|effect| self.truth.change(effect, &seen, true));
    }

    fn until(&mut self, holds: impl Fn(&Self) -> bool) -> bool {
        (0..4_000).any(|_| {
            holds(self) || {
                self.step();
                false
            }
        })
    }
}

/// A workflow that was upgraded when its step was in this state, at its end; `None` where the step is never seen so.
fn upgraded_in(kind: Kind, step: Step, state: State, prepare: fn(&mut Truth)) -> Option<Run> {
    let mut run = Run::new(kind);
    prepare(&mut run.truth);
    if !run.until(|run| run.ledger.state(step) == state) {
        return None;
    }
    run.build.plans = upgraded(run.build.plans);
    assert!(run.until(|run| run.ledger.phase.is_end()), "{kind:?} {step} {state:?}: {:#?}", run.ledger);
    assert_eq!(run.ledger.version, 1);
    Some(run)
}

#[test]
fn an_upgrade_at_each_step_changes_nothing() {
    for kind in [Kind::Backup, Kind::Restore, Kind::Migration] {
        let mut seen = 0;
        for row in sound(kind).plans.newest().forward {
            for state in [State::Running, State::Succeeded] {
                let Some(run) = upgraded_in(kind, row.step, state, |_| {}) else { continue };
                seen += 1;
                let what = format!("{kind:?} {} {state:?}: {:#?}", row.step, run.ledger);
                assert_eq!(run.ledger.phase, Phase::Succeeded, "{what}");
                assert_eq!(run.truth.api.wanted, REPLICAS, "{what}");
                // A restore gives up what came after its backup.
                let is_whole = kind == Kind::Restore || run.truth.broken.is_none();
                assert!(is_whole, "{what}: {:?}", run.truth.broken);
            }
        }
        // Each step is seen reached, and most of them are seen running before.
        assert!(seen > sound(kind).plans.newest().forward.len(), "{kind:?}: {seen}");
    }
}

#[test]
fn an_upgrade_during_a_rollback_changes_nothing() {
    for kind in [Kind::Restore, Kind::Migration] {
        let mut seen = 0;
        for row in sound(kind).plans.newest().rollback {
            for state in [State::Running, State::Succeeded] {
                let no_room = |truth: &mut Truth| truth.trouble.no_room = true;
                let Some(run) = upgraded_in(kind, row.step, state, no_room) else { continue };
                seen += 1;
                let what = format!("{kind:?} {} {state:?}: {:#?}", row.step, run.ledger);
                assert_eq!(run.ledger.phase, Phase::RolledBack, "{what}");
                let set = run.truth.sts.as_ref().map(|sts| sts.deployed.volumes.clone());
                assert_eq!((run.truth.api.wanted, set), (REPLICAS, Some(old_set())), "{what}");
            }
        }
        assert!(seen >= sound(kind).plans.newest().rollback.len(), "{kind:?}: {seen}");
    }
}

#[test]
fn what_starts_after_the_upgrade_goes_by_the_new_version() {
    let mut run = Run::new(Kind::Migration);
    run.build.plans = upgraded(run.build.plans);
    run.truth.trouble.cancel_at = NEVER;
    assert!(run.until(|run| run.ledger.phase.is_end()));
    assert_eq!((run.ledger.version, run.ledger.reason.as_str()), (2, "Version2"));
}

#[test]
fn a_workflow_of_a_newer_version_is_left_alone() {
    let mut run = Run::new(Kind::Migration);
    assert!(run.until(|run| run.ledger.state(Step::BackupTaken) == State::Running));
    run.ledger.version = 2;
    let (observed, _) = run.truth.look();
    let input = Input::alone(&observed, &run.ledger, Time(run.truth.now));
    let decision = Truth::decide(&run.build, &input);
    let records = decision.records.expect("a message");
    assert!(decision.effects.is_empty() && records.steps == run.ledger.steps);
    assert_eq!((records.phase, &records.notes), (Phase::Running, &run.ledger.notes));
    // Its status may have steps and fields that are unknown here, so it is not even read.
    let plans = upgraded(run.build.plans);
    let mut status = to_status(plans.newest(), &run.ledger);
    status["steps"][0]["name"] = "StepOfVersion2".into();
    let Err(Error::Version(message)) = from_status(run.build.plans, &status) else { panic!("it was read") };
    for words in ["version 2 of the plan", "versions up to 1", "upgrade this controller"] {
        assert!(message.contains(words) && records.message.contains(words), "{message}");
    }
}

#[test]
fn controllers_are_upgraded_in_the_middle_of_many_schedules() {
    let all = [Kind::Backup, Kind::Restore, Kind::Migration];
    let plans = all.map(|kind| relabelled(sound(kind).plans));
    let build = |seed: u64| {
        let at = usize::try_from(seed % 3).expect("small");
        Build { upgrade: Some(plans[at]), ..sound(all[at]) }
    };
    let (count, ends) = schedules::<Truth>(8, build);
    for end in ["Backup Succeeded", "Restore Succeeded", "Migration Succeeded", "Migration RolledBack"] {
        let found = ends.get(end).copied().unwrap_or_default();
        assert!(found >= count / 100, "{found} schedules ended in {end}: {ends:#?}");
    }
}
