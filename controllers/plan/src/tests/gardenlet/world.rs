//! The simulated garden, the buckets, and what people do.

use repot_api::conditions::Reason;
use repot_apimachinery::time::Time;

use super::{
    effects::{self, Seen},
    rules,
    stand_in::Gardenlet,
};
use crate::{
    flow::{Abort, Decision},
    gardenlet::{
        GardenletMigration,
        effect::Effect,
        observed::{
            BackupEntryFacts, BindingAnswer, CopyTask, DestinationFacts, Facts, GardenFacts, LastOperation,
            MigrationRequest, Observed, ShootFacts, StateFacts, StoredState,
        },
    },
    migration::{
        Side,
        observed::{MigrationMode, SourceSnapshot},
    },
    tests::{
        rng::Rng,
        sim::{FaultRates, Ledgers, Model, NEVER, Sim},
    },
};

pub(super) const SOURCE: &str = "seed-a";
pub(super) const DESTINATION: &str = "seed-b";
/// When schedules begin.
const BEGIN: u64 = 10_000;

/// A Shoot, or a BackupEntry.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    pub(super) spec: Option<String>,
    pub(super) status: Option<String>,
    pub(super) fence: String,
    pub(super) version: u64,
    pub(super) generation: u64,
}

impl Bound {
    fn at_source() -> Self {
        let seed = || Some(SOURCE.to_owned());
        Self { spec: seed(), status: seed(), fence: String::new(), version: 1, generation: 1 }
    }

    /// Whether both of its fields name this seed.
    pub(super) fn is_at(&self, seed: &str) -> bool {
        self.spec.as_deref() == Some(seed) && self.status.as_deref() == Some(seed)
    }
}

pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) now: u64,
    faults: FaultRates,
    pub(super) is_calm: bool,
    /// A side that cannot do anything for a while.
    away: Option<(Side, u64, u64)>,
    abort_at: u64,
    pub(super) off_confirmed_at: u64,
    pub(super) loss_confirmed_at: u64,
    /// When the source stops to write, whatever somebody has confirmed.
    pub(super) off_at: u64,
    /// Until when the destination cannot host the Shoot.
    refused_until: u64,
    /// The newest snapshot of the source: its revision, and its time.
    pub(super) newest: (u64, u64),
    pub(super) finalizer: bool,
    pub(super) shoot: Bound,
    pub(super) operation: (&'static str, &'static str),
    pub(super) entry: Bound,
    pub(super) copy: Option<u64>,
    pub(super) copy_version: u64,
    /// The copying Job: when it ends, and the revision that it copies up to.
    pub(super) job: Option<(u64, u64)>,
    pub(super) target: Option<u64>,
    /// When Repot's ShootState was written, and that of Gardener.
    pub(super) states: (u64, Option<u64>),
    pub(super) states_version: u64,
    pub(super) gardenlet: Gardenlet,
    /// What the world did that it must never do.
    pub(super) broken: Option<&'static str>,
}

impl World {
    fn request(&self) -> MigrationRequest {
        MigrationRequest {
            uid: "u".into(),
            mode: MigrationMode::Forced,
            confirmed: self.now >= self.loss_confirmed_at,
            source_off: self.now >= self.off_confirmed_at,
            finalizer: self.finalizer,
            paused: false,
            abort: if self.now >= self.abort_at { Abort::Abort } else { Abort::None },
            released: None,
            abandoned: None::<Reason>,
            retry: 0,
            step_timeout: std::time::Duration::from_secs(600),
            source_seed: SOURCE.into(),
            destination_seed: DESTINATION.into(),
            hibernated: false,
        }
    }

    fn garden_facts(&self) -> GardenFacts {
        let text = |text: &str| text.to_owned();
        GardenFacts {
            other_migration: None,
            followed_by: None,
            refusals: (self.now < self.refused_until).then(|| text("it is not ready")).into_iter().collect(),
            binding: BindingAnswer::Unknown,
            shoot: ShootFacts {
                spec_seed: self.shoot.spec.clone(),
                status_seed: self.shoot.status.clone(),
                last_operation: Some(LastOperation {
                    kind: text(self.operation.0),
                    state: text(self.operation.1),
                    progress: 50,
                    description: text("words"),
                }),
                last_errors: Vec::new(),
                fence: self.shoot.fence.clone(),
            },
            backup_entry: Some(BackupEntryFacts {
                spec_seed: self.entry.spec.clone(),
                status_seed: self.entry.status.clone(),
                fence: self.entry.fence.clone(),
            }),
        }
    }

    fn destination_facts(&self) -> DestinationFacts {
        let (revision, created) = self.newest;
        let state = |written: u64| StoredState { written: Some(Time(written)), bytes: 1_000 };
        let task = self.gardenlet.task.iter().map(|(uid, is_marked)| CopyTask {
            uid: uid.to_string(),
            is_marked: *is_marked,
            difference: None,
        });
        DestinationFacts {
            missing_rights: Vec::new(),
            copy_namespace: self.copy.is_some(),
            bucket_problem: self.copy.is_none().then(|| "there is no Secret yet".to_owned()),
            source_newest: self.copy.map(|_| SourceSnapshot {
                name: format!("Full-{revision}"),
                revision,
                created: Time(created),
            }),
            copied: self.target.filter(|_| self.copy.is_some()),
            states: Some(StateFacts { own: Some(state(self.states.0)), gardener: self.states.1.map(state) }),
            states_problem: None,
            copy_tasks: task.collect(),
            api_ready: self.gardenlet.is_api_ready,
        }
    }
}

impl Model for World {
    type Flow = GardenletMigration;
    type Setup = ();
    type Seen = Seen;

    fn new((): (), mut rng: Rng) -> Self {
        let is_calm = rng.percent(10);
        // Nobody works for the source.
        let mut faults = FaultRates { cut_off: Some((1, 0, NEVER)), ..FaultRates::default() };
        if !is_calm {
            faults = FaultRates {
                crash: rng.within(0, 20),
                lost_write: rng.within(0, 20),
                lost_effect: rng.within(0, 20),
                late: rng.within(0, 30),
                latest: 900,
                twice: rng.within(0, 20),
                stale: rng.within(0, 40),
                ..faults
            };
        }
        let mut unless_calm = |chance: u64| !is_calm && rng.percent(chance);
        let (is_away, is_aborted, is_refused, is_lie) =
            (unless_calm(25), unless_calm(25), unless_calm(15), unless_calm(20));
        let side = if rng.percent(50) { Side::Garden } else { Side::Destination };
        let from = BEGIN + rng.within(0, 2_500);
        let away = is_away.then(|| (side, from, from + rng.within(60, 2_000)));
        let off_confirmed_at = BEGIN + rng.within(0, 900);
        let off_at = if is_lie { off_confirmed_at + rng.within(60, 3_000) } else { off_confirmed_at - 1 };
        let loss_confirmed_at = BEGIN + rng.within(0, 1_800);
        let gardenlet = Gardenlet::new(is_calm, &mut rng);
        Self {
            now: BEGIN,
            faults,
            is_calm,
            away,
            abort_at: if is_aborted { BEGIN + rng.within(0, 4_000) } else { NEVER },
            off_confirmed_at,
            loss_confirmed_at,
            off_at,
            refused_until: if is_refused { BEGIN + rng.within(0, 2_000) } else { 0 },
            newest: (100, BEGIN - 30),
            finalizer: false,
            shoot: Bound::at_source(),
            operation: ("Reconcile", "Succeeded"),
            entry: Bound::at_source(),
            copy: None,
            copy_version: 1,
            job: None,
            target: None,
            states: (BEGIN - 100, rng.percent(50).then_some(BEGIN - 7_000)),
            states_version: 1,
            gardenlet,
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

    fn advance(&mut self, _: &Ledgers<Self>) {
        self.now += if self.rng.percent(5) { 120 } else { self.rng.within(1, 20) };
        if self.now < self.off_at && self.rng.percent(20) {
            self.newest = (self.newest.0 + 1, self.now);
        }
        if let Some((ends, revision)) = self.job.filter(|(ends, _)| *ends <= self.now) {
            let _ = ends;
            self.target = self.target.max(Some(revision));
        }
        Gardenlet::advance(self);
    }

    fn observe(&mut self, side: Side) -> (Observed, Seen) {
        let facts = match side {
            Side::Garden => Facts::Garden(Box::new(self.garden_facts())),
            Side::Source | Side::Destination => Facts::Destination(Box::new(self.destination_facts())),
        };
        (Observed { request: self.request(), facts }, effects::seen(self))
    }

    fn apply(&mut self, _: Side, effect: &Effect, seen: &Seen, guarded: bool) {
        effects::apply(self, effect, seen, guarded);
    }

    fn check_decision(
        sim: &Sim<Self>,
        _: Side,
        _: &Observed,
        decision: &Decision<GardenletMigration>,
    ) -> Result<(), String> {
        rules::decision(sim, decision)
    }

    fn check(sim: &mut Sim<Self>) -> Result<(), String> {
        sim.model.broken.map_or(Ok(()), |broken| Err(broken.to_owned()))
    }

    fn check_end(sim: &Sim<Self>) -> Result<(), String> {
        rules::at_the_end(sim)
    }

    fn end(sim: &Sim<Self>) -> String {
        let ledger = sim.store.ledger(Side::Garden);
        let destination = sim.store.ledger(Side::Destination);
        let said = [&ledger.message, &destination.message];
        let why =
            if said.iter().any(|said| said.contains("is not off")) { ", the source wrote on" } else { "" };
        format!("{:?}{why}", ledger.phase)
    }
}
