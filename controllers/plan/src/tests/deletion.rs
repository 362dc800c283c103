//! The HostedEtcd is deleted in each step of a workflow.

use repot_apimachinery::time::Time;

use super::{
    cluster::{Kind, NEVER, REPLICAS, Truth, calm, old_set, sound},
    rng::Rng,
    sim::{Build, Model},
};
use crate::{
    etcd::{
        EtcdLedger, HOSTED_ETCD_DELETED, Step,
        effect::Effect,
        observed::{Cluster, Lock},
    },
    flow::Input,
    ledger::{Phase, State},
};

/// What happens to the HostedEtcd, beside its deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nothing,
    /// Somebody removes the finalizer by hand.
    Released,
    /// Its namespace is deleted.
    Namespace,
}

struct Run {
    build: Build<Truth>,
    truth: Truth,
    ledger: EtcdLedger,
}

fn mk_run(kind: Kind) -> Run {
    let mut truth = Truth::with(Rng::new(11), calm());
    if kind == Kind::Restore {
        truth.add_backup("from");
    }
    Run { build: sound(kind), truth, ledger: EtcdLedger::default() }
}

impl Run {
    fn step(&mut self) {
        self.truth.pass(&self.ledger);
        let (observed, seen) = self.truth.look();
        let decision =
            Truth::decide(&self.build, &Input::alone(&observed, &self.ledger, Time(self.truth.now)));
        if let Some(records) = decision.records {
            self.ledger = records;
        }
        decision.effects.iter().for_each(|effect| self.truth.change(effect, &seen, true));
    }

    /// Passes until this holds; whether it ever does.
    fn until(&mut self, holds: impl Fn(&Self) -> bool) -> bool {
        (0..4_000).any(|_| {
            holds(self) || {
                self.step();
                false
            }
        })
    }

    fn delete_cluster(&mut self, beside: Beside) {
        self.truth.trouble.cluster_gone_at = self.truth.now;
        match beside {
            Beside::Nothing => {}
            Beside::Released => self.truth.trouble.released_by_hand_at = Some(0),
            Beside::Namespace => self.truth.trouble.with_namespace = true,
        }
    }

    /// The workflow is over, and has given back what it held.
    fn is_over(&self) -> bool {
        let truth = &self.truth;
        let gives_back = truth.request.finalizer || truth.cluster_finalizer || truth.lock == Lock::Ours;
        self.ledger.phase.is_end() && !gives_back && truth.cluster != Cluster::Deleting
    }

    /// API servers and etcd are there, on the old volumes where the workflow went back.
    fn is_whole(&self) -> bool {
        let (truth, succeeded) = (&self.truth, self.ledger.phase == Phase::Succeeded);
        let set = truth.sts.as_ref().map(|sts| &sts.deployed.volumes);
        let expected = if succeeded { self.ledger.notes.new.clone() } else { Some(old_set()) };
        truth.api.wanted == REPLICAS && set == expected.as_ref()
    }
}

/// A run in which the HostedEtcd is deleted when the step is in this state, to its end.
fn deleted_in(kind: Kind, step: Step, state: State, beside: Beside) -> Run {
    let mut run = mk_run(kind);
    let what = format!("{kind:?}, {step} {state:?}, {beside:?}");
    assert!(run.until(|run| run.ledger.state(step) == state), "{what} is never reached");
    run.delete_cluster(beside);
    let since = run.truth.now;
    assert!(run.until(Run::is_over), "{what} is held up: {:#?}", run.ledger);
    let took = run.truth.now - since;
    assert!(took < 3600, "{what} took {took} seconds");
    run
}

#[test]
fn a_workflow_goes_back_or_ends_before_its_hosted_etcd_goes() {
    for kind in [Kind::Restore, Kind::Migration] {
        let plan = sound(kind).plans.newest();
        let at = |step| plan.forward.iter().position(|row| row.step == step).expect("a step");
        for row in plan.forward {
            for (state, beside) in [State::Running, State::Succeeded]
                .into_iter()
                .flat_map(|state| [Beside::Nothing, Beside::Released].map(|beside| (state, beside)))
            {
                // Rows that are reached at once are never seen running.
                if state == State::Running && !is_ever_running(kind, row.step) {
                    continue;
                }
                let run = deleted_in(kind, row.step, state, beside);
                let what = format!("{kind:?}, {} {state:?}, {beside:?}: {:?}", row.step, run.ledger);
                assert!(run.is_whole(), "{what}");
                let begun = at(row.step) > 0 || state == State::Succeeded;
                let expected = match (at(row.step) >= at(Step::ApiUp), begun) {
                    (true, _) => Phase::Succeeded,
                    (false, true) => Phase::RolledBack,
                    (false, false) => Phase::Cancelled,
                };
                // The row before is reached in the pass that begins the point of no return.
                let reached = run.ledger.is_started(Step::ApiUp) && run.ledger.phase == Phase::Succeeded;
                assert!(run.ledger.phase == expected || reached, "{what}");
                assert!(reached || run.ledger.reason == HOSTED_ETCD_DELETED, "{what}");
            }
        }
    }
}

fn is_ever_running(kind: Kind, step: Step) -> bool {
    mk_run(kind).until(|run| run.ledger.state(step) == State::Running)
}

#[test]
fn a_namespace_is_not_held_up_by_what_was_deleted_with_it() {
    for kind in [Kind::Restore, Kind::Migration] {
        for (step, state, reason) in [
            (Step::ApiDown, State::Running, "ApiServersMissing"),
            (Step::EtcdDeleted, State::Succeeded, "VolumesMissing"),
            (Step::EtcdRestored, State::Running, "VolumesMissing"),
            (Step::ApiUp, State::Running, "ApiServersMissing"),
        ] {
            let run = deleted_in(kind, step, state, Beside::Namespace);
            assert_eq!((run.ledger.phase, run.ledger.reason.as_str()), (Phase::Failed, reason), "{step}");
            let told = run.ledger.message.contains("there were 2 API servers");
            assert!(told, "{step}: {}", run.ledger.message);
        }
    }
}

#[test]
fn nothing_is_started_on_a_hosted_etcd_that_is_being_deleted() {
    // Before the lock, and between the lock and the finalizer.
    for locked in [false, true] {
        let mut run = mk_run(Kind::Migration);
        assert!(run.until(|run| !locked || run.truth.lock == Lock::Ours));
        assert!(!run.truth.cluster_finalizer && !run.ledger.notes.locked);
        // Somebody else's finalizer keeps it for a while.
        run.truth.trouble.kept_until = run.truth.now + 200;
        run.delete_cluster(Beside::Nothing);
        assert!(run.until(Run::is_over));
        let ended = (run.ledger.phase, run.ledger.reason.as_str(), run.ledger.message.as_str());
        assert_eq!(ended.0, Phase::Cancelled, "{:?}", run.ledger);
        assert!(ended.1 == HOSTED_ETCD_DELETED && ended.2.contains("nothing was changed"), "{ended:?}");
        assert!(run.is_whole() && run.ledger.notes.api_replicas.is_none());
    }
}

#[test]
fn a_backup_never_holds_its_hosted_etcd() {
    for step in sound(Kind::Backup).plans.newest().forward.iter().map(|row| row.step) {
        let mut run = mk_run(Kind::Backup);
        assert!(run.until(|run| run.ledger.state(step) == State::Succeeded), "{step}");
        assert!(!run.truth.cluster_finalizer, "{step}");
        run.delete_cluster(Beside::Nothing);
        run.step();
        assert_eq!(run.truth.cluster, Cluster::Gone, "{step}");
        assert!(run.until(Run::is_over), "{step}");
    }
}

#[test]
fn a_finalizer_that_is_removed_by_hand_is_set_again_before_the_next_step() {
    let mut run = mk_run(Kind::Migration);
    assert!(run.until(|run| run.ledger.state(Step::BackupTaken) == State::Succeeded));
    run.truth.trouble.released_by_hand_at = Some(0);
    run.step();
    run.truth.trouble.released_by_hand_at = None;
    assert!(!run.truth.cluster_finalizer && run.truth.released_by_hand);
    assert!(run.until(|run| run.truth.cluster_finalizer));
    assert_eq!(run.ledger.steps[&Step::LockTaken].attempts, 2);
    assert!(run.until(Run::is_over) && run.ledger.phase == Phase::Succeeded);
}

/// The lock is lost for good when there is no way back any more.
#[test]
fn a_lost_lock_never_leads_back_from_behind_the_point_of_no_return() {
    let mut run = mk_run(Kind::Migration);
    assert!(run.until(|run| run.ledger.state(Step::ApiUp) == State::Succeeded));
    run.truth.lock = Lock::Other("EtcdBackup thief".into());
    run.truth.trouble.rival_until = NEVER;
    assert!(run.until(|run| run.ledger.phase.is_end()));
    assert_eq!((run.ledger.phase, run.ledger.reason.as_str()), (Phase::Failed, "AnotherWorkflow"));
    let (observed, _) = run.truth.look();
    let input = Input::alone(&observed, &run.ledger, Time(run.truth.now));
    let asked = Truth::decide(&run.build, &input).effects;
    assert!(asked.iter().all(|effect| matches!(effect, Effect::EnsureFinalizer { .. })), "{asked:?}");
}
