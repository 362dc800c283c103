//! The simulated garden and zone, and two seeds that share an etcd.

use super::{
    deaths::Deaths,
    effects::{self, Seen},
    etcd::{EtcdObject, MEMBERS, SharedEtcd},
    faults::DrawnFaults,
    observe, rules,
    tunnel::TunnelClients,
};
use crate::{
    flow::{Decision, Input},
    live,
    migration::{
        LOW_TTL, MigrationFlow, Side, Step,
        effect::Effect,
        observed::{ExtensionOperation, Ignored, LiveCondition, Observed, Operation, OwnerId},
    },
    tests::{
        classic::{
            site::{Requests, Workload},
            zone::{Zone, is_in},
        },
        rng::Rng,
        sim::{Build, FaultRates, Ledgers, Model, NEVER, Sim},
    },
};

pub(super) const SOURCE: &str = "seed-a";
pub(super) const DESTINATION: &str = "seed-b";
/// Replicas before the migration.
pub(super) const API: u32 = 2;
pub(super) const TUNNEL: u32 = 1;
pub(super) const CONTROLLERS: u32 = 3;
pub(super) const KUBE: u32 = 1;
pub(super) const TTL: u64 = 120;
/// How long clients believe an address beyond its TTL, in seconds.
const LATE: u64 = 8;
/// How long clients may fail after what explains it has ended.
const RECOVERY: u64 = 60;

/// What a seed has of the Shoot.
#[derive(Clone, Debug, Default)]
pub(super) struct SimulatedSeed {
    pub(super) etcd: EtcdObject,
    pub(super) api: Workload,
    pub(super) tunnel: Workload,
    pub(super) controllers: Workload,
    pub(super) kube_controllers: Workload,
    pub(super) dns_records: Requests,
    /// The DNS controller has written the record of the API since it was asked to.
    has_written_dns: bool,
    pub(super) infrastructure: Requests,
    pub(super) extensions: Requests,
    pub(super) workers: Requests,
    pub(super) exists: bool,
    pub(super) version: u64,
}

impl SimulatedSeed {
    pub(super) fn workloads(&mut self) -> [&mut Workload; 4] {
        [&mut self.api, &mut self.tunnel, &mut self.controllers, &mut self.kube_controllers]
    }

    pub(super) fn ask_dns(&mut self, operation: ExtensionOperation, now: u64, rng: &mut Rng) {
        self.has_written_dns &= self.dns_records.last == Some(operation);
        self.dns_records.ask(operation, now, rng);
    }

    pub(super) fn left(&self) -> Vec<String> {
        let running = self.controllers.running + self.kube_controllers.running + self.api.running;
        let running = running + self.tunnel.running;
        if self.exists || running + self.etcd.pods.running > 0 {
            vec!["Namespace".to_owned()]
        } else {
            Vec::new()
        }
    }
}

/// What a schedule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    /// The seeds are near: kube-apiservers of either one serve on the etcd of both.
    Near,
    /// Those of the destination do not, until the source has no members. A person gives the source up, sooner or later.
    Far,
    /// The source dies for good when the point of no return is passed and no member has left. A person forces a migration then.
    SourceDies,
    /// The destination dies for good before that point, while members of it are in the etcd. A person confirms that later.
    DestinationDies,
    /// It dies past that point, before all is done. A person confirms that, and forces a migration from the seed that has the newest state.
    DestinationDiesLate,
}

pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) now: u64,
    pub(super) faults: FaultRates,
    pub(super) trouble: DrawnFaults,
    pub(super) case: Case,
    pub(super) abort_at: u64,
    pub(super) finalizer: bool,
    pub(super) ignored: Ignored,
    pub(super) operation: Operation,
    pub(super) live: Vec<LiveCondition>,
    pub(super) spec_seed: String,
    pub(super) status_seed: String,
    pub(super) entry_seed: String,
    pub(super) shoot_version: u64,
    pub(super) migration_version: u64,
    pub(super) zone: Zone,
    pub(super) api_ttl: u64,
    pub(super) api_ttl_fence: String,
    pub(super) etcd: SharedEtcd,
    pub(super) source: SimulatedSeed,
    pub(super) destination: SimulatedSeed,
    /// Members of the destination have stored a snapshot.
    pub(super) has_snapshot: bool,
    pub(super) machine_guard: bool,
    /// Where a client found the API, and until when it believes that.
    client: (Side, u64),
    /// Clients of the tunnel in the Shoot.
    pub(super) tunnel_clients: TunnelClients,
    /// A side is on its way back.
    pub(super) is_going_back: bool,
    /// How many requests were answered.
    pub(super) answered: u64,
    pub(super) deaths: Deaths,
    /// The source is given up, so requests fail until clients find the destination.
    pub(super) is_given_up: bool,
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

    pub(super) fn is_cut(&self) -> bool {
        is_in(self.trouble.link_cut, self.now)
    }

    /// Whether members of a side serve its kube-apiservers.
    pub(super) fn does_etcd_serve(&self, side: Side) -> bool {
        let pods = (self.source.etcd.pods.running, self.destination.etcd.pods.running);
        self.etcd.serves(side, pods, self.is_cut())
    }

    pub(super) fn is_api_ready(&self, side: Side) -> bool {
        let is_far = self.case == Case::Far && side == Side::Destination;
        let is_too_far = is_far && self.etcd.of(Side::Source) > 0;
        self.site(side).api.running > 0 && self.does_etcd_serve(side) && !is_too_far
    }

    pub(super) fn is_shrink_asked(&self) -> bool {
        self.case == Case::Far && self.now >= self.trouble.shrinks_at
    }

    fn run_sites(&mut self) {
        let (now, mut rng) = (self.now, Rng::new(self.rng.next()));
        for side in [Side::Source, Side::Destination] {
            let has_members = self.etcd.of(side) > 0;
            let no_place = side == Side::Destination && now < self.trouble.no_members_until;
            let site = self.site_mut(side);
            site.workloads().into_iter().for_each(|workload| workload.advance(now));
            // Members that are wanted no more are removed from the etcd before their Pods end.
            let is_held = site.etcd.replicas == Some(0) && site.etcd.has_joined && has_members;
            let pods = if is_held { Some(MEMBERS) } else { site.etcd.replicas };
            let pods = if no_place { pods.map(|_| 0) } else { pods };
            if site.etcd.pods.wanted != pods {
                site.etcd.pods.set(pods, "", now, &mut rng);
            }
            site.etcd.pods.advance(now);
            if self.is_dead(side) {
                let site = self.site_mut(side);
                site.etcd.pods.running = 0;
                site.workloads().into_iter().for_each(|workload| workload.running = 0);
            } else {
                self.run_dns(side);
            }
        }
        let has_quorum = [Side::Source, Side::Destination].into_iter().any(|side| self.does_etcd_serve(side));
        let etcd = self.destination.etcd.clone();
        if self.deaths.destination_since.is_none() {
            self.etcd.run_operator(&etcd, has_quorum && !self.is_cut(), now, &mut rng);
        } else if has_quorum && self.source.etcd.removes_lost {
            self.etcd.remove_lost(now, &mut rng);
        }
        let is_alone = self.etcd.of(Side::Source) == 0;
        self.has_snapshot |= is_alone && self.does_etcd_serve(Side::Destination) && rng.percent(20);
        if self.source.controllers.running > 0 && self.destination.controllers.running > 0 {
            self.broken.get_or_insert("controllers of two sides act");
        }
    }

    /// DNS controllers write the record of the API once they are asked to restore it.
    fn run_dns(&mut self, side: Side) {
        let now = self.now;
        let site = self.site(side);
        let is_due = site.dns_records.is_done(ExtensionOperation::Restore, now) && !site.has_written_dns;
        if is_due && self.zone.takes_writes(now) {
            self.site_mut(side).has_written_dns = true;
            self.zone.switch_api(side, now);
        }
    }

    pub(super) fn has_written_dns(&self, side: Side) -> bool {
        self.site(side).has_written_dns
    }

    /// A client asks at the address that it has, and resolves the name again when its TTL is over.
    fn run_clients(&mut self) {
        let is_slow = self.rng.percent(50);
        if self.now >= self.client.1 {
            let until = self.now + self.api_ttl + self.rng.within(0, LATE);
            self.client = (self.zone.api_by_one_server(self.now, is_slow), until);
        }
        let cut = self.trouble.link_cut;
        let is_explained = is_in((cut.0, cut.1 + RECOVERY), self.now) && cut.1 > 0;
        // Without the source the etcd has no quorum, wherever the client is.
        let is_expected =
            self.is_given_up || self.deaths.source_since.is_some() || self.is_dead(self.client.0);
        if self.is_api_ready(self.client.0) {
            // In a rollback, kube-apiservers of the source start before the usual client finds them.
            if !is_explained && !is_expected && !self.is_going_back && !self.reaches_shoot(self.client.0) {
                self.broken.get_or_insert("a request failed that needs the tunnel");
            }
            self.answered += 1;
            let next = self.etcd.content.len() as u32 + 1;
            self.etcd.content.push(next);
        } else if !is_explained && !is_expected {
            self.broken.get_or_insert("a request failed");
        }
    }
}

impl Model for World {
    type Flow = MigrationFlow;
    type Setup = Case;
    type Seen = Seen;

    fn new(case: Case, rng: Rng) -> Self {
        let own = OwnerId { seed: SOURCE.into(), epoch: 3 };
        let etcd = EtcdObject {
            replicas: Some(MEMBERS),
            pods: Workload::of(MEMBERS),
            volumes: "first".into(),
            epoch: own.epoch,
            version: 1,
            ..EtcdObject::default()
        };
        let source = SimulatedSeed {
            etcd,
            api: Workload::of(API),
            tunnel: Workload::of(TUNNEL),
            controllers: Workload::of(CONTROLLERS),
            kube_controllers: Workload::of(KUBE),
            exists: true,
            version: 1,
            ..SimulatedSeed::default()
        };
        let mut world = Self {
            rng,
            now: 1_000,
            faults: FaultRates::default(),
            trouble: DrawnFaults::default(),
            case,
            abort_at: NEVER,
            finalizer: false,
            ignored: Ignored::No,
            operation: Operation::Other,
            live: Vec::new(),
            spec_seed: SOURCE.into(),
            status_seed: SOURCE.into(),
            entry_seed: SOURCE.into(),
            shoot_version: 1,
            migration_version: 1,
            zone: Zone::new(own),
            api_ttl: TTL,
            api_ttl_fence: String::new(),
            etcd: SharedEtcd::new(vec![1, 2]),
            source,
            destination: SimulatedSeed::default(),
            has_snapshot: false,
            machine_guard: false,
            client: (Side::Source, 0),
            tunnel_clients: TunnelClients::default(),
            is_going_back: false,
            answered: 0,
            deaths: Deaths::default(),
            is_given_up: false,
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
        let is_over = !ledgers.is_empty() && ledgers.values().all(|ledger| ledger.phase.is_end());
        let is_slow = self.now > 20_000 || is_over;
        let destination = ledgers.get(&Side::Destination);
        self.is_given_up = destination.is_some_and(|ledger| ledger.notes.shrunk);
        self.run_death(destination);
        self.run_death_of_destination(ledgers);
        let is_switching = destination.is_some_and(|ledger| {
            ledger.is_started(Step::ApiDnsSwitched) && !ledger.is_started(Step::MoveCommitted)
        });
        // Clients believe an address for seconds, and controllers take less than that.
        self.now += match (is_slow, is_switching) {
            (true, _) => self.rng.within(60, 600),
            (false, true) => self.rng.within(0, 2),
            (false, false) => self.rng.within(1, LOW_TTL.as_secs()),
        };
        if is_switching && self.trouble.late_abort {
            self.trouble.late_abort = false;
            self.abort_at = self.abort_at.min(self.now + self.rng.within(0, 90));
        }
        self.is_going_back |= ledgers.values().any(|ledger| ledger.phase.is_rollback());
        self.run_sites();
        self.run_tunnel();
        self.run_clients();
    }

    fn observe(&mut self, side: Side) -> (Observed, Seen) {
        (observe::observe(self, side), effects::seen(self))
    }

    fn apply(&mut self, side: Side, effect: &Effect, seen: &Seen, guarded: bool) {
        effects::apply(self, side, effect, seen, guarded);
    }

    fn decide(build: &Build<Self>, input: &Input<'_, MigrationFlow>) -> Decision<MigrationFlow> {
        live::decide(build.plans, input)
    }

    fn may_withdraw(&self) -> bool {
        self.may_give_way()
    }

    fn is_report(effect: &Effect) -> bool {
        matches!(effect, Effect::TellLiveProgress { .. })
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
        sim.model.broken.map_or(Ok(()), |broken| Err(broken.to_owned()))
    }

    fn check_end(sim: &Sim<Self>) -> Result<(), String> {
        rules::at_the_end(sim)
    }

    fn describe(&self) -> String {
        let etcds = (&self.etcd, &self.source.etcd, &self.destination.etcd);
        format!("{:?}\n{:?}\n{:?}\n{etcds:?}", self.faults, self.trouble, self.zone)
    }

    fn end(sim: &Sim<Self>) -> String {
        format!("{:?}", sim.store.ledger(Side::Garden).phase)
    }
}
