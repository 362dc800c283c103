//! One workflow in one world: a controller that crashes, loses writes and is repeated, until nothing happens any more.

use super::{
    check,
    cluster::{NEVER, Trouble, Truth, Versions},
    rng::Rng,
};
use crate::{
    etcd::{
        EtcdFlow, Notes,
        backup::{self, Spec},
        effect::Effect,
        migration, restore,
        world::World,
    },
    flow::{self, Decision, Plan},
    ledger::{Ledger, Phase},
    status::{from_status, to_status},
    time::Time,
};

/// Which workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Backup,
    Restore,
    Migration,
}

/// How the controller is built. All but the first one of these is a fault.
#[derive(Clone, Copy)]
pub(super) struct Build {
    pub(super) plan: &'static Plan<EtcdFlow>,
    pub(super) kind: Kind,
    /// Effects are applied under the versions that were seen.
    pub(super) guarded: bool,
    /// Records are stored before effects are applied.
    pub(super) records_first: bool,
    /// What is recorded is read again in each pass.
    pub(super) remembers: bool,
}

impl Build {
    pub(super) fn of(kind: Kind) -> Self {
        let plan = match kind {
            Kind::Backup => &backup::PLAN,
            Kind::Restore => &restore::PLAN,
            Kind::Migration => &migration::PLAN,
        };
        Self { plan, kind, guarded: true, records_first: true, remembers: true }
    }

    pub(super) fn decide(&self, world: &World, ledger: &Ledger<Notes>, now: Time) -> Decision<EtcdFlow> {
        let spec = Spec { schedule: None, retention: None, delete_backups: false, created: Time(0) };
        match self.kind {
            Kind::Backup => backup::decide_by(self.plan, &spec, world, ledger, now),
            Kind::Restore | Kind::Migration => flow::decide(self.plan, world, ledger, now),
        }
    }
}

/// An effect on its way.
struct Flight {
    at: u64,
    effect: Effect,
    seen: Versions,
}

pub(super) struct Sim {
    pub(super) build: Build,
    pub(super) truth: Truth,
    pub(super) ledger: Ledger<Notes>,
    flights: Vec<Flight>,
    /// What a controller saw that was replaced since and does not know it.
    deposed: Option<(World, Versions, Ledger<Notes>)>,
    /// What happened, for the one who has to understand a failure.
    pub(super) log: Vec<String>,
    quiet: u32,
}

/// Longer than any wait, in passes of a bit under a minute.
const PASSES: u32 = 6_000;
/// Long enough for everything to land that is on its way.
const QUIET: u32 = 60;

pub(super) fn mk_trouble(rng: &mut Rng) -> Trouble {
    let mut trouble =
        Trouble { cancel_at: NEVER, delete_at: NEVER, cluster_gone_at: NEVER, ..Trouble::default() };
    trouble.calm = rng.percent(10);
    if trouble.calm {
        return trouble;
    }
    trouble.crash = rng.within(0, 20);
    trouble.lost_write = rng.within(0, 20);
    trouble.late = rng.within(0, 30);
    trouble.twice = rng.within(0, 20);
    // A few of these at a time: a world in which everything fails shows little.
    for _ in 0..rng.within(0, 3) {
        let (soon, later) = (1_000_000 + rng.within(0, 3000), rng.within(60, 6000));
        match rng.within(0, 16) {
            0 => trouble.backup_fails = rng.within(20, 100),
            1 => trouble.corrupt = 60,
            2 => trouble.wrong_restore = true,
            3 => trouble.no_room = true,
            4 => trouble.api_never_up = true,
            5 => trouble.old_never_up = true,
            6 => trouble.api_lingers = later,
            7 => trouble.members_linger = later,
            8 => trouble.quorum_lost = Some((soon, soon + later)),
            9 => trouble.intruder = true,
            10 => trouble.cancel_at = soon,
            11 => trouble.delete_at = soon,
            12 => trouble.pause = Some((soon, soon + later * rng.within(1, 30))),
            13 => trouble.rival_until = soon,
            14 => trouble.theft = Some((soon, soon + later)),
            15 => delete_cluster(rng, &mut trouble, soon),
            _ => trouble.members_linger = 60,
        }
    }
    trouble
}

/// Somebody deletes the HostedEtcd.
fn delete_cluster(rng: &mut Rng, trouble: &mut Trouble, at: u64) {
    trouble.cluster_gone_at = at;
    match rng.within(0, 5) {
        0 => trouble.kept_until = at + rng.within(60, 6000),
        1 | 2 => trouble.released_by_hand_at = Some(at + rng.within(0, 600)),
        3 => trouble.with_namespace = true,
        _ => {}
    }
}

/// Runs the world of this seed to its end.
pub(super) fn run(build: Build, seed: u64) -> Result<Phase, String> {
    let mut rng = Rng::new(seed);
    let trouble = mk_trouble(&mut rng);
    let mut truth = Truth::new(rng, trouble);
    if build.kind == Kind::Restore {
        if truth.rng.percent(50) {
            truth.add_backup("from");
        } else {
            truth.add_store();
        }
    }
    let mut sim = Sim {
        build,
        truth,
        ledger: Ledger::default(),
        flights: Vec::new(),
        deposed: None,
        log: Vec::new(),
        quiet: 0,
    };
    sim.run().map_err(|why| {
        let from = sim.log.len().saturating_sub(40);
        format!(
            "seed {seed}, {:?}: {why}\n{:?}\n{}",
            build.kind,
            sim.truth.trouble,
            sim.log[from..].join("\n")
        )
    })?;
    Ok(sim.ledger.phase)
}

impl Sim {
    fn run(&mut self) -> Result<(), String> {
        for _ in 0..PASSES {
            self.truth.pass(&self.ledger);
            self.land();
            if self.truth.object_gone {
                self.quiet += 1;
            } else {
                self.reconcile()?;
            }
            check::always(self)?;
            if self.quiet > QUIET && self.flights.is_empty() {
                return check::at_the_end(self);
            }
        }
        Err(format!("stuck in {:?}: {} {}", self.ledger.phase, self.ledger.reason, self.ledger.message))
    }

    fn land(&mut self) {
        let now = self.truth.now;
        let (due, rest) = std::mem::take(&mut self.flights).into_iter().partition(|flight| flight.at <= now);
        self.flights = rest;
        let due: Vec<Flight> = due;
        for flight in due {
            self.log.push(format!("{now} lands {:?}", flight.effect));
            self.truth.apply(&flight.effect, &flight.seen, self.build.guarded);
        }
    }

    fn reconcile(&mut self) -> Result<(), String> {
        let (world, seen) = self.truth.observe();
        if !self.build.remembers {
            self.ledger.notes = Notes::default();
        }
        let decision = self.build.decide(&world, &self.ledger, Time(self.truth.now));
        check::decision(self, &world, &decision)?;
        self.reconcile_deposed(&world, seen);
        let over = self.ledger.phase.is_end() && decision.effects.is_empty() && decision.records.is_none();
        self.quiet = if over { self.quiet + 1 } else { 0 };
        if self.dies() {
            return Ok(());
        }
        if self.build.records_first && !self.record(&decision)? {
            return Ok(());
        }
        for effect in decision.effects.clone() {
            if self.dies() {
                return Ok(());
            }
            self.act(effect, seen);
        }
        if !self.build.records_first {
            self.record(&decision)?;
        }
        Ok(())
    }

    /// A controller that was replaced decides on what it saw then. Its records are refused, its effects may still arrive.
    fn reconcile_deposed(&mut self, world: &World, seen: Versions) {
        if !self.truth.rng.percent(self.truth.trouble.late) {
            return;
        }
        let now_seen = (world.clone(), seen, self.ledger.clone());
        let Some((world, seen, ledger)) = self.deposed.replace(now_seen) else { return };
        let decision = self.build.decide(&world, &ledger, Time(self.truth.now));
        if decision.records.is_none() {
            decision.effects.into_iter().for_each(|effect| self.act(effect, seen));
        }
    }

    fn dies(&mut self) -> bool {
        let chance = self.truth.trouble.crash;
        self.truth.rng.percent(chance)
    }

    /// Whether the controller knows that the write was stored.
    fn record(&mut self, decision: &Decision<EtcdFlow>) -> Result<bool, String> {
        let Some(next) = &decision.records else { return Ok(true) };
        let lost = self.truth.rng.percent(self.truth.trouble.lost_write);
        let arrived = self.truth.rng.percent(50);
        if !lost || arrived {
            self.log.push(format!(
                "{} records {:?} {} {}",
                self.truth.now,
                next.phase,
                next.reason,
                changed(&self.ledger, next)
            ));
            let stored = from_status(&to_status(self.build.plan, next)).map_err(|e| e.to_string())?;
            check::is_the_same(self.build.kind, &stored, next)?;
            self.ledger = stored;
        }
        Ok(!lost)
    }

    fn act(&mut self, effect: Effect, seen: Versions) {
        let now = self.truth.now;
        let (late, twice) = (self.truth.trouble.late, self.truth.trouble.twice);
        if self.truth.rng.percent(twice) {
            let at = now + self.truth.rng.within(1, 900);
            self.flights.push(Flight { at, effect: effect.clone(), seen });
        }
        if self.truth.rng.percent(late) {
            let at = now + self.truth.rng.within(1, 900);
            self.flights.push(Flight { at, effect, seen });
            return;
        }
        self.log.push(format!("{now} does {effect:?}"));
        self.truth.apply(&effect, &seen, self.build.guarded);
    }
}

fn changed(before: &Ledger<Notes>, after: &Ledger<Notes>) -> String {
    let new = after.steps.iter().filter(|(step, record)| before.steps.get(*step) != Some(record));
    new.map(|(step, record)| format!("{step}={:?}({})", record.state, record.reason))
        .collect::<Vec<_>>()
        .join(" ")
}
