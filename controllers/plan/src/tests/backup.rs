//! Schedules, retention, and the deletion of an EtcdBackup.

use super::{
    cluster::{NEVER, Truth, UID, calm},
    rng::Rng,
};
use repot_apimachinery::{schedule::Schedule, time::Time};
use repot_etcd_core::retention::Retention;

use crate::{
    etcd::{
        EtcdLedger,
        backup::{DELETION_PATIENCE, Spec, decide},
        effect::Effect,
        observed::{Cluster, Lock},
    },
    flow::Input,
    ledger::Phase,
};

struct Run {
    truth: Truth,
    ledger: EtcdLedger,
    spec: Spec,
}

fn mk_run(schedule: &str) -> Run {
    let truth = Truth::with(Rng::new(3), calm());
    let spec = Spec {
        schedule: Schedule::parse(schedule).ok(),
        retention: Some(Retention::LimitBased(3)),
        delete_backups: true,
        created: Time(truth.now),
    };
    Run { truth, ledger: EtcdLedger::default(), spec }
}

impl Run {
    fn step(&mut self) -> Vec<Effect> {
        self.truth.pass(&self.ledger);
        let (observed, seen) = self.truth.look();
        let decision = decide(&self.spec, &Input::alone(&observed, &self.ledger, Time(self.truth.now)));
        if let Some(records) = decision.records {
            self.ledger = records;
        }
        decision.effects.iter().for_each(|effect| self.truth.change(effect, &seen, true));
        decision.effects
    }

    fn steps(&mut self, passes: u32) {
        (0..passes).for_each(|_| drop(self.step()));
    }

    /// To the rest between two runs.
    fn rest(&mut self) {
        let rested = |run: &Self| run.ledger.phase == Phase::Scheduled && run.truth.lock == Lock::Free;
        (0..500)
            .find(|_| {
                rested(self) || {
                    self.step();
                    false
                }
            })
            .expect("a rest");
    }

    fn own(&self) -> usize {
        self.truth.store.values().filter(|store| store.owner == UID).count()
    }
}

#[test]
fn a_schedule_takes_one_backup_after_another_and_keeps_the_newest() {
    let mut run = mk_run("*/30 * * * *");
    run.truth.add_backup("another");
    let mut runs = 0;
    let mut before = None;
    for _ in 0..600 {
        run.step();
        if run.ledger.phase == Phase::Running && run.ledger.started != before {
            (runs, before) = (runs + 1, run.ledger.started);
        }
        assert!(run.own() <= 4, "{} backups", run.own());
    }
    // A bit less than a minute a pass.
    assert!((8..=20).contains(&runs), "{runs} runs");
    run.rest();
    run.steps(2);
    assert_eq!(run.own(), 3);
    assert!(run.truth.store.contains_key("another"), "a backup of another object was deleted");
}

#[test]
fn a_paused_schedule_begins_nothing_and_a_cancelled_one_ends() {
    let mut run = mk_run("*/30 * * * *");
    run.truth.trouble.pause = Some((0, NEVER));
    run.steps(200);
    assert_eq!((run.ledger.phase, run.own()), (Phase::Scheduled, 0));
    run.truth.trouble.cancel_at = 0;
    run.steps(5);
    assert_eq!(run.ledger.phase, Phase::Cancelled);
    // What was taken is still its own.
    let mut run = mk_run("*/30 * * * *");
    run.steps(200);
    run.truth.trouble.cancel_at = 0;
    run.steps(20);
    assert!(run.ledger.phase == Phase::Cancelled && run.truth.request.finalizer && run.own() > 0);
    run.truth.trouble.delete_at = 0;
    run.steps(5);
    assert!(run.truth.object_gone && run.own() == 0);
}

#[test]
fn a_failed_run_is_followed_by_another() {
    let mut run = mk_run("*/30 * * * *");
    run.truth.trouble.backup_fails = 100;
    run.steps(150);
    run.rest();
    assert_eq!((run.ledger.phase, run.ledger.reason.as_str()), (Phase::Scheduled, "BackupFailed"));
    assert_eq!(run.truth.lock, Lock::Free);
    run.truth.trouble.backup_fails = 0;
    run.steps(150);
    assert!(run.truth.store.values().any(|store| store.data.is_some() && store.verified_at.is_some()));
}

#[test]
fn nothing_is_pruned_while_another_workflow_may_restore_it() {
    let mut run = mk_run("*/30 * * * *");
    run.steps(400);
    run.spec.retention = Some(Retention::LimitBased(1));
    run.rest();
    run.truth.trouble.rival_until = NEVER;
    run.truth.lock = Lock::Other("EtcdRestore r".into());
    let kept = run.own();
    assert!((2..=4).contains(&kept), "{kept}");
    run.steps(5);
    assert_eq!(run.own(), kept);
}

#[test]
fn deletion_takes_the_backups_along_and_never_hangs() {
    let mut run = mk_run("*/30 * * * *");
    run.steps(200);
    assert!(run.own() > 0 && run.truth.request.finalizer);
    run.truth.trouble.delete_at = 0;
    run.steps(60);
    assert!(run.own() == 0 && run.truth.object_gone);

    // A store that deletes nothing is waited for, but not for ever.
    let mut run = mk_run("*/30 * * * *");
    run.steps(200);
    run.rest();
    run.truth.trouble.delete_at = 0;
    run.step();
    assert_eq!(run.ledger.phase, Phase::Cancelled);
    let (mut observed, _) = run.truth.look();
    let since = observed.request.deleting.expect("a time");
    let asked = |observed: &_, now| decide(&run.spec, &Input::alone(observed, &run.ledger, now)).effects;
    assert!(matches!(asked(&observed, since)[..], [Effect::EnsureNoBackups { .. }]));
    let late = Time(since.after(DELETION_PATIENCE).0 + 1);
    assert_eq!(asked(&observed, late), [Effect::EnsureFinalizer { present: false }]);
    // Without a cluster nothing is waited for.
    for cluster in [Cluster::Deleting, Cluster::Gone] {
        observed.cluster = cluster;
        assert_eq!(asked(&observed, since), [Effect::EnsureFinalizer { present: false }]);
    }
}

#[test]
fn a_single_backup_ends() {
    let mut run = mk_run("");
    run.steps(100);
    assert_eq!((run.ledger.phase, run.own()), (Phase::Succeeded, 1));
    let name = run.ledger.notes.backup.clone().expect("a name");
    assert!(run.ledger.notes.proof.is_some() && run.truth.store.contains_key(&name));
    assert_eq!(run.step(), []);
    // It is deleted together with its object, as it asks for, and else stays.
    assert!(run.truth.request.finalizer && run.truth.lock == Lock::Free);
    run.truth.trouble.delete_at = 0;
    run.steps(5);
    assert!(run.truth.object_gone && run.own() == 0);

    let mut run = mk_run("");
    run.spec.delete_backups = false;
    run.steps(100);
    assert!(run.own() == 1 && !run.truth.request.finalizer);
}

#[test]
fn a_backup_of_another_object_is_never_taken_for_its_own() {
    let mut run = mk_run("");
    assert_eq!(run.spec.schedule, None);
    run.truth.request.backup_name = Some("b".to_owned());
    let named = (0..100).any(|_| {
        run.step();
        run.ledger.notes.backup.is_some()
    });
    assert!(named && run.own() == 0, "{:#?}", run.ledger);
    // The store was silent while the name was looked for, and had this one.
    run.truth.add_backup("b");
    run.steps(100);
    assert_eq!((run.ledger.phase, run.ledger.reason.as_str()), (Phase::Failed, "BackupNameTaken"));
    assert!(run.truth.store["b"].owner != UID && run.own() == 0);
}
