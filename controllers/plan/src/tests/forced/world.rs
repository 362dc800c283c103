//! The simulated garden and zone, a source that is dead, cut off or slow, and a destination.

use super::{
    effects::{self, Seen},
    members::{Bucket, Defect, Members, OwnerZone, Window, is_in},
    observe, rules,
};
use crate::{
    flow::Decision,
    migration::{
        MigrationFlow, Side,
        effect::Effect,
        observed::{Ignored, Observed, Operation, OwnerId},
    },
    named::Named,
    tests::{
        classic::site::{Requests, Workload},
        rng::Rng,
        sim::{FaultRates, Ledgers, Model, NEVER, Sim},
    },
};

pub(super) const SOURCE: &str = "seed-a";
pub(super) const DESTINATION: &str = "seed-b";
/// Replicas before the migration.
pub(super) const API: u32 = 2;
pub(super) const CONTROLLERS: u32 = 3;
pub(super) const KUBE: u32 = 1;
pub(super) const MEMBERS: u32 = 3;

/// Which defect the simulated members have, if any.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Setup {
    pub(super) defect: Option<Defect>,
}

/// What a seed has of the Shoot: workloads, members and extension resources.
#[derive(Clone, Debug)]
pub(super) struct SimulatedSeed {
    pub(super) members: Members,
    pub(super) api: Workload,
    pub(super) controllers: Workload,
    /// kube-controller-manager, which the etcd fences.
    pub(super) kube_controllers: Workload,
    pub(super) dns_records: Requests,
    pub(super) infrastructure: Requests,
    pub(super) extensions: Requests,
    pub(super) workers: Requests,
    pub(super) exists: bool,
    pub(super) version: u64,
}

impl SimulatedSeed {
    fn new(members: Members, api: Workload, controllers: Workload, exists: bool) -> Self {
        Self {
            members,
            api,
            kube_controllers: if exists { Workload::of(KUBE) } else { Workload::default() },
            controllers,
            dns_records: Requests::default(),
            infrastructure: Requests::default(),
            extensions: Requests::default(),
            workers: Requests::default(),
            exists,
            version: 1,
        }
    }

    pub(super) fn is_api_ready(&self) -> bool {
        self.api.running > 0 && self.members.serving
    }

    pub(super) fn left(&self) -> Vec<String> {
        let pods = self.controllers.running
            + self.kube_controllers.running
            + self.api.running
            + self.members.workload.running;
        if self.exists || pods > 0 { vec!["Namespace".to_owned()] } else { Vec::new() }
    }
}

/// What goes wrong, drawn at the start.
#[derive(Clone, Debug, Default)]
pub(super) struct DrawnFaults {
    /// Pods of the source do not run.
    pub(super) power_off: Window,
    /// Members of the source get no answer from DNS.
    pub(super) dns_cut: Window,
    /// Members of the source do not reach their bucket.
    pub(super) store_cut: Window,
    /// The destination does not reach the bucket of the source.
    pub(super) bucket_cut: Window,
    pub(super) leases_stale_until: u64,
    /// Whether the operator has configured a command that takes credentials away.
    pub(super) has_quarantine_command: bool,
    /// How often, in percent, something that is asked for does not answer.
    pub(super) flaps: u64,
}

pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) setup: Setup,
    pub(super) now: u64,
    pub(super) faults: FaultRates,
    pub(super) trouble: DrawnFaults,
    pub(super) confirmed_at: u64,
    pub(super) abort_at: u64,
    /// When a person has stopped the controllers of the source, and confirms it.
    pub(super) stopped_at: u64,
    /// Whether the credentials of the source seed are revoked.
    pub(super) is_quarantined: bool,
    pub(super) finalizer: bool,
    pub(super) ignored: Ignored,
    pub(super) operation: Operation,
    pub(super) spec_seed: String,
    pub(super) status_seed: String,
    /// The seed of the BackupEntry in the garden, in spec and status.
    pub(super) entry_seed: String,
    pub(super) shoot_version: u64,
    pub(super) migration_version: u64,
    pub(super) zone: OwnerZone,
    pub(super) api_at: Side,
    pub(super) source: SimulatedSeed,
    pub(super) destination: SimulatedSeed,
    pub(super) bucket: Bucket,
    pub(super) backup_entry: bool,
    pub(super) older_copied: bool,
    pub(super) machine_guard: bool,
    /// A live migration before has left a temporary client of the tunnel in the Shoot.
    pub(super) has_temporary_client: bool,
    /// All that was acknowledged and has to be there.
    pub(super) must: Vec<u32>,
    /// How much the destination held when it began without a final snapshot.
    pub(super) founded_with: Option<usize>,
    /// What the clusters did that they must never do.
    pub(super) broken: Option<&'static str>,
}

impl World {
    pub(super) fn site(&self, side: Side) -> &SimulatedSeed {
        if side == Side::Source { &self.source } else { &self.destination }
    }

    pub(super) fn site_mut(&mut self, side: Side) -> &mut SimulatedSeed {
        if side == Side::Source { &mut self.source } else { &mut self.destination }
    }

    /// From a short time to an hour, at some time in the first half hour.
    fn draw_window(&mut self, chance: u64) -> Window {
        if !self.rng.percent(chance) {
            return (0, 0);
        }
        let from = self.now + self.rng.within(0, 1_800);
        (from, from + self.rng.within(10, 3_600))
    }

    fn draw(&mut self) {
        self.trouble = DrawnFaults {
            power_off: self.draw_window(40),
            dns_cut: self.draw_window(30),
            store_cut: self.draw_window(30),
            bucket_cut: self.draw_window(15),
            leases_stale_until: self.draw_window(20).1,
            has_quarantine_command: self.rng.percent(40),
            flaps: if self.rng.percent(30) { 5 } else { 0 },
        };
        self.has_temporary_client = self.rng.percent(30);
        self.zone.silent = self.draw_window(10);
        self.zone.lag = if self.rng.percent(40) { self.rng.within(1, 90) } else { 0 };
        self.source.members.slow = self.rng.within(0, 10);
        self.destination.members.slow = self.rng.within(0, 10);
        self.confirmed_at = if self.rng.percent(5) { NEVER } else { self.now + self.rng.within(0, 900) };
        self.abort_at = if self.rng.percent(10) { self.now + self.rng.within(0, 1_200) } else { NEVER };
        let latest = if self.rng.percent(50) { 60 } else { 30_000 };
        self.stopped_at = self.now + self.rng.within(0, latest);
        // The controllers of a dead seed do nothing; they come back after a while, or never.
        let until = if self.rng.percent(40) { NEVER } else { self.now + self.rng.within(60, 40_000) };
        let mut rate = |most| self.rng.within(0, most);
        self.faults = FaultRates {
            crash: rate(20),
            lost_write: rate(20),
            lost_effect: rate(20),
            late: rate(30),
            latest: 1_800,
            twice: rate(20),
            stale: rate(40),
            cut_off: Some((1, 0, until)),
        };
    }

    /// What the command of the operator does. It may fail, and is asked for again.
    pub(super) fn revoke_credentials(&mut self) {
        if self.zone.record().seed != DESTINATION {
            self.broken.get_or_insert("revokes credentials of a seed that is the owner");
        }
        self.is_quarantined |= self.trouble.has_quarantine_command && self.rng.percent(50);
    }

    fn run_sites(&mut self) {
        let (now, defect) = (self.now, self.setup.defect);
        let mut rng = Rng::new(self.rng.next());
        for side in [Side::Source, Side::Destination] {
            let site = self.site_mut(side);
            site.controllers.advance(now);
            site.kube_controllers.advance(now);
            site.api.advance(now);
        }
        let is_off = is_in(self.trouble.power_off, now);
        if is_off {
            let source = &mut self.source;
            for workload in [
                &mut source.controllers,
                &mut source.kube_controllers,
                &mut source.api,
                &mut source.members.workload,
            ] {
                workload.delete_pods(now, &mut rng);
            }
        }
        let zone = (!is_in(self.trouble.dns_cut, now)).then_some(&self.zone);
        self.source.members.look(zone, now, defect, &mut rng);
        if !is_off && !is_in(self.trouble.store_cut, now) {
            self.source.members.store(&mut self.bucket, now, &mut rng);
        }
        let is_readable = self.backup_entry && !is_in(self.trouble.bucket_cut, now);
        let bucket = is_readable.then_some(&self.bucket);
        if self.destination.members.found(&self.zone, bucket, now, defect) {
            // What is missing is lost, and was announced.
            self.must = self.destination.members.content.clone().unwrap_or_default();
            self.founded_with = Some(self.must.len());
        }
        if self.source.members.serving && self.destination.members.serving {
            self.broken.get_or_insert("members of two sides could be written");
        }
        // A machine-controller-manager deletes VMs that it does not know, whether the API of the Shoot answers or not.
        let is_stopped =
            now >= self.stopped_at || self.is_quarantined || self.source.controllers.running == 0;
        if self.destination.controllers.running > 0 && !is_stopped {
            self.broken.get_or_insert("controllers of two sides act");
        }
    }

    /// Clients write wherever an API answers.
    fn run_clients(&mut self) {
        for side in [Side::Source, Side::Destination] {
            if !self.site(side).is_api_ready() || !self.rng.percent(60) {
                continue;
            }
            let (next, must) = (self.must.last().copied().unwrap_or_default() + 1, self.must.clone());
            let Some(content) = &mut self.site_mut(side).members.content else { continue };
            let knows_all = *content == must;
            content.push(next);
            self.must.push(next);
            if !knows_all {
                self.broken.get_or_insert("served without what was acknowledged before");
            }
        }
    }
}

impl Model for World {
    type Flow = MigrationFlow;
    type Setup = Setup;
    type Seen = Seen;

    fn new(setup: Setup, rng: Rng) -> Self {
        let own = OwnerId { seed: SOURCE.into(), epoch: 3 };
        let content = vec![1, 2];
        let mut members = Members::new(own.clone(), Workload::of(MEMBERS), Some(content.clone()));
        members.volumes = "first".into();
        let source = SimulatedSeed::new(members, Workload::of(API), Workload::of(CONTROLLERS), true);
        let none = OwnerId { seed: DESTINATION.into(), epoch: 0 };
        let members = Members::new(none, Workload::default(), None);
        let destination = SimulatedSeed::new(members, Workload::default(), Workload::default(), false);
        let mut world = Self {
            rng,
            setup,
            now: 1_000,
            faults: FaultRates::default(),
            trouble: DrawnFaults::default(),
            confirmed_at: 0,
            abort_at: NEVER,
            stopped_at: 0,
            is_quarantined: false,
            finalizer: false,
            ignored: Ignored::No,
            operation: Operation::Other,
            spec_seed: SOURCE.into(),
            status_seed: SOURCE.into(),
            entry_seed: SOURCE.into(),
            shoot_version: 1,
            migration_version: 1,
            zone: OwnerZone::new(own),
            api_at: Side::Source,
            source,
            destination,
            bucket: Bucket { newest: (content.clone(), 1_000), last: None },
            backup_entry: false,
            older_copied: false,
            machine_guard: false,
            has_temporary_client: false,
            must: content,
            founded_with: None,
            broken: None,
        };
        world.draw();
        world
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
        let mut awaited = [Side::Garden, Side::Destination].iter().map(|side| &ledgers[side]);
        let is_slow = self.now > 12_000 || awaited.all(|ledger| ledger.phase.is_end());
        self.now += if is_slow { self.rng.within(60, 600) } else { self.rng.within(1, 20) };
        self.run_sites();
        self.run_clients();
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
        rules::decision(&sim.model, side, decision)
    }

    fn check(sim: &mut Sim<Self>) -> Result<(), String> {
        rules::always(sim)
    }

    fn check_end(sim: &Sim<Self>) -> Result<(), String> {
        rules::at_the_end(sim)
    }

    fn describe(&self) -> String {
        format!("{:?}\n{:?}\n{:?}", self.faults, self.trouble, self.zone)
    }

    fn end(sim: &Sim<Self>) -> String {
        let world = &sim.model;
        let source = match sim.store.ledger(Side::Source).phase {
            _ if sim.is_dead(Side::Source) => "source is dead".to_owned(),
            phase => format!("source {phase:?}"),
        };
        let loss = if world.founded_with.is_some() { "without a final snapshot" } else { "" };
        format!("{:?}, {source} {loss}", sim.store.ledger(Side::Destination).phase)
    }
}

/// Sides in the order of their numbers: the source is the second.
#[test]
fn source_is_the_second_side() {
    assert_eq!(Side::ALL[1], Side::Source);
}
