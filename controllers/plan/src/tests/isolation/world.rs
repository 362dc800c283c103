//! A Shoot in three zones, one of which is sick: what the flow changes, what its provider does, and what people do.

use std::time::Duration;

use repot_apimachinery::time::Time;

use super::{
    rules,
    script::{Script, script},
};
use crate::{
    flow::Decision,
    isolation::{
        IsolationSide as Side, ZoneIsolationFlow,
        capacity::{FreeQuota, Pool, Zone},
        effect::Effect,
        observed::{
            Asked, Facts, GardenFacts, IsolationRequest, Observed, SeedFacts, SeedNamespace, ShootLife,
            SubnetFacts, WorkerFacts,
        },
        shown::Shown,
    },
    tests::{
        rng::Rng,
        sim::{FaultRates, Ledgers, Model, NEVER, Sim},
    },
};

/// ID and code of the zone.
pub(super) const ZONE: (&str, &str) = ("euc1-az2", "b");
/// Machines of the zone, and of all zones.
pub(super) const IN_ZONE: u32 = 2;
pub(super) const ALL: u32 = 6;
const SEED: &str = "seed-a";
pub(super) const DRAIN_TIMEOUT: Duration = Duration::from_secs(900);

/// Versions of the objects that a decision was made on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) shoot: u64,
    pub(super) object: u64,
    pub(super) nodes: u64,
    pub(super) worker: u64,
    pub(super) subnet: u64,
}

pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) now: u64,
    pub(super) trouble: FaultRates,
    pub(super) script: Script,
    pub(super) versions: Seen,
    pub(super) annotation: Option<String>,
    pub(super) by_annotation: bool,
    pub(super) is_annotated_by_us: bool,
    pub(super) told_place: Option<SeedNamespace>,
    pub(super) finalizer: bool,
    pub(super) shown: Option<Shown>,
    /// Machines of the zone: those that take Pods, those that this isolation has cordoned, and one that a person has cordoned.
    pub(super) open: u32,
    pub(super) ours: u32,
    pub(super) by_person: u32,
    pub(super) others: u32,
    pub(super) left_out: Option<String>,
    pub(super) asked: Option<Asked>,
    /// When the controller of the Worker has grown other zones, and when it has ended machines.
    pub(super) grown_at: u64,
    pub(super) ended_at: u64,
    /// Since when machines of the zone are drained.
    pub(super) drained_since: Option<u64>,
    pub(super) subnet: SubnetFacts,
    pub(super) subnet_at: u64,
    pub(super) broken: Option<&'static str>,
}

impl World {
    pub(super) fn in_zone(&self) -> u32 {
        self.open + self.ours + self.by_person
    }

    pub(super) fn is_shoot_deleting(&self) -> bool {
        self.now >= self.script.shoot_deleted_at
    }

    fn is_object_deleting(&self) -> bool {
        self.now >= self.script.object_deleted_at
    }

    /// Whether something is left of the isolation in a Shoot that goes on.
    fn is_dirty(&self) -> bool {
        let has_subnet = matches!(self.subnet, SubnetFacts::Ready | SubnetFacts::Pending(_));
        let is_left = self.left_out.is_some() || self.ours > 0;
        has_subnet || (is_left && !self.is_shoot_deleting())
    }

    pub(super) fn delay(&mut self) -> u64 {
        self.now + self.rng.within(1, 400)
    }

    /// What the MachineDeployment of the zone asks for.
    fn wanted_in_zone(&self) -> u32 {
        let has_grown = self.asked == Some(Asked::LeaveZone) && self.now >= self.grown_at;
        if has_grown { 0 } else { IN_ZONE }
    }

    pub(super) fn does_api_answer(&self) -> bool {
        !(self.script.api_away.0..self.script.api_away.1).contains(&self.now)
    }

    fn is_drain_late(&self) -> bool {
        self.drained_since.is_some_and(|since| self.now > since + DRAIN_TIMEOUT.as_secs())
    }

    fn worker_pending(&self) -> Option<String> {
        let joins = self.asked == Some(Asked::UseZone) && self.in_zone() < IN_ZONE;
        (self.now < self.grown_at || joins).then(|| "machines join".to_owned())
    }

    fn request(&self) -> IsolationRequest {
        let shoot = match () {
            () if self.now >= self.script.shoot_gone_at => ShootLife::Gone,
            () if self.is_shoot_deleting() => ShootLife::Ending,
            () => ShootLife::Kept,
        };
        IsolationRequest {
            uid: "u1".to_owned(),
            zone: ZONE.0.to_owned(),
            expires: (self.script.expires_at < NEVER).then_some(Time(self.script.expires_at)),
            is_deleting: self.is_object_deleting(),
            by_annotation: self.by_annotation,
            finalizer: self.finalizer,
            continued: None,
            shoot,
            step_timeout: Duration::from_secs(600),
            drain_timeout: DRAIN_TIMEOUT,
        }
    }

    fn garden_facts(&self) -> GardenFacts {
        GardenFacts {
            obstacle: (self.now < self.script.obstacle_until).then(|| "another one has not ended".to_owned()),
            is_untold: false,
            annotation: self.annotation.clone(),
            is_annotated_by_us: self.is_annotated_by_us,
            place: Some(SeedNamespace { seed: SEED.to_owned(), namespace: "shoot--p--s".to_owned() }),
            told_place: self.told_place.clone(),
            is_outdated: false,
            can_show: self.script.can_show,
            shown: self.shown.clone(),
        }
    }

    fn seed_facts(&self) -> SeedFacts {
        let names = |count: u32| (0..count).map(|at| format!("node-{at}")).collect::<Vec<_>>();
        let zone = |code: &str, wanted| Zone { code: code.to_owned(), wanted, available: wanted };
        let half = self.others / 2;
        let zones = vec![zone("a", half), zone(ZONE.1, self.wanted_in_zone()), zone("c", half)];
        let maximum = if self.now >= self.script.room_at { ALL } else { ALL - 1 };
        let is_migrating = (self.script.migrates.0..self.script.migrates.1).contains(&self.now);
        let answers = self.does_api_answer();
        let of_nodes = |count: u32| match self.script.is_hibernated {
            true => Some(Vec::new()),
            false => answers.then(|| names(count)),
        };
        SeedFacts {
            seed: SEED.to_owned(),
            migration: is_migrating.then(|| "s-7".to_owned()),
            is_followed: false,
            unsupported: Vec::new(),
            zone_code: (self.now >= self.script.known_at).then(|| ZONE.1.to_owned()),
            pools: vec![Pool { name: "cpu".to_owned(), maximum, zones }],
            free: FreeQuota::new(),
            open_nodes: of_nodes(self.open),
            own_cordoned: of_nodes(self.ours),
            worker: Some(WorkerFacts {
                left_out: self.left_out.clone(),
                code: self.left_out.as_ref().map(|_| ZONE.1.to_owned()),
                asked: self.asked,
                pending: self.worker_pending(),
            }),
            machines: names(self.in_zone()),
            late_machines: if self.is_drain_late() { names(self.in_zone()) } else { Vec::new() },
            closed_budgets: Vec::new(),
            subnet: self.subnet.clone(),
        }
    }
}

impl Model for World {
    type Flow = ZoneIsolationFlow;
    type Setup = ();
    type Seen = Seen;

    fn new((): (), mut rng: Rng) -> Self {
        let is_calm = rng.percent(10);
        let mut trouble = FaultRates::default();
        if !is_calm {
            trouble = FaultRates {
                crash: rng.within(0, 20),
                lost_write: rng.within(0, 20),
                lost_effect: rng.within(0, 20),
                late: rng.within(0, 30),
                latest: 300,
                twice: rng.within(0, 20),
                stale: rng.within(0, 40),
                cut_off: None,
            };
            if rng.percent(30) {
                let from = 1_000 + rng.within(0, 5_000);
                let side = usize::from(rng.percent(50));
                trouble.cut_off = Some((side, from, from + rng.within(60, 5_000)));
            }
        }
        let script = script(&mut rng, is_calm);
        let annotation = rng.percent(50).then(|| ZONE.0.to_owned());
        Self {
            rng,
            now: 1_000,
            trouble,
            script,
            versions: Seen::default(),
            by_annotation: annotation.is_some(),
            annotation,
            is_annotated_by_us: false,
            told_place: None,
            finalizer: false,
            shown: None,
            open: IN_ZONE - 1,
            ours: 0,
            by_person: 1,
            others: ALL - IN_ZONE,
            left_out: None,
            asked: None,
            grown_at: 0,
            ended_at: NEVER,
            drained_since: None,
            subnet: SubnetFacts::Absent,
            subnet_at: NEVER,
            broken: None,
        }
    }

    fn trouble(&self) -> &FaultRates {
        &self.trouble
    }

    fn now(&self) -> u64 {
        self.now
    }

    /// With the object goes the one who cleans up; here the controller stays while anything is left.
    fn is_gone(&self) -> bool {
        let is_used = self.annotation.is_none() && self.left_out.is_none() && self.ours == 0;
        self.is_object_deleting() && !self.finalizer && is_used && self.subnet == SubnetFacts::Absent
    }

    fn advance(&mut self, _: &Ledgers<Self>) {
        self.now += if self.rng.percent(5) { 120 } else { self.rng.within(1, 40) };
        // Kubelets report, so that requests that are late are refused.
        self.versions.nodes += u64::from(self.rng.percent(50));
        self.run_people();
        self.run_worker();
        self.run_subnet();
    }

    fn observe(&mut self, side: Side) -> (Observed, Seen) {
        let facts = match side {
            Side::Garden => Facts::Garden(self.garden_facts()),
            Side::Seed => Facts::Seed(Box::new(self.seed_facts())),
        };
        (Observed { request: self.request(), facts }, self.versions)
    }

    fn apply(&mut self, side: Side, effect: &Effect, seen: &Seen, guarded: bool) {
        let versions = self.versions;
        let may = |of: fn(&Seen) -> u64| !guarded || of(seen) == of(&versions);
        if side == Side::Seed {
            return self.apply_to_seed(effect, may);
        }
        match effect {
            Effect::EnsureFinalizer { present } if may(|seen| seen.object) => {
                if !present && self.finalizer && self.is_dirty() {
                    self.broken.get_or_insert("gives the finalizer up while something is left");
                }
                self.finalizer = *present;
                self.versions.object += 1;
            }
            Effect::EnsureAnnotation { zone } if may(|seen| seen.shoot) => {
                self.annotation = Some(zone.clone());
                self.is_annotated_by_us = true;
                self.versions.shoot += 1;
            }
            Effect::RemoveAnnotation if may(|seen| seen.shoot) => {
                (self.annotation, self.is_annotated_by_us) = (None, false);
                self.versions.shoot += 1;
            }
            Effect::TellPlace { place } => self.told_place = Some(place.clone()),
            Effect::Tell { shown } if may(|seen| seen.shoot) => {
                self.shown = Some(shown.clone());
                self.versions.shoot += 1;
            }
            _ => {}
        }
    }

    fn is_report(effect: &Effect) -> bool {
        matches!(effect, Effect::Tell { .. } | Effect::TellPlace { .. })
    }

    fn check_decision(
        sim: &Sim<Self>,
        _: Side,
        observed: &Observed,
        decision: &Decision<ZoneIsolationFlow>,
    ) -> Result<(), String> {
        rules::decision(sim, observed, decision)
    }

    fn check(sim: &mut Sim<Self>) -> Result<(), String> {
        sim.model.broken.map_or(Ok(()), |broken| Err(broken.to_owned()))?;
        rules::drain_ends(&sim.model)
    }

    fn check_end(sim: &Sim<Self>) -> Result<(), String> {
        rules::at_the_end(sim)
    }

    fn describe(&self) -> String {
        format!("{:?}\n{:?}", self.trouble, self.script)
    }

    fn end(sim: &Sim<Self>) -> String {
        rules::end(sim)
    }
}
