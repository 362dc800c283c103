//! The simulated garden, zone and cloud, with two seeds.

use std::collections::BTreeSet;

use super::{
    effects,
    gardenlet::Gardenlet,
    observe,
    people::{Interference, SetByHand},
    rules,
    script::{Play, Script},
    site::{Etcd, SeedState, Stored, Workload},
    trouble::DrawnFaults,
    zone::{Zone, is_in},
};
use crate::{
    flow::Decision,
    ledger::Phase,
    migration::{
        MigrationFlow, Side, Step,
        effect::Effect,
        observed::{Observed, Operation, OwnerId},
    },
    named::Named,
    tests::{
        rng::Rng,
        sim::{Fate, FaultRates, Ledgers, Model, NEVER, Sim},
    },
};

pub(super) const SOURCE: &str = "seed-a";
pub(super) const DESTINATION: &str = "seed-b";
/// Replicas before the migration.
pub(super) const API: u32 = 2;
pub(super) const CONTROLLERS: u32 = 3;
pub(super) const KUBE: u32 = 1;
pub(super) const MEMBERS: u32 = 3;
pub(super) const TTL: u64 = 120;

/// What a person has deleted is there again after so long.
const SETTLES: u64 = 600;

/// What kind of Shoot it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Awake,
    Hibernated,
    Workerless,
    OneMember,
}

/// What is simulated: a Shoot, and one certain fault, or else whatever the schedule draws.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) kind: Kind,
    pub(super) script: Option<Script>,
}

impl Setup {
    pub(super) const fn of(kind: Kind) -> Self {
        Self { kind, script: None }
    }
}

/// Versions of the objects that a decision was made on.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) versions: [u64; 10],
}

pub(super) struct Clusters {
    pub(super) rng: Rng,
    pub(super) kind: Kind,
    pub(super) now: u64,
    pub(super) faults: FaultRates,
    pub(super) trouble: DrawnFaults,
    pub(super) is_calm: bool,
    pub(super) abort_at: u64,
    /// Until when other migrations go first.
    pub(super) queued_until: u64,
    /// The abort does not ask whether it is granted.
    pub(super) is_forced: bool,
    pub(super) play: Option<Play>,
    /// Until when the controller of each side can do nothing.
    pub(super) away_until: [u64; 3],
    /// How many migrations of the Shoot there were, and when the last one began and ended.
    pub(super) migrations: u32,
    pub(super) begun_at: u64,
    pub(super) ended_at: Option<u64>,
    /// Names of the seeds in the migration that runs.
    pub(super) from: &'static str,
    pub(super) to: &'static str,
    pub(super) members: u32,
    // The garden.
    /// Somebody has hibernated the Shoot since, or woken it up.
    pub(super) is_hibernation_changed: bool,
    pub(super) by_hand: SetByHand,
    /// What people did, for the one who has to understand a failure.
    pub(super) interfered: Vec<(u64, Interference)>,
    pub(super) shoot_version: u64,
    pub(super) migration_version: u64,
    pub(super) finalizer: bool,
    /// How often somebody has asked to try again.
    pub(super) retry: u32,
    /// Since when a migration that has failed waits for somebody.
    pub(super) failed_at: Option<u64>,
    pub(super) gardenlet: Gardenlet,
    pub(super) operation: Operation,
    pub(super) spec_seed: String,
    pub(super) status_seed: String,
    /// The seed of the BackupEntry in the garden, in spec and status.
    pub(super) entry_seed: String,
    /// Machines and states of extensions in the ShootState.
    pub(super) state: Option<(BTreeSet<u32>, u32)>,
    pub(super) source_backup_entry: bool,
    pub(super) machine_guard: bool,
    pub(super) zone: Zone,
    pub(super) api_ttl: u64,
    pub(super) api_ttl_fence: String,
    /// The TTL before the migration.
    pub(super) former_ttl: u64,
    /// Side that clients reach, and until when they keep it.
    pub(super) client: (Side, u64),
    // The cloud.
    pub(super) vms: BTreeSet<u32>,
    pub(super) next_vm: u32,
    // The seeds.
    pub(super) source: SeedState,
    pub(super) destination: SeedState,
    pub(super) copied: Option<u64>,
    pub(super) final_copied: Option<Stored>,
    pub(super) standby: bool,
    /// All that was acknowledged and has to be there.
    pub(super) must: Vec<u32>,
    /// What the clusters did that they must never do.
    pub(super) broken: Option<&'static str>,
}

impl Clusters {
    pub(super) fn site(&self, side: Side) -> &SeedState {
        if side == Side::Source { &self.source } else { &self.destination }
    }

    pub(super) fn site_mut(&mut self, side: Side) -> &mut SeedState {
        if side == Side::Source { &mut self.source } else { &mut self.destination }
    }

    pub(super) fn is_awake(&self) -> bool {
        self.kind != Kind::Hibernated
    }

    pub(super) fn has_workers(&self) -> bool {
        self.kind != Kind::Workerless
    }

    /// These sides can do nothing for so many seconds.
    pub(super) fn leave(&mut self, sides: &[Side], period: u64) {
        let until = self.now + period;
        for (at, side) in Side::ALL.iter().enumerate() {
            if sides.contains(side) {
                self.away_until[at] = self.away_until[at].max(until);
            }
        }
    }

    pub(super) fn is_side_away(&self, side: Side) -> bool {
        let mut sides = Side::ALL.iter().zip(self.away_until);
        let is_told = sides.any(|(one, until)| *one == side && self.now < until);
        let mut pauses = self.trouble.pauses.iter();
        is_told || pauses.any(|(at, window)| Side::ALL[*at] == side && is_in(*window, self.now))
    }
}

fn members_of(kind: Kind) -> u32 {
    if kind == Kind::OneMember { 1 } else { MEMBERS }
}

/// The owner and the control plane at the source, as they are before the first migration.
fn source_of(kind: Kind) -> (OwnerId, SeedState) {
    let own = OwnerId { seed: SOURCE.into(), epoch: 1 };
    let if_awake = |replicas| if kind == Kind::Hibernated { 0 } else { replicas };
    let mut source = SeedState::new(Etcd::running(own.clone(), if_awake(members_of(kind)), vec![1, 2]));
    source.api = Workload::of(if_awake(API));
    source.controllers = Workload::of(if_awake(CONTROLLERS));
    source.kube_controllers = Workload::of(if_awake(KUBE));
    source.exists = true;
    source.machines = if kind == Kind::Workerless { BTreeSet::new() } else { BTreeSet::from([1, 2, 3]) };
    (own, source)
}

impl Model for Clusters {
    type Flow = MigrationFlow;
    type Setup = Setup;
    type Seen = Seen;

    fn new(setup: Setup, mut rng: Rng) -> Self {
        let kind = setup.kind;
        let is_calm = setup.script.is_some() || rng.percent(10);
        let (own, source) = source_of(kind);
        let vms = source.machines.clone();
        let mut clusters = Self {
            rng,
            kind,
            now: 1_000,
            faults: FaultRates::default(),
            trouble: DrawnFaults::default(),
            is_calm,
            abort_at: NEVER,
            queued_until: 0,
            is_forced: false,
            play: setup.script.map(Play::new),
            away_until: [0; 3],
            migrations: 1,
            begun_at: 1_000,
            ended_at: None,
            from: SOURCE,
            to: DESTINATION,
            members: members_of(kind),
            is_hibernation_changed: false,
            by_hand: SetByHand::default(),
            interfered: Vec::new(),
            shoot_version: 1,
            migration_version: 1,
            finalizer: false,
            retry: 0,
            failed_at: None,
            gardenlet: Gardenlet::new(),
            operation: Operation::Other,
            spec_seed: DESTINATION.into(),
            status_seed: SOURCE.into(),
            entry_seed: SOURCE.into(),
            state: None,
            source_backup_entry: false,
            machine_guard: false,
            zone: Zone::new(own),
            api_ttl: TTL,
            former_ttl: TTL,
            api_ttl_fence: String::new(),
            client: (Side::Source, 0),
            next_vm: u32::try_from(vms.len()).unwrap_or_default(),
            vms,
            source,
            destination: SeedState::new(Etcd::new(OwnerId { seed: DESTINATION.into(), epoch: 0 })),
            copied: None,
            final_copied: None,
            standby: false,
            must: vec![1, 2],
            broken: None,
        };
        clusters.draw_trouble();
        clusters
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

    fn is_settled(&self) -> bool {
        self.interfered.last().is_none_or(|(at, _)| self.now >= at + SETTLES)
    }

    fn advance(&mut self, ledgers: &Ledgers<Self>) {
        // What is waited for that long takes hours, and little happens meanwhile, or when all is over.
        let is_over = !ledgers.is_empty() && ledgers.values().all(|ledger| ledger.phase.is_end());
        let is_slow = self.now > self.begun_at + 15_000 || is_over;
        self.ended_at = if is_over { self.ended_at.or(Some(self.now)) } else { None };
        self.now += match self.rng.percent(5) {
            true => 120,
            false if is_slow => self.rng.within(60, 600),
            false if self.play.is_some() => self.rng.within(5, 35),
            false => self.rng.within(1, 20),
        };
        let destination = ledgers.get(&Side::Destination);
        let is_committed = destination.is_some_and(|ledger| ledger.is_started(Step::MoveCommitted));
        let is_begun = ledgers.get(&Side::Garden).is_some_and(|ledger| ledger.notes.hibernated.is_some());
        self.run_people(is_begun, is_committed);
        self.run_gardenlet();
        self.run_retries(ledgers);
        self.run_sites();
        self.run_clients();
        self.run_extensions();
        self.run_machines();
    }

    fn clock(&self, side: Side) -> u64 {
        let mut skew = Side::ALL.iter().zip(self.trouble.skew);
        self.now + skew.find(|(one, _)| **one == side).map_or(0, |(_, ahead)| ahead)
    }

    fn is_away(&self, side: Side) -> bool {
        self.is_side_away(side)
    }

    fn interrupt(
        &mut self,
        side: Side,
        observed: &Observed,
        ledgers: &Ledgers<Self>,
        decision: &mut Decision<MigrationFlow>,
    ) {
        let Some(mut play) = self.play.take() else { return };
        play.interrupt(self, (side, observed), ledgers, decision);
        self.play = Some(play);
    }

    fn fate(&mut self, side: Side, effect: &Effect) -> Option<Fate> {
        let now = self.now;
        self.play.as_mut()?.fate(now, side, effect)
    }

    fn observe(&mut self, side: Side) -> (Observed, Seen) {
        (observe::observe(self, side), effects::seen(self))
    }

    fn apply(&mut self, side: Side, effect: &Effect, seen: &Seen, guarded: bool) {
        effects::apply(self, side, effect, seen, guarded);
    }

    fn check_decision(
        sim: &Sim<Self>,
        side: Side,
        _: &Observed,
        decision: &Decision<MigrationFlow>,
    ) -> Result<(), String> {
        rules::decision(sim, side, decision)
    }

    fn again(&mut self, ledgers: &Ledgers<Self>) -> bool {
        let is_next = self.comes_again(ledgers);
        if is_next {
            self.begin_again(ledgers[&Side::Garden].phase == Phase::Succeeded);
        }
        is_next
    }

    fn check(sim: &mut Sim<Self>) -> Result<(), String> {
        rules::always(&sim.model)
    }

    fn check_end(sim: &Sim<Self>) -> Result<(), String> {
        rules::at_the_end(sim)
    }

    fn describe(&self) -> String {
        let interference = &self.interfered;
        format!("{:?}\n{:?}\n{:?}\n{interference:?}", self.faults, self.trouble, self.zone)
    }

    fn end(sim: &Sim<Self>) -> String {
        let again = if sim.model.retry > 0 { ", tried again" } else { "" };
        format!("{:?} {:?}{again}", sim.build.setup.kind, sim.store.ledger(Side::Garden).phase)
    }
}
