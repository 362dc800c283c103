//! A forced migration goes on in place of a classic one whose source is dead: garden and destination undo what they have made, and wait
//! for nobody.

use repot_api::conditions::Reason;
use repot_apimachinery::time::Time;

use super::clusters::{Clusters, Kind, Setup};
use crate::{
    classic::{PLAN, PLANS},
    flow::{Input, Plans, decide},
    forced,
    ledger::Phase,
    migration::{MigrationFlow, Side, Step, effect::Effect, observed::Operation},
    named::Named,
    tests::{
        rng::Rng,
        sim::{Ledgers, Model},
    },
};

/// More passes than any calm migration takes.
const PASSES: u32 = 5_000;

/// A migration to which nothing happens but that it is superseded.
struct Calm {
    clusters: Clusters,
    plans: &'static Plans<MigrationFlow>,
    ledgers: Ledgers<Clusters>,
    is_superseded: bool,
}

impl Calm {
    fn new(kind: Kind) -> Self {
        let mut clusters = Clusters::new(Setup::of(kind), Rng::new(3));
        clusters.is_calm = true;
        clusters.draw_trouble();
        Self { clusters, plans: &PLANS, ledgers: Ledgers::<Clusters>::default(), is_superseded: false }
    }

    /// One pass of a side, and what it requests.
    fn pass(&mut self, side: Side) -> Vec<Effect> {
        let (mut observed, seen) = self.clusters.observe(side);
        let why = || Reason::new("Superseded", "forced goes on in place of this migration".to_owned());
        observed.request.superseded = self.is_superseded.then(why);
        let own = self.ledgers.get(&side).cloned().unwrap_or_default();
        let others = self.ledgers.iter().filter(|(other, _)| **other != side);
        let others: Vec<_> = others.map(|(other, ledger)| (*other, ledger.clone())).collect();
        let now = Time(self.clusters.now);
        let input = Input { side, observed: &observed, ledger: &own, others: &others, now };
        let decision = decide(self.plans, &input);
        self.ledgers.extend(decision.records.map(|next| (side, next)));
        for effect in &decision.effects {
            self.clusters.apply(side, effect, &seen, true);
        }
        self.clusters.advance(&self.ledgers);
        decision.effects
    }

    /// A side works alone until a step of it is reached.
    fn until_reached(&mut self, side: Side, step: Step) {
        for _ in 0..PASSES {
            self.pass(side);
            if self.ledgers.get(&side).is_some_and(|ledger| ledger.is_settled(step)) {
                return;
            }
        }
        panic!("{} is not reached: {:?}", step.name(), self.ledgers);
    }

    /// All sides work until a step is started.
    fn until_started(&mut self, step: Step) {
        for _ in 0..PASSES {
            if self.ledgers.values().any(|ledger| ledger.is_started(step)) {
                return;
            }
            Side::ALL.iter().for_each(|side| drop(self.pass(*side)));
        }
        panic!("{} is not started: {:?}", step.name(), self.ledgers);
    }

    /// Garden and destination work until they have nothing left to do; what they request.
    fn until_over(&mut self) -> Vec<Effect> {
        let (mut requested, mut quiet) = (Vec::new(), 0);
        for _ in 0..PASSES {
            let sides = [Side::Garden, Side::Destination];
            let effects: Vec<Effect> = sides.into_iter().flat_map(|side| self.pass(side)).collect();
            let is_over = effects.is_empty() && sides.iter().all(|side| self.phase(*side).is_end());
            // The end of one side is seen by the other in its next pass.
            quiet = if is_over { quiet + 1 } else { 0 };
            if quiet > 1 {
                break;
            }
            requested.extend(effects);
        }
        requested
    }

    fn phase(&self, side: Side) -> Phase {
        self.ledgers.get(&side).map_or(Phase::Pending, |ledger| ledger.phase)
    }
}

/// Steps before the point of no return that an etcd with a standby starts.
fn early_steps() -> Vec<Step> {
    let rows = PLAN.forward.iter().map(|row| row.step);
    let of_others = [Step::SourceEtcdAwake, Step::StandbyRemoved, Step::FinalSnapshotCopied];
    rows.take_while(|step| *step != Step::MoveCommitted).filter(|step| !of_others.contains(step)).collect()
}

#[test]
fn whatever_step_it_is_in_it_is_undone_without_the_source() {
    for step in early_steps() {
        let mut calm = Calm::new(Kind::Awake);
        calm.until_started(step);
        calm.is_superseded = true;
        let requested = calm.until_over();
        let phases = [Side::Garden, Side::Destination].map(|side| calm.phase(side));
        assert_eq!(phases, [Phase::RolledBack; 2], "{}", step.name());
        assert_eq!(calm.clusters.destination.left(), [""; 0], "{}", step.name());
        // Before the migration is recorded, the last operation is that of gardenlet.
        let is_recorded = !matches!(step, Step::TurnTaken | Step::ShootIgnored | Step::GardenletExcluded);
        let operation = if is_recorded { Operation::Former } else { Operation::Other };
        assert_eq!(calm.clusters.operation, operation, "{}", step.name());
        assert!(calm.clusters.is_ignored_as_before(), "{}", step.name());
        assert!(!calm.clusters.finalizer, "{}", step.name());
        assert_eq!(calm.clusters.spec_seed, calm.clusters.from, "{}", step.name());
        // The migration that goes on says who owns the Shoot, and where clients find it.
        let is_foreign =
            |effect: &&Effect| matches!(effect, Effect::EnsureOwner { .. } | Effect::SwitchApiDns);
        assert_eq!(requested.iter().find(is_foreign), None, "{}", step.name());
    }
}

#[test]
fn its_source_does_nothing_when_it_comes_back() {
    for step in early_steps() {
        let mut calm = Calm::new(Kind::Awake);
        calm.until_started(step);
        calm.is_superseded = true;
        assert_eq!(calm.pass(Side::Source), [], "{}", step.name());
        assert_eq!(calm.phase(Side::Source), Phase::RolledBack, "{}", step.name());
        assert_eq!(calm.pass(Side::Source), [], "{}", step.name());
    }
}

/// A forced migration whose destination is dead: the garden ends by itself, so that another one can begin.
#[test]
fn garden_of_a_forced_one_does_not_wait_for_its_destination() {
    let mut calm = Calm::new(Kind::Awake);
    calm.plans = &forced::PLANS;
    calm.clusters.finalizer = true;
    calm.until_reached(Side::Garden, Step::DestinationFit);
    calm.is_superseded = true;
    for _ in 0..20 {
        calm.pass(Side::Garden);
    }
    assert_eq!(calm.phase(Side::Garden), Phase::RolledBack, "{:?}", calm.ledgers);
    assert_eq!(calm.clusters.operation, Operation::Former);
}

#[test]
fn one_that_goes_back_already_does_not_go_on_to_restore_the_source() {
    let mut calm = Calm::new(Kind::Awake);
    calm.until_started(Step::OwnerRecordTaken);
    calm.clusters.abort_at = calm.clusters.now;
    while calm.phase(Side::Source) != Phase::RollingBack {
        Side::ALL.iter().for_each(|side| drop(calm.pass(*side)));
    }
    calm.is_superseded = true;
    assert_eq!(calm.pass(Side::Source), []);
    assert_eq!(calm.phase(Side::Source), Phase::RolledBack);
}
