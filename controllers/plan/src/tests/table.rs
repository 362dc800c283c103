//! What the tables promise by their form.

use repot_apimachinery::time::Time;

use super::{
    cluster::{NEVER, Truth, calm},
    rng::Rng,
};
use crate::{
    etcd::{EtcdFlow, EtcdLedger, Step, backup, effect::Effect, migration, restore},
    flow::{CANCELLED, Decision, Input, PAUSE_LIMIT, Plans, decide},
    ledger::{Phase, State},
    status::{Error, from_status, to_status},
};

const PLANS: [&Plans<EtcdFlow>; 3] = [&backup::PLANS, &restore::PLANS, &migration::PLANS];

#[test]
fn tables_have_a_sound_form() {
    for plans in PLANS {
        for plan in plans.versions {
            assert_eq!(plan.problems(), [""; 0], "{} version {}", plan.kind, plan.version);
        }
    }
}

#[test]
fn commands_are_those_of_the_paper_in_its_order() {
    let mut truth = mk_truth();
    let mut commands = Vec::new();
    let mut ledger = EtcdLedger::default();
    for _ in 0..2_000 {
        truth.pass(&ledger);
        let decision = step(&mut truth, &mut ledger);
        for command in decision.effects.iter().filter_map(Effect::command) {
            if commands.last() != Some(&command) {
                commands.push(command);
            }
        }
    }
    assert_eq!(ledger.phase, Phase::Succeeded);
    assert_eq!(commands, ["stopApi", "deleteEtcd", "startRestore", "startApi"]);
    // A finished observed asks for nothing.
    let (observed, _) = truth.look();
    let decision = decide(&migration::PLANS, &Input::alone(&observed, &ledger, Time(truth.now)));
    assert_eq!((decision.effects, decision.records, decision.requeue), (vec![], None, None));
}

fn mk_truth() -> Truth {
    Truth::with(Rng::new(7), calm())
}

/// One pass without any trouble.
fn step(truth: &mut Truth, ledger: &mut EtcdLedger) -> Decision<EtcdFlow> {
    let (observed, seen) = truth.look();
    let decision = decide(&migration::PLANS, &Input::alone(&observed, ledger, Time(truth.now)));
    if let Some(records) = &decision.records {
        *ledger = records.clone();
    }
    decision.effects.iter().for_each(|effect| truth.change(effect, &seen, true));
    decision
}

/// Passes until this holds.
fn pass_until(truth: &mut Truth, ledger: &mut EtcdLedger, holds: impl Fn(&EtcdLedger) -> bool) {
    for _ in 0..2_000 {
        if holds(ledger) {
            return;
        }
        truth.pass(ledger);
        step(truth, ledger);
    }
    panic!("it does not come to that: {ledger:#?}");
}

/// A migration that has come to this step, and its observed.
fn until(step: Step) -> (Truth, EtcdLedger) {
    let (mut truth, mut ledger) = (mk_truth(), EtcdLedger::default());
    pass_until(&mut truth, &mut ledger, |ledger| ledger.state(step) != State::Pending);
    (truth, ledger)
}

#[test]
fn a_step_is_recorded_before_anything_is_asked_for() {
    let (mut truth, mut ledger) = until(Step::ApiDown);
    assert_eq!(truth.api.wanted, super::cluster::REPLICAS);
    assert_eq!(ledger.notes.api_replicas, Some(super::cluster::REPLICAS));
    let decision = step(&mut truth, &mut ledger);
    assert!(matches!(decision.effects[..], [Effect::EnsureApi { replicas: 0, .. }]), "{decision:?}");
    assert_eq!(ledger.reason, "ApiServersEnding");
    assert!(ledger.message.starts_with("ApiDown: 2 API servers are left; see why"), "{}", ledger.message);
}

#[test]
fn a_pause_lets_the_running_step_end_and_goes_back_after_a_day() {
    let (mut truth, mut ledger) = until(Step::ApiDown);
    truth.trouble.pause = Some((0, NEVER));
    pass_until(&mut truth, &mut ledger, |ledger| ledger.paused.is_some());
    assert_eq!(
        (ledger.state(Step::ApiDown), ledger.state(Step::BackupTaken)),
        (State::Succeeded, State::Pending)
    );
    assert_eq!(ledger.steps[&Step::BackupTaken].reason, "Paused");
    // Paused or not, the way back is gone to its end.
    truth.now += PAUSE_LIMIT.as_secs() + 1;
    for _ in 0..200 {
        truth.pass(&ledger);
        step(&mut truth, &mut ledger);
    }
    assert_eq!((ledger.phase, ledger.reason.as_str()), (Phase::RolledBack, "PausedTooLong"));
    assert_eq!(truth.api.wanted, super::cluster::REPLICAS);
}

#[test]
fn cancelling_comes_too_late_once_api_servers_are_started() {
    let (mut truth, mut ledger) = until(Step::ApiUp);
    truth.trouble.cancel_at = 0;
    for _ in 0..200 {
        truth.pass(&ledger);
        step(&mut truth, &mut ledger);
    }
    assert_eq!(ledger.phase, Phase::Succeeded);
    let (mut truth, mut ledger) = until(Step::EtcdRestored);
    truth.trouble.cancel_at = 0;
    for _ in 0..200 {
        truth.pass(&ledger);
        step(&mut truth, &mut ledger);
    }
    assert_eq!((ledger.phase, ledger.reason.as_str()), (Phase::Cancelled, CANCELLED));
}

#[test]
fn a_failure_says_where_the_data_is_and_what_to_do() {
    let (mut truth, mut ledger) = until(Step::ApiUp);
    truth.trouble.api_never_up = true;
    pass_until(&mut truth, &mut ledger, |ledger| ledger.phase.is_end());
    assert_eq!((ledger.phase, ledger.reason.as_str()), (Phase::Failed, "ApiServersNotReady"));
    let backup = ledger.notes.backup.clone().expect("a backup");
    for word in [
        "not reached in 30 minutes",
        "see why the API servers",
        "kept as data",
        &backup,
        "verified",
        "2 API servers",
    ] {
        assert!(ledger.message.contains(word), "{word:?} is not in {:?}", ledger.message);
    }
}

#[test]
fn lifecycles_are_inferred_from_what_is_seen() {
    let mut seen = vec!["running"];
    let (mut truth, mut ledger) = (mk_truth(), EtcdLedger::default());
    while !ledger.phase.is_end() {
        truth.pass(&ledger);
        let lifecycle = truth.look().0.lifecycle();
        if seen.last() != Some(&lifecycle) {
            seen.push(lifecycle);
        }
        step(&mut truth, &mut ledger);
    }
    assert_eq!(seen, ["running", "apiDown", "etcdDeleted", "apiDown", "running"]);
}

#[test]
fn a_status_that_nobody_wrote_is_refused() {
    let (_, ledger) = until(Step::ProvedEqual);
    let sound = to_status(&migration::PLAN, &ledger);
    assert_eq!(from_status(&migration::PLANS, &sound), Ok(ledger));
    let notes = |field, message: &str| Error::Notes { field, message: message.to_owned() };
    type Damage = (fn(&mut serde_json::Value), Error);
    let field = |path: &str| Error::Field(path.to_owned());
    let cases: Vec<Damage> = vec![
        (|s| s["phase"] = "Sleeping".into(), Error::Word("phase", "Sleeping".to_owned())),
        (|s| s["steps"][0]["state"] = "Done".into(), Error::Word("steps.state", "Done".to_owned())),
        (|s| s["startTime"] = "noon".into(), field("startTime")),
        (|s| s["planVersion"] = (-1).into(), field("planVersion")),
        (|s| s["proof"]["keys"] = "12".into(), notes("proof", r#"invalid type: string "12", expected u64"#)),
        (
            |s| s["before"]["apiReplicas"] = 1.5.into(),
            notes("before", "invalid type: floating point `1.5`, expected u32"),
        ),
        (
            |s| s["before"]["etcdSettings"]["size"] = 5.into(),
            notes("before", "invalid type: integer `5`, expected a string"),
        ),
        (|s| s["steps"][0]["name"] = "Slept".into(), Error::Word("steps.name", "Slept".to_owned())),
    ];
    for (damage, expected) in cases {
        let mut status = sound.clone();
        damage(&mut status);
        assert_eq!(from_status(&migration::PLANS, &status), Err(expected));
    }
    assert_eq!(from_status(&migration::PLANS, &serde_json::json!({})), Ok(EtcdLedger::default()));
}
