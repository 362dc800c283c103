//! What the tables promise by their form.

use std::collections::BTreeSet;

use super::{
    cluster::{NEVER, Trouble, Truth},
    rng::Rng,
    sim::{Build, Kind},
};
use crate::{
    etcd::{EtcdFlow, PLAN_VERSION, backup, effect::Effect, migration, restore},
    flow::{CANCELLED, Decision, Otherwise, PAUSE_LIMIT, Plan, Proof, decide},
    ledger::{Ledger, Phase, State},
    status::{Error, from_status, to_status},
    time::Time,
};

const PLANS: [&Plan<EtcdFlow>; 3] = [&backup::PLAN, &restore::PLAN, &migration::PLAN];

#[test]
fn rows_have_names_of_their_own_and_name_rows_that_follow() {
    for plan in PLANS {
        for rows in [plan.forward, plan.back] {
            for (at, row) in rows.iter().enumerate() {
                let follows = |step| rows[at..].iter().any(|row| row.step == step);
                assert!(
                    !matches!(row.proof, Proof::HeldUntil(step) if !follows(step)),
                    "{} {}",
                    plan.kind,
                    row.step
                );
                assert!(!row.does.is_empty() && !row.advice.is_empty(), "{} {}", plan.kind, row.step);
            }
        }
        let names: BTreeSet<_> = plan.forward.iter().chain(plan.back).map(|row| row.step).collect();
        assert_eq!(names.len(), plan.forward.len() + plan.back.len(), "{}", plan.kind);
        assert!(plan.no_return.is_none_or(|step| names.contains(step)), "{}", plan.kind);
    }
}

#[test]
fn nothing_leads_back_from_behind_the_point_of_no_return() {
    for plan in [&restore::PLAN, &migration::PLAN] {
        let rows = plan.forward.iter().skip_while(|row| Some(row.step) != plan.no_return);
        assert!(rows.clone().count() > 1, "{}", plan.kind);
        for row in rows {
            assert_ne!(row.otherwise, Otherwise::TurnBack, "{} {}", plan.kind, row.step);
        }
    }
}

#[test]
fn commands_are_those_of_the_paper_in_its_order() {
    let mut truth = mk_truth();
    let mut commands = Vec::new();
    let mut ledger = Ledger::default();
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
    // A finished world asks for nothing.
    let (world, _) = truth.observe();
    let decision = decide(&migration::PLAN, &world, &ledger, Time(truth.now));
    assert_eq!((decision.effects, decision.records, decision.requeue), (vec![], None, None));
}

fn mk_truth() -> Truth {
    let trouble = Trouble {
        calm: true,
        cancel_at: NEVER,
        delete_at: NEVER,
        cluster_gone_at: NEVER,
        ..Trouble::default()
    };
    Truth::new(Rng::new(7), trouble)
}

/// One pass without any trouble.
fn step(truth: &mut Truth, ledger: &mut Ledger<crate::etcd::Notes>) -> Decision<EtcdFlow> {
    let (world, seen) = truth.observe();
    let decision = decide(&migration::PLAN, &world, ledger, Time(truth.now));
    if let Some(records) = &decision.records {
        *ledger = records.clone();
    }
    decision.effects.iter().for_each(|effect| truth.apply(effect, &seen, true));
    decision
}

/// Passes until this holds.
fn pass_until(
    truth: &mut Truth,
    ledger: &mut Ledger<crate::etcd::Notes>,
    holds: impl Fn(&Ledger<crate::etcd::Notes>) -> bool,
) {
    for _ in 0..2_000 {
        if holds(ledger) {
            return;
        }
        truth.pass(ledger);
        step(truth, ledger);
    }
    panic!("it does not come to that: {ledger:#?}");
}

/// A migration that has come to this step, and its world.
fn until(name: &str) -> (Truth, Ledger<crate::etcd::Notes>) {
    let (mut truth, mut ledger) = (mk_truth(), Ledger::default());
    pass_until(&mut truth, &mut ledger, |ledger| ledger.state(name) != State::Pending);
    (truth, ledger)
}

#[test]
fn a_step_is_recorded_before_anything_is_asked_for() {
    let (mut truth, mut ledger) = until("ApiDown");
    assert_eq!(truth.api.wanted, super::cluster::REPLICAS);
    assert_eq!(ledger.notes.api_replicas, Some(super::cluster::REPLICAS));
    let decision = step(&mut truth, &mut ledger);
    assert!(matches!(decision.effects[..], [Effect::EnsureApi { replicas: 0, .. }]), "{decision:?}");
    assert_eq!(ledger.reason, "ApiServersEnding");
    assert!(ledger.message.starts_with("ApiDown: 2 API servers are left; see why"), "{}", ledger.message);
}

#[test]
fn a_pause_lets_the_running_step_end_and_goes_back_after_a_day() {
    let (mut truth, mut ledger) = until("ApiDown");
    truth.trouble.pause = Some((0, NEVER));
    pass_until(&mut truth, &mut ledger, |ledger| ledger.paused.is_some());
    assert_eq!((ledger.state("ApiDown"), ledger.state("BackupTaken")), (State::Succeeded, State::Pending));
    assert_eq!(ledger.steps["BackupTaken"].reason, "Paused");
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
    let (mut truth, mut ledger) = until("ApiUp");
    truth.trouble.cancel_at = 0;
    for _ in 0..200 {
        truth.pass(&ledger);
        step(&mut truth, &mut ledger);
    }
    assert_eq!(ledger.phase, Phase::Succeeded);
    let (mut truth, mut ledger) = until("EtcdRestored");
    truth.trouble.cancel_at = 0;
    for _ in 0..200 {
        truth.pass(&ledger);
        step(&mut truth, &mut ledger);
    }
    assert_eq!((ledger.phase, ledger.reason.as_str()), (Phase::Cancelled, CANCELLED));
}

#[test]
fn a_workflow_of_another_version_is_left_alone() {
    let (mut truth, mut ledger) = until("BackupTaken");
    ledger.version = PLAN_VERSION + 1;
    let (world, _) = truth.observe();
    let decision = decide(&migration::PLAN, &world, &ledger, Time(truth.now));
    let records = decision.records.expect("a word about it");
    assert!(decision.effects.is_empty() && records.steps == ledger.steps && records.phase == Phase::Running);
    assert!(records.message.contains("version 2"), "{}", records.message);
}

#[test]
fn a_failure_says_where_the_data_is_and_what_to_do() {
    let (mut truth, mut ledger) = until("ApiUp");
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
    let (mut truth, mut ledger) = (mk_truth(), Ledger::default());
    while !ledger.phase.is_end() {
        truth.pass(&ledger);
        let lifecycle = truth.observe().0.lifecycle();
        if seen.last() != Some(&lifecycle) {
            seen.push(lifecycle);
        }
        step(&mut truth, &mut ledger);
    }
    assert_eq!(seen, ["running", "apiDown", "etcdDeleted", "apiDown", "running"]);
}

#[test]
fn a_status_that_nobody_wrote_is_refused() {
    let (_, ledger) = until("ProvedEqual");
    let sound = to_status(&migration::PLAN, &ledger);
    assert_eq!(from_status(&sound), Ok(ledger));
    type Damage = (fn(&mut serde_json::Value), Error);
    let field = |path: &str| Error::Field(path.to_owned());
    let cases: Vec<Damage> = vec![
        (|s| s["phase"] = "Sleeping".into(), Error::Word("phase", "Sleeping".to_owned())),
        (|s| s["steps"][0]["state"] = "Done".into(), Error::Word("steps.state", "Done".to_owned())),
        (|s| s["startTime"] = "noon".into(), field("startTime")),
        (|s| s["planVersion"] = (-1).into(), field("planVersion")),
        (|s| s["proof"]["keys"] = "12".into(), field("proof.keys")),
        (|s| s["before"]["apiReplicas"] = 1.5.into(), field("before.apiReplicas")),
        (|s| s["before"]["etcdSettings"]["size"] = 5.into(), field("before.etcdSettings.size")),
    ];
    for (damage, expected) in cases {
        let mut status = sound.clone();
        damage(&mut status);
        assert_eq!(from_status(&status), Err(expected));
    }
    assert_eq!(from_status(&serde_json::json!({})), Ok(Ledger::default()));
    assert_eq!(Build::of(Kind::Migration).plan.kind, "EtcdMigration");
}
