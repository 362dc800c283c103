//! The simulated garden, zone and cloud, with two seeds.

use std::collections::BTreeSet;

use super::{
    effects, observe, rules,
    script::{Play, Script},
    site::{Etcd, SeedState, Stored, Workload},
};
use crate::{
    classic::{
        ClassicMigration, Side,
        effect::Effect,
        observed::{ExtensionOperation, Observed, Operation, OwnerId},
    },
    flow::Decision,
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
pub(super) const MEMBERS: u32 = 3;
pub(super) const TTL: u64 = 120;

/// What kind of Shoot it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Awake,
    Hibernated,
    Workerless,
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

/// Waits that never end, or end late.
#[derive(Clone, Debug, Default)]
pub(super) struct LateEvents {
    pub(super) unfit: bool,
    pub(super) bucket_unreadable: bool,
    pub(super) unresolved: bool,
    pub(super) no_standby: bool,
    pub(super) machines_differ_until: u64,
    pub(super) leases_stale_until: u64,
    pub(super) source_removed_at: u64,
}

pub(super) struct Clusters {
    pub(super) rng: Rng,
    pub(super) kind: Kind,
    pub(super) now: u64,
    pub(super) faults: FaultRates,
    pub(super) trouble: LateEvents,
    pub(super) is_calm: bool,
    pub(super) abort_at: u64,
    pub(super) play: Option<Play>,
    /// Until when the controller of each side can do nothing.
    away_until: [u64; 3],
    /// When the servers of the zone answer again, and the bucket of the source.
    pub(super) zone_back_at: u64,
    pub(super) bucket_back_at: u64,
    // The garden.
    pub(super) shoot_version: u64,
    pub(super) migration_version: u64,
    pub(super) finalizer: bool,
    pub(super) operation: Operation,
    pub(super) spec_seed: String,
    pub(super) status_seed: String,
    /// Machines and states of extensions in the ShootState.
    pub(super) state: Option<(BTreeSet<u32>, u32)>,
    pub(super) source_backup_entry: bool,
    pub(super) machine_guard: bool,
    // The zone.
    pub(super) owner: Option<OwnerId>,
    pub(super) highest_epoch: u64,
    pub(super) api_dns: Side,
    pub(super) api_ttl: u64,
    pub(super) api_ttl_fence: String,
    /// Side that clients reach, and until when they keep it.
    pub(super) client: (Side, u64),
    // The cloud.
    pub(super) vms: BTreeSet<u32>,
    next_vm: u32,
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
        sides.any(|(one, until)| *one == side && self.now < until)
    }

    fn break_rule(&mut self, rule: &'static str) {
        self.broken.get_or_insert(rule);
    }

    fn run_sites(&mut self) {
        let record = (self.now >= self.zone_back_at).then(|| self.owner.clone());
        for side in [Side::Source, Side::Destination] {
            let now = self.now;
            let mut rng = Rng::new(self.rng.next());
            let site = self.site_mut(side);
            site.controllers.advance(now);
            site.api.advance(now);
            let taken = site.etcd.advance(record.as_ref(), now, &mut rng);
            site.final_snapshot = taken.or(site.final_snapshot.take());
        }
        if self.source.etcd.serving && self.destination.etcd.serving {
            self.break_rule("members of two sides could be written");
        }
        if self.source.controllers.running > 0 && self.destination.controllers.running > 0 {
            self.break_rule("controllers of two sides act");
        }
    }

    fn run_clients(&mut self) {
        if self.now >= self.client.1 {
            self.client = (self.api_dns, self.now + self.api_ttl);
        }
        let (side, now) = (self.client.0, self.now);
        if !self.site(side).is_api_ready(now) || !self.rng.percent(60) {
            return;
        }
        let (next, must) = (self.must.last().copied().unwrap_or_default() + 1, self.must.clone());
        let site = self.site_mut(side);
        let volumes = site.etcd.volumes.clone();
        let Some(data) = site.etcd.data.get_mut(&volumes) else { return };
        // Whoever acknowledges a write has to know all that was acknowledged before.
        let knows_all = *data == must;
        data.push(next);
        self.must.push(next);
        if !knows_all {
            self.break_rule("served without what was acknowledged before");
        }
    }

    /// Extension controllers reconcile, and store another state, until they have migrated.
    fn run_extensions(&mut self) {
        let has_migrated = self.source.extensions.is_done(ExtensionOperation::Migrate, self.now);
        if self.source.exists && !has_migrated && self.rng.percent(3) {
            self.source.extension_state += 1;
        }
    }

    /// Machine controllers make VMs, and delete those that they know nothing of.
    fn run_machines(&mut self) {
        for side in [Side::Source, Side::Destination] {
            if self.site(side).controllers.running == 0 || !self.has_workers() {
                continue;
            }
            if self.site(side).machines != self.vms {
                self.break_rule("a VM without a Machine was deleted, or a Machine got another VM");
            }
            if self.rng.percent(5) && self.site(side).is_api_ready(self.now) {
                self.next_vm += 1;
                let vm = self.next_vm;
                self.vms.insert(vm);
                self.site_mut(side).machines.insert(vm);
            }
        }
    }
}

impl Model for Clusters {
    type Flow = ClassicMigration;
    type Setup = Setup;
    type Seen = Seen;

    fn new(setup: Setup, mut rng: Rng) -> Self {
        let kind = setup.kind;
        let is_calm = setup.script.is_some() || rng.percent(10);
        let faults = if is_calm { FaultRates::default() } else { faults(&mut rng) };
        let mut sometimes = |chance| !is_calm && rng.percent(chance);
        let mut trouble = LateEvents {
            unfit: sometimes(3),
            bucket_unreadable: sometimes(3),
            unresolved: sometimes(3),
            no_standby: sometimes(10),
            ..LateEvents::default()
        };
        let (aborts, late_api, late_etcd) = (sometimes(25), sometimes(15), sometimes(15));
        let late = [sometimes(10), sometimes(10), sometimes(10)];
        let mut late = late.map(|is_late| if is_late { rng.within(1_000, 12_000) } else { 0 });
        trouble.machines_differ_until = std::mem::take(&mut late[0]);
        trouble.leases_stale_until = late[1];
        trouble.source_removed_at = late[2];
        let abort_at = if aborts { 1_000 + rng.within(0, 4_000) } else { NEVER };
        let is_awake = kind != Kind::Hibernated;
        let own = OwnerId { seed: SOURCE.into(), epoch: 1 };
        let mut source =
            SeedState::new(Etcd::running(own.clone(), if is_awake { MEMBERS } else { 0 }, vec![1, 2]));
        source.api = Workload::of(if is_awake { API } else { 0 });
        source.controllers = Workload::of(if is_awake { CONTROLLERS } else { 0 });
        source.exists = true;
        let machines = if kind == Kind::Workerless { BTreeSet::new() } else { BTreeSet::from([1, 2, 3]) };
        source.machines.clone_from(&machines);
        let mut destination = SeedState::new(Etcd::new(OwnerId { seed: DESTINATION.into(), epoch: 0 }));
        destination.api_ready_at = if late_api { rng.within(2_000, 9_000) } else { 0 };
        destination.etcd.serves_at = if late_etcd { rng.within(2_000, 9_000) } else { 0 };
        Self {
            rng,
            kind,
            now: 1_000,
            faults,
            trouble,
            is_calm,
            abort_at,
            play: setup.script.map(Play::new),
            away_until: [0; 3],
            zone_back_at: 0,
            bucket_back_at: 0,
            shoot_version: 1,
            migration_version: 1,
            finalizer: false,
            operation: Operation::Other,
            spec_seed: DESTINATION.into(),
            status_seed: SOURCE.into(),
            state: None,
            source_backup_entry: false,
            machine_guard: false,
            owner: Some(own),
            highest_epoch: 1,
            api_dns: Side::Source,
            api_ttl: TTL,
            api_ttl_fence: String::new(),
            client: (Side::Source, 0),
            vms: machines,
            next_vm: 3,
            source,
            destination,
            copied: None,
            final_copied: None,
            standby: false,
            must: vec![1, 2],
            broken: None,
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

    fn advance(&mut self, ledgers: &Ledgers<Self>) {
        // What is waited for that long takes hours, and little happens meanwhile, or when all is over.
        let is_over = ledgers.values().all(|ledger| ledger.phase.is_end());
        let is_slow = self.now > 15_000 || is_over;
        self.now += match self.rng.percent(5) {
            true => 120,
            false if is_slow => self.rng.within(60, 600),
            false if self.play.is_some() => self.rng.within(5, 35),
            false => self.rng.within(1, 20),
        };
        self.run_sites();
        self.run_clients();
        self.run_extensions();
        self.run_machines();
    }

    fn is_away(&self, side: Side) -> bool {
        self.is_side_away(side)
    }

    fn interrupt(
        &mut self,
        side: Side,
        observed: &Observed,
        ledgers: &Ledgers<Self>,
        decision: &mut Decision<ClassicMigration>,
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
        decision: &Decision<ClassicMigration>,
    ) -> Result<(), String> {
        rules::decision(sim, side, decision)
    }

    fn check(sim: &mut Sim<Self>) -> Result<(), String> {
        sim.model.broken.map_or(Ok(()), |broken| Err(broken.to_owned()))
    }

    fn check_end(sim: &Sim<Self>) -> Result<(), String> {
        rules::at_the_end(sim)
    }

    fn end(sim: &Sim<Self>) -> String {
        format!("{:?} {:?}", sim.build.setup.kind, sim.store.ledger(Side::Garden).phase)
    }
}

fn faults(rng: &mut Rng) -> FaultRates {
    let mut faults = FaultRates {
        crash: rng.within(0, 20),
        lost_write: rng.within(0, 20),
        lost_effect: rng.within(0, 20),
        late: rng.within(0, 30),
        twice: rng.within(0, 20),
        stale: rng.within(0, 40),
        cut_off: None,
    };
    if rng.percent(30) {
        let from = 1_000 + rng.within(0, 3_000);
        let until = if rng.percent(25) { NEVER } else { from + rng.within(60, 5_000) };
        let side = usize::try_from(rng.within(0, 2)).unwrap_or_default();
        faults.cut_off = Some((side, from, until));
    }
    faults
}
