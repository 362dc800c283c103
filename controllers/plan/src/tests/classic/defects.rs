//! Defects of the tables that schedules have found, each as the one decision that was wrong.

use super::{
    clusters::{Clusters, DESTINATION, Kind, Setup},
    ledger,
};
use crate::{
    classic::{PLAN, PLANS},
    flow::{Decision, Input, LedgerOf, decide},
    ledger::{Phase, State},
    migration::{
        Side, Step,
        effect::Effect,
        observed::{EtcdFacts, Facts, FinalSnapshot, OwnerId, OwnerRecord},
    },
    tests::{
        rng::Rng,
        sim::{Model, NEVER},
    },
};

/// A source that rolls back after the deletion of its owner record was requested. Its members have no replicas, and its bucket has no
/// final snapshot, or does not answer.
fn decide_rollback(
    change: impl Fn(&mut LedgerOf<crate::migration::MigrationFlow>),
) -> Decision<crate::migration::MigrationFlow> {
    let mut clusters = Clusters::new(Setup::of(Kind::Awake), Rng::new(1));
    let (mut observed, _) = clusters.observe(Side::Source);
    if let Facts::Source(facts) = &mut observed.facts {
        facts.final_snapshot = None;
        facts.etcd = EtcdFacts { wanted: Some(0), pods: 0, ..facts.etcd.clone() };
    }
    let mut own = ledger(&[], clusters.now);
    own.phase = Phase::RollingBack;
    own.notes.ownership_ended = true;
    own.notes.etcd_replicas = Some(3);
    own.notes.owner_epoch = Some(1);
    let mut record = crate::ledger::Record::pending();
    (record.state, record.started, record.attempts) = (State::Running, own.started, 1);
    own.steps.insert(Step::SourceOwnershipEnded, record);
    change(&mut own);
    let now = repot_apimachinery::time::Time(clusters.now);
    decide(&PLANS, &Input { side: Side::Source, observed: &observed, ledger: &own, others: &[], now })
}

#[test]
fn a_rollback_starts_members_that_somebody_stopped_before_their_final_snapshot() {
    let effects = decide_rollback(|_| {}).effects;
    let wakes = |effect: &Effect| matches!(effect, Effect::EnsureEtcdReplicas { replicas: 3, .. });
    assert!(effects.iter().any(wakes), "{effects:?}");
}

#[test]
fn a_bucket_that_does_not_answer_takes_no_final_snapshot_back() {
    let decision = decide_rollback(|own| {
        own.notes.final_snapshot = Some(FinalSnapshot { name: "final-1".into(), revision: 2, epoch: 1 });
        let record = own.steps.get_mut(&Step::SourceOwnershipEnded).expect("a record");
        (record.state, record.completed) = (State::Succeeded, own.started);
    });
    let next = decision.records.expect("the next row is started");
    assert_eq!(next.state(Step::SourceOwnershipEnded), State::Succeeded);
    assert_eq!(next.state(Step::OwnerRecordRestored), State::Running);
}

/// A destination that has everything but the commit, while the source has recorded nothing for a long time.
#[test]
fn no_record_holds_both_the_commit_and_a_rollback() {
    let mut clusters = Clusters::new(Setup::of(Kind::Awake), Rng::new(1));
    (clusters.now, clusters.abort_at) = (10_000, NEVER);
    let (mut observed, _) = clusters.observe(Side::Destination);
    let snapshot = FinalSnapshot { name: "final-1".into(), revision: 2, epoch: 1 };
    if let Facts::Destination(facts) = &mut observed.facts {
        (facts.unprepared, facts.machine_guard, facts.exposure_problem) = (Vec::new(), true, None);
        facts.owner = OwnerRecord::Present(OwnerId { seed: DESTINATION.into(), epoch: 2 });
        (facts.etcd.volumes, facts.etcd.epoch, facts.etcd.revision) = ("new".into(), 2, Some(2));
        (facts.api.ready, facts.api.fence) = (2, format!("{}/forward", observed.request.uid));
    }
    let of = |side| PLAN.forward.iter().filter(move |row| row.side == side).map(|row| row.step);
    let before = |step: &Step| *step != Step::MoveCommitted;
    let mut own = ledger(&of(Side::Destination).take_while(before).collect::<Vec<_>>(), clusters.now);
    own.notes.final_snapshot = Some(snapshot.clone());
    (own.notes.owner_epoch, own.notes.volumes) = (Some(2), Some("new".into()));
    let reached = of(Side::Source).take_while(|step| *step != Step::ExtensionsMigrated);
    let mut source = ledger(&reached.collect::<Vec<_>>(), 5_000);
    source.notes.final_snapshot = Some(snapshot);
    let garden = of(Side::Garden).take_while(|step| *step != Step::StatusMoved).collect::<Vec<_>>();
    let garden = ledger(&garden, clusters.now);
    let others = [(Side::Garden, garden), (Side::Source, source)];
    let now = repot_apimachinery::time::Time(clusters.now);
    let input = Input { side: Side::Destination, observed: &observed, ledger: &own, others: &others, now };
    let next = decide(&PLANS, &input).records.expect("the commit");
    assert_eq!((next.phase, next.state(Step::MoveCommitted)), (Phase::Running, State::Succeeded), "{next:?}");
}
