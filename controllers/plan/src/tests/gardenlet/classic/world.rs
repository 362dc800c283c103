//! The simulated garden, the buckets and both gardenlets of a classic migration.

mod facts;

use super::super::world::{DESTINATION, SOURCE};
use crate::{
    flow::Decision,
    gardenlet::{
        GardenletMigration, Step,
        effect::Effect,
        is_binding_asked,
        observed::{BindingAnswer, Facts, Observed, SourceFacts},
    },
    ledger::{Phase, State},
    migration::Side,
    tests::{
        rng::Rng,
        sim::{FaultRates, Ledgers, Model, NEVER, Sim, hold},
    },
};

/// When schedules begin, in seconds.
const BEGIN: u64 = 10_000;
/// The seed to which somebody else binds the Shoot.
const ELSEWHERE: &str = "seed-c";
/// More than gardener-apiserver takes.
const TOO_LARGE: u64 = 4 << 20;

pub(super) struct World {
    rng: Rng,
    now: u64,
    faults: FaultRates,
    is_calm: bool,
    away: Option<(Side, u64, u64)>,
    abort_at: u64,
    /// A person lets nobody wait for gardenlet any more, once the Shoot is bound.
    released_at: u64,
    paused: (u64, u64),
    /// When somebody binds the Shoot to a third seed.
    elsewhere_at: u64,
    /// Whether the garden asks for the binding in this pass, and whether it has recorded that the Shoot is bound.
    asked: bool,
    bound: bool,
    /// Until when Gardener would refuse the binding.
    refused_until: u64,
    state_bytes: u64,
    finalizer: bool,
    spec: &'static str,
    status: Option<&'static str>,
    version: u64,
    operation: (&'static str, &'static str),
    /// When gardenlet ends what it does now.
    operation_ends: u64,
    /// The gardenlet of the source does not run until then.
    starts_at: u64,
    source_api: bool,
    destination_api: bool,
    hibernated: bool,
    restored: bool,
    copy: bool,
    copy_version: u64,
    job_ends: Option<u64>,
    copied: Option<u64>,
    revision: u64,
    broken: Option<&'static str>,
}

/// Versions of the objects that a decision was made on.
#[derive(Clone, Copy)]
pub(in crate::tests) struct Seen {
    shoot: u64,
    copy: u64,
}

impl World {
    fn operate(&mut self, operation: (&'static str, &'static str), lasts: u64) {
        (self.operation, self.operation_ends) = (operation, self.now + lasts);
        self.version += 1;
    }

    /// Both gardenlets, by the rule of who is responsible.
    fn advance_gardenlets(&mut self) {
        let (is_over, lasts) = (self.now >= self.operation_ends, self.rng.within(60, 1_500));
        let is_at_source = self.status == Some(SOURCE);
        match self.operation {
            (_, "Succeeded") if is_at_source && self.spec != SOURCE => {
                if self.now < self.starts_at {
                    return;
                }
                self.operate(("Migrate", "Processing"), lasts);
            }
            ("Reconcile" | "Restore" | "Create", "Succeeded") if is_at_source && self.rng.percent(2) => {
                self.operate(("Reconcile", "Processing"), lasts.min(400));
            }
            ("Reconcile", "Processing") if is_over => self.operate(("Reconcile", "Succeeded"), 0),
            ("Migrate", "Processing") if is_over && !self.is_calm && self.rng.percent(30) => {
                self.operate(("Migrate", "Error"), 300);
            }
            ("Migrate", "Processing") if is_over && !self.is_calm && self.rng.percent(10) => {
                self.operate(("Migrate", "Aborted"), 60);
            }
            ("Migrate", "Error" | "Aborted") if is_over => self.operate(("Migrate", "Processing"), lasts),
            ("Migrate", "Processing") if is_over => {
                self.status = self.rng.percent(50).then_some(DESTINATION);
                self.operate(("Migrate", "Succeeded"), 0);
            }
            ("Migrate", "Processing") => self.source_api &= self.rng.percent(80),
            ("Migrate", "Succeeded") => {
                self.source_api = false;
                self.status = Some(DESTINATION);
                self.operate(("Restore", "Processing"), lasts);
            }
            ("Restore", "Processing") if is_over => {
                (self.destination_api, self.restored) = (!self.hibernated, true);
                self.operate(("Restore", "Succeeded"), 0);
            }
            _ => {}
        }
    }
}

impl Model for World {
    type Flow = GardenletMigration;
    type Setup = ();
    type Seen = Seen;

    fn new((): (), mut rng: Rng) -> Self {
        let is_calm = rng.percent(10);
        let faults = match is_calm {
            true => FaultRates::default(),
            false => FaultRates {
                crash: rng.within(0, 20),
                lost_write: rng.within(0, 20),
                lost_effect: rng.within(0, 20),
                late: rng.within(0, 30),
                latest: 900,
                twice: rng.within(0, 20),
                stale: rng.within(0, 40),
                ..FaultRates::default()
            },
        };
        let mut unless_calm = |chance: u64| !is_calm && rng.percent(chance);
        let [
            is_away,
            is_aborted,
            is_refused,
            is_large,
            is_down,
            is_released,
            is_paused,
            is_elsewhere,
            hibernated,
        ] = [30, 25, 20, 10, 20, 5, 10, 10, 10].map(&mut unless_calm);
        let begins_with = ["Reconcile", "Restore", "Create"][usize::try_from(rng.within(0, 2)).unwrap_or(0)];
        let paused_from = BEGIN + rng.within(0, 1_000);
        let side =
            [Side::Garden, Side::Source, Side::Destination][usize::try_from(rng.within(0, 2)).unwrap_or(0)];
        let from = BEGIN + rng.within(0, 2_500);
        let away = is_away.then(|| (side, from, from + rng.within(60, 2_000)));
        // A source that dies never comes back.
        let dies = away.filter(|(side, ..)| *side == Side::Source);
        let faults = FaultRates { cut_off: dies.map(|_| (1, from, NEVER)), ..faults };
        Self {
            now: BEGIN,
            faults,
            is_calm,
            away: away.filter(|_| dies.is_none()),
            abort_at: if is_aborted { BEGIN + rng.within(0, 4_000) } else { NEVER },
            released_at: if is_released { BEGIN + rng.within(0, 6_000) } else { NEVER },
            paused: if is_paused { (paused_from, paused_from + rng.within(60, 4_000)) } else { (0, 0) },
            elsewhere_at: if is_elsewhere { BEGIN + rng.within(0, 2_500) } else { NEVER },
            asked: true,
            bound: false,
            refused_until: if is_refused { BEGIN + rng.within(0, 2_000) } else { 0 },
            state_bytes: if is_large { TOO_LARGE } else { 100_000 },
            finalizer: false,
            spec: SOURCE,
            status: Some(SOURCE),
            version: 1,
            operation: (begins_with, "Succeeded"),
            operation_ends: 0,
            starts_at: if is_down { BEGIN + rng.within(0, 9_000) } else { 0 },
            source_api: !hibernated,
            destination_api: false,
            hibernated,
            restored: false,
            copy: false,
            copy_version: 1,
            job_ends: None,
            copied: None,
            revision: 100,
            broken: None,
            rng,
        }
    }

    fn trouble(&self) -> &FaultRates {
        &self.faults
    }

    fn now(&self) -> u64 {
        self.now
    }

    fn is_gone(&self) -> bool {
        false
    }

    fn is_away(&self, side: Side) -> bool {
        self.away.is_some_and(|(away, from, until)| away == side && (from..until).contains(&self.now))
    }

    fn advance(&mut self, ledgers: &Ledgers<Self>) {
        let garden = ledgers.get(&Side::Garden);
        self.asked = garden.is_none_or(is_binding_asked);
        self.bound = garden.is_some_and(|garden| garden.state(Step::SeedBound) == State::Succeeded);
        if self.now >= self.elsewhere_at && self.spec == SOURCE && self.status == Some(SOURCE) {
            (self.spec, self.status, self.version) = (ELSEWHERE, Some(ELSEWHERE), self.version + 1);
        }
        self.now += if self.rng.percent(5) { 120 } else { self.rng.within(1, 20) };
        self.revision += u64::from(self.source_api);
        if self.job_ends.is_some_and(|ends| ends <= self.now) {
            self.copied = self.copied.max(Some(self.revision));
        }
        self.advance_gardenlets();
    }

    fn observe(&mut self, side: Side) -> (Observed, Seen) {
        let facts = match side {
            Side::Garden => Facts::Garden(Box::new(self.garden_facts())),
            Side::Source => Facts::Source(SourceFacts { api_ready: Some(self.source_api) }),
            Side::Destination => Facts::Destination(Box::new(self.destination_facts())),
        };
        (Observed { request: self.request(), facts }, Seen { shoot: self.version, copy: self.copy_version })
    }

    fn apply(&mut self, _: Side, effect: &Effect, seen: &Seen, guarded: bool) {
        let may = |own: u64, now: u64| !guarded || own == now;
        match effect {
            Effect::EnsureFinalizer { present } => self.finalizer = *present,
            Effect::BindShoot { seed } if may(seen.shoot, self.version) => {
                if seed != DESTINATION {
                    self.broken.get_or_insert("binds the Shoot to another seed than the destination");
                }
                if self.spec != SOURCE || self.status != Some(SOURCE) {
                    self.broken.get_or_insert("takes the Shoot away from another seed");
                }
                if self.operation.1 == "Processing" {
                    self.broken.get_or_insert("binds in the middle of an operation");
                }
                if self.now >= self.refused_until {
                    self.spec = DESTINATION;
                    self.version += 1;
                }
            }
            Effect::EnsureCopyNamespace if !self.copy => {
                (self.copy, self.copy_version) = (true, self.copy_version + 1);
            }
            Effect::CopySnapshots if self.copy && self.job_ends.is_none() => {
                self.job_ends = Some(self.now + self.rng.within(5, 400));
            }
            Effect::RemoveCopy if may(seen.copy, self.copy_version) => {
                (self.copy, self.job_ends, self.copy_version) = (false, None, self.copy_version + 1);
            }
            Effect::BindShoot { .. }
            | Effect::EnsureCopyNamespace
            | Effect::CopySnapshots
            | Effect::RemoveCopy => {}
            _ => drop(self.broken.get_or_insert("writes what gardenlet writes")),
        }
    }

    fn check_decision(
        sim: &Sim<Self>,
        _: Side,
        observed: &Observed,
        decision: &Decision<GardenletMigration>,
    ) -> Result<(), String> {
        let starts = |step| {
            let now = decision.records.as_ref().map(|ledger| ledger.state(step));
            now == Some(State::Running) && sim.store.ledger(Side::Garden).state(step) == State::Pending
        };
        let Facts::Garden(facts) = &observed.facts else { return Ok(()) };
        if decision.records.as_ref().is_some_and(|ledger| ledger.phase == Phase::Succeeded) {
            hold(sim.model.restored, "succeeded before gardenlet has restored")?;
        }
        if !starts(Step::SeedBound) {
            return Ok(());
        }
        hold(sim.model.copied.is_some(), "binds before the snapshots are copied")?;
        hold(sim.model.state_bytes < TOO_LARGE, "binds although the ShootState is too large")?;
        hold(facts.binding == BindingAnswer::Accepted, "binds although it would be refused")
    }

    fn check(sim: &mut Sim<Self>) -> Result<(), String> {
        sim.model.broken.map_or(Ok(()), |broken| Err(broken.to_owned()))
    }

    fn check_end(sim: &Sim<Self>) -> Result<(), String> {
        let world = &sim.model;
        let garden = sim.store.ledger(Side::Garden);
        match garden.phase {
            Phase::Succeeded => {
                let is_there = world.spec == DESTINATION && world.status == Some(DESTINATION);
                hold(is_there, "succeeded, and the Shoot is elsewhere")?;
                hold(world.destination_api != world.hibernated, "succeeded without an API server")?;
            }
            Phase::RolledBack | Phase::Cancelled => {
                hold(world.spec != DESTINATION, "rolled back, and the Shoot names the destination")?;
            }
            Phase::Failed if world.bound && world.now >= world.released_at => {}
            // What refuses the binding came in the last moment.
            Phase::Failed if world.spec == ELSEWHERE || world.now < world.refused_until => {}
            phase => return Err(format!("the garden ended as {phase:?}: {}", garden.message)),
        }
        hold(!world.copy, "the namespace of the copy stays for ever")?;
        hold(!world.finalizer, "the finalizer stays for ever")?;
        if world.is_calm {
            hold(garden.phase == Phase::Succeeded, &format!("failed for no reason: {}", garden.message))?;
            let stopped = sim.store.ledger(Side::Source).state(Step::ApiStopped);
            hold(stopped == State::Succeeded, "the end of the API at the source was not measured")?;
        }
        Ok(())
    }

    fn end(sim: &Sim<Self>) -> String {
        let ledger = sim.store.ledger(Side::Garden);
        let said = [&ledger.message, &sim.store.ledger(Side::Destination).message];
        let is_large = said.iter().any(|said| said.contains("gardener-apiserver takes"));
        format!("{:?}{}", ledger.phase, if is_large { ", too large" } else { "" })
    }
}
