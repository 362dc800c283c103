//! Defects of the tables that schedules have found, each as the one decision that was wrong.

use super::{
    clusters::{Clusters, DESTINATION, Kind, Setup},
    ledger,
};
use crate::{
    classic::{
        PLAN, PLANS, Side, Step,
        observed::{Facts, FinalSnapshot, OwnerId, OwnerRecord},
    },
    flow::{Input, decide},
    ledger::{Phase, State},
    tests::{rng::Rng, sim::Model},
};

/// A destination that has everything but the commit, while the source has recorded nothing for a long time.
#[test]
fn no_record_holds_both_the_commit_and_a_rollback() {
    let mut clusters = Clusters::new(Setup::of(Kind::Awake), Rng::new(1));
    clusters.now = 10_000;
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
    let garden = ledger(&[Step::MigrationRecorded, Step::DestinationFit], clusters.now);
    let others = [(Side::Garden, garden), (Side::Source, source)];
    let now = repot_apimachinery::time::Time(clusters.now);
    let input = Input { side: Side::Destination, observed: &observed, ledger: &own, others: &others, now };
    let next = decide(&PLANS, &input).records.expect("the commit");
    assert_eq!((next.phase, next.state(Step::MoveCommitted)), (Phase::Running, State::Succeeded), "{next:?}");
}
