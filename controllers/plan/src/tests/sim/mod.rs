//! Simulated schedules of a flow: one controller for each side, which crashes, loses writes, acts on what it saw long ago and is
//! cut off, until nothing happens any more. A flow brings its [`Model`]: clusters, effects, and what must hold.

mod faults;
mod pass;
mod rules;
mod store;

use std::collections::BTreeMap;

pub(super) use faults::{Fault, ends, missed, schedules};
pub(super) use rules::hold;
use store::{Others, Store};

use super::rng::Rng;
use crate::{
    flow::{self, Decision, Flow, Input, LedgerOf, Plan, Plans},
    named::Named,
};

/// What is simulated for a flow.
pub(super) trait Model: Sized + 'static {
    type Flow: Flow;
    /// What kind of schedule it is, such as the kind of a workflow.
    type Setup: Copy + std::fmt::Debug + 'static;
    /// Versions of the objects that a decision was made on.
    type Seen: Clone;

    /// The clusters at the start.
    fn new(setup: Self::Setup, rng: Rng) -> Self;
    /// What goes wrong with controllers.
    fn trouble(&self) -> &FaultRates;
    fn now(&self) -> u64;
    /// Whether the flow's object does not exist any more.
    fn is_gone(&self) -> bool;
    /// Time goes by: clusters, clients and people change things.
    fn advance(&mut self, ledgers: &Ledgers<Self>);
    fn observe(&mut self, side: Side<Self>) -> (Observed<Self>, Self::Seen);
    /// An effect arrives. `guarded`: it is refused where objects have changed since `seen`.
    fn apply(&mut self, side: Side<Self>, effect: &Effect<Self>, seen: &Self::Seen, guarded: bool);

    /// The time by the clock of a side.
    fn clock(&self, _side: Side<Self>) -> u64 {
        self.now()
    }
    /// Whether a side cannot do anything now: its controller is dead, or an API server that it needs does not answer.
    fn is_away(&self, _side: Side<Self>) -> bool {
        false
    }
    /// Whether a fault has happened after which a flow may roll back although its point of no return is passed.
    fn may_withdraw(&self) -> bool {
        false
    }
    /// What a schedule of a certain fault does to a pass of a side: it may drop what was decided.
    fn interrupt(
        &mut self,
        _side: Side<Self>,
        _observed: &Observed<Self>,
        _ledgers: &Ledgers<Self>,
        _decision: &mut Decision<Self::Flow>,
    ) {
    }
    /// What becomes of an effect; `None` leaves it to chance.
    fn fate(&mut self, _side: Side<Self>, _effect: &Effect<Self>) -> Option<Fate> {
        None
    }

    /// Whether an effect changes nothing but what people read.
    fn is_report(_effect: &Effect<Self>) -> bool {
        false
    }

    fn decide(build: &Build<Self>, input: &Input<'_, Self::Flow>) -> Decision<Self::Flow> {
        flow::decide(build.plans, input)
    }

    /// What the status of this kind does not keep.
    fn forget(_setup: Self::Setup, _notes: &mut <Self::Flow as Flow>::Notes) {}

    /// Whether nothing is on its way that nobody has requested, such as Pods that a person has deleted.
    fn is_settled(&self) -> bool {
        true
    }

    /// Whether another such flow follows, for which the clusters are as this one has left them.
    fn again(&mut self, _ledgers: &Ledgers<Self>) -> bool {
        false
    }

    /// What must hold of every decision.
    fn check_decision(
        sim: &Sim<Self>,
        side: Side<Self>,
        observed: &Observed<Self>,
        decision: &Decision<Self::Flow>,
    ) -> Result<(), String>;
    /// What must hold at all times.
    fn check(sim: &mut Sim<Self>) -> Result<(), String>;
    /// What must hold when nothing happens any more.
    fn check_end(sim: &Sim<Self>) -> Result<(), String>;
    /// What went wrong in the schedule, for the one who has to understand a failure.
    fn describe(&self) -> String {
        format!("{:?}", self.trouble())
    }
    /// How the schedule ended, for the statistics.
    fn end(sim: &Sim<Self>) -> String;
}

pub(super) type Side<M> = <<M as Model>::Flow as Flow>::Side;
pub(super) type Observed<M> = <<M as Model>::Flow as Flow>::Observed;
pub(super) type Effect<M> = <<M as Model>::Flow as Flow>::Effect;
pub(super) type Ledgers<M> = BTreeMap<Side<M>, LedgerOf<<M as Model>::Flow>>;

/// What becomes of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The request never arrives.
    Lost,
    /// It arrives after so many seconds.
    Late(u64),
    /// It arrives now, and once more after each of these numbers of seconds.
    Again(&'static [u64]),
}

/// What goes wrong with controllers; chances in percent.
#[derive(Clone, Debug, Default)]
pub(super) struct FaultRates {
    pub(super) crash: u64,
    pub(super) lost_write: u64,
    pub(super) lost_effect: u64,
    pub(super) late: u64,
    /// What is late arrives after so many seconds at most.
    pub(super) latest: u64,
    pub(super) twice: u64,
    /// A controller that was deposed, or whose cache is stale, acts as well.
    pub(super) stale: u64,
    /// A side is cut off from the flow's object: it is the one of this number, in this time.
    pub(super) cut_off: Option<(usize, u64, u64)>,
}

/// How the controllers are built. A planted fault changes one of these.
pub(super) struct Build<M: Model> {
    pub(super) setup: M::Setup,
    pub(super) plans: &'static Plans<M::Flow>,
    /// Controllers are upgraded to these in the middle, each side at a time of its own.
    pub(super) upgrade: Option<&'static Plans<M::Flow>>,
    /// Effects are applied under the versions that were seen.
    pub(super) guarded: bool,
    /// A record is stored only if no ledger has changed since it was read.
    pub(super) versioned: bool,
    /// Records are stored before effects are requested.
    pub(super) records_first: bool,
    /// What is recorded is read again in each pass.
    pub(super) remembers: bool,
}

impl<M: Model> Clone for Build<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Model> Copy for Build<M> {}

impl<M: Model> Build<M> {
    /// Without any fault.
    pub(super) fn new(setup: M::Setup, plans: &'static Plans<M::Flow>) -> Self {
        let upgrade = None;
        Self { setup, plans, upgrade, guarded: true, versioned: true, records_first: true, remembers: true }
    }
}

/// An effect on its way.
struct PendingEffect<M: Model> {
    at: u64,
    side: Side<M>,
    effect: Effect<M>,
    seen: M::Seen,
}

/// What a controller decides on.
struct View<M: Model> {
    observed: Observed<M>,
    seen: M::Seen,
    ledger: LedgerOf<M::Flow>,
    others: Others<M>,
    version: u64,
}

pub(super) struct Sim<M: Model> {
    pub(super) build: Build<M>,
    pub(super) model: M,
    pub(super) store: Store<M>,
    rng: Rng,
    flights: Vec<PendingEffect<M>>,
    /// What a controller of a side saw that was replaced since and does not know it.
    deposed: BTreeMap<Side<M>, View<M>>,
    upgraded_at: BTreeMap<Side<M>, u64>,
    log: Log,
    quiet: u32,
}

/// What happened, for the one who has to understand a failure.
#[derive(Default)]
struct Log {
    is_kept: bool,
    lines: Vec<String>,
}

impl Log {
    fn push(&mut self, line: impl FnOnce() -> String) {
        if self.is_kept {
            self.lines.push(line());
        }
    }
}

/// The end of what does not end.
pub(super) const NEVER: u64 = u64::MAX;
/// Longer than any wait, in passes of a bit under a minute.
const PASSES: u32 = 6_000;
/// Long enough for everything to arrive that is on its way.
const QUIET: u32 = 60;

/// Runs the schedule of this seed to its end.
pub(super) fn run<M: Model>(build: Build<M>, seed: u64) -> Result<String, String> {
    play(build, seed).map(|sim| M::end(&sim))
}

/// The same, with all that is known of the schedule when it has ended. A log takes most of the time, so it is kept only of a schedule
/// that is known to end badly: a seed always gives the same one.
pub(super) fn play<M: Model>(build: Build<M>, seed: u64) -> Result<Sim<M>, String> {
    play_with(build, seed, Log::default()).map_err(|_| {
        let log = Log { is_kept: true, lines: Vec::new() };
        let again = play_with(build, seed, log).err();
        again.unwrap_or_else(|| format!("seed {seed}: the schedule does not end as it did before"))
    })
}

fn play_with<M: Model>(build: Build<M>, seed: u64, log: Log) -> Result<Sim<M>, String> {
    let mut rng = Rng::new(!seed);
    let model = M::new(build.setup, Rng::new(seed));
    // Some sides are upgraded before they start, others in the middle.
    let upgraded_at = Side::<M>::ALL.iter().map(|side| {
        let is_early = rng.percent(30);
        (*side, model.now() + if is_early { 0 } else { rng.within(0, 1_200) })
    });
    let upgraded_at = upgraded_at.collect();
    let mut sim = Sim {
        build,
        model,
        store: Store::new(),
        rng,
        flights: Vec::new(),
        deposed: BTreeMap::new(),
        upgraded_at,
        log,
        quiet: 0,
    };
    match sim.run() {
        Ok(()) => Ok(sim),
        Err(why) => {
            let lines = &sim.log.lines;
            let from = lines.len().saturating_sub(60);
            let trouble = sim.model.describe();
            Err(format!("seed {seed}, {:?}: {why}\n{trouble}\n{}", build.setup, lines[from..].join("\n")))
        }
    }
}

impl<M: Model> Sim<M> {
    /// The ledger of a flow's only side.
    pub(super) fn ledger(&self) -> &LedgerOf<M::Flow> {
        self.store.ledger(Side::<M>::ALL[0])
    }

    fn run(&mut self) -> Result<(), String> {
        self.run_flow()?;
        while self.model.again(self.store.ledgers()) {
            self.log.push(|| format!("{} another one begins", self.model.now()));
            self.store = Store::new();
            self.deposed.clear();
            self.quiet = 0;
            self.run_flow()?;
        }
        Ok(())
    }

    fn run_flow(&mut self) -> Result<(), String> {
        for _ in 0..PASSES {
            self.model.advance(self.store.ledgers());
            self.arrive();
            let is_over = self.model.is_gone() || self.reconcile_all()?;
            self.quiet = if is_over { self.quiet + 1 } else { 0 };
            rules::always(self)?;
            M::check(self)?;
            if self.quiet > QUIET && self.flights.is_empty() && self.model.is_settled() {
                rules::at_the_end(self)?;
                return M::check_end(self);
            }
        }
        let ledgers = self.store.ledgers().iter();
        let stuck = ledgers.map(|(side, l)| {
            format!("{}: {:?} {} {}, retry {}", side.name(), l.phase, l.reason, l.message, l.retry)
        });
        Err(format!("stuck: {}", stuck.collect::<Vec<_>>().join("; ")))
    }

    fn arrive(&mut self) {
        let now = self.model.now();
        let flights = std::mem::take(&mut self.flights);
        let (due, rest) = flights.into_iter().partition::<Vec<_>, _>(|flight| flight.at <= now);
        self.flights = rest;
        for PendingEffect { side, effect, seen, .. } in due {
            self.log.push(|| format!("{now} {} gets {effect:?}", side.name()));
            self.model.apply(side, &effect, &seen, self.build.guarded);
        }
    }

    /// One pass of each side. Whether none of them has anything left to do.
    fn reconcile_all(&mut self) -> Result<bool, String> {
        let mut is_over = true;
        for (at, side) in Side::<M>::ALL.iter().enumerate() {
            let now = self.model.now();
            let cut_off = self.model.trouble().cut_off;
            if cut_off.is_some_and(|(cut, from, to)| cut == at && (from..to).contains(&now)) {
                // Nobody waits for a side that is dead.
                is_over &= self.is_dead(*side);
                continue;
            }
            if self.model.is_away(*side) {
                is_over = false;
                continue;
            }
            is_over &= self.reconcile(*side)?;
        }
        Ok(is_over)
    }

    /// Whether the controller of a side never comes back.
    pub(super) fn is_dead(&self, side: Side<M>) -> bool {
        let cut_off = self.model.trouble().cut_off;
        cut_off.is_some_and(|(cut, _, to)| Side::<M>::ALL[cut] == side && to == NEVER)
    }

    /// The tables of a version, as far as any controller knows them.
    fn plan_of(&self, version: u32) -> Option<&'static Plan<M::Flow>> {
        let upgrade = self.build.upgrade.and_then(|plans| plans.of(version));
        upgrade.or_else(|| self.build.plans.of(version))
    }

    /// The controllers of a side.
    fn build_of(&self, side: Side<M>) -> Build<M> {
        let is_upgraded = self.model.now() >= self.upgraded_at[&side];
        let upgrade = self.build.upgrade.filter(|_| is_upgraded);
        Build { plans: upgrade.unwrap_or(self.build.plans), ..self.build }
    }
}
