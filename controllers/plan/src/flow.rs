//! The frame of all workflows: a table of steps in the order of the paper, and [`decide`], which says what to do next.
//!
//! It may not act, and it may not look: what is seen comes in as [`Flow::World`], what is recorded as [`Ledger`].
//!
//! **The order of things.** A step is begun by a record and nothing else; its effects are asked for from the next pass on, when
//! the record is known to be stored. So there is no effect without a recorded decision, and whoever takes over after a crash
//! knows what may be on its way. Effects are targets, asked for again at each pass until they are seen: they may be lost, and
//! land late or twice.

use std::{fmt::Debug, time::Duration};

use crate::{
    ledger::{Check, Ledger, Phase, Record, State, Why},
    time::Time,
};

/// A sort of workflow: what it sees, remembers and does.
pub trait Flow: Sized + 'static {
    /// What is seen in one pass.
    type World;
    /// What is remembered between passes.
    type Notes: Clone + Debug + Default + PartialEq;
    /// What can be asked for.
    type Effect: Clone + Debug + PartialEq;

    /// What the workflow's object asks for.
    fn control(world: &Self::World) -> Control;
    /// What is to be given back when the workflow is over, however it ended; asked for again until it is seen.
    fn leave(world: &Self::World) -> Vec<Self::Effect>;
    /// Where the data is, for the person who has to act when the workflow has failed.
    fn whereabouts(notes: &Self::Notes) -> String;
}

/// What the workflow's object asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// Begin no further step on the way forward.
    pub paused: bool,
    /// Go back, if that is still possible.
    pub cancel: bool,
    /// There is nothing left to work on; the text says why.
    pub abandoned: Option<&'static str>,
    /// How long a step may take.
    pub step_timeout: Duration,
}

/// What is looked at by a row.
pub struct Scene<'a, F: Flow> {
    /// What is seen.
    pub world: &'a F::World,
    /// What is remembered.
    pub notes: &'a F::Notes,
}

/// How long a reached step counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// It was reached once, which is recorded with its evidence and never looked at again.
    Latched,
    /// It is looked at in each pass until the workflow is over, and may have to be reached again.
    Held,
    /// The same, until the named step is begun.
    HeldUntil(&'static str),
}

/// How long a step is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// So many times `spec.stepTimeout`.
    Steps(u32),
    /// So many hours.
    Hours(u64),
}

/// What follows when a step is not reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// The way back.
    TurnBack,
    /// The workflow has failed: there is no way back from here.
    GiveUp,
    /// The workflow goes on without it.
    GoOn,
}

/// A step of a workflow. Names are facts that are reached.
pub struct Row<F: Flow> {
    /// The name, as recorded.
    pub step: &'static str,
    /// What is done and waited for, in one sentence.
    pub does: &'static str,
    /// How long it counts.
    pub proof: Proof,
    /// How long it is waited for.
    pub patience: Patience,
    /// What follows when it is not reached.
    pub otherwise: Otherwise,
    /// What a person can do while it is waited for.
    pub advice: &'static str,
    /// How far it has come.
    pub check: fn(&Scene<F>) -> Check,
    /// What to ask for while it is not reached.
    pub effects: fn(&Scene<F>) -> Vec<F::Effect>,
    /// What to remember before anything is asked for.
    pub begin: fn(&F::World, &mut F::Notes),
    /// What to remember when it is reached.
    pub met: fn(&F::World, &mut F::Notes),
}

impl<F: Flow> Clone for Row<F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Flow> Copy for Row<F> {}

/// A workflow: its way, and its way back.
pub struct Plan<F: Flow> {
    /// Kind of the workflow's object.
    pub kind: &'static str,
    /// Version of the tables. It is recorded, and a workflow that was begun by another version is not touched.
    pub version: u32,
    /// The way, in the order of the paper.
    pub forward: &'static [Row<F>],
    /// The way back.
    pub back: &'static [Row<F>],
    /// Step of `forward` from which on there is no way back: once it is begun, cancelling comes too late.
    pub no_return: Option<&'static str>,
    /// Whether there is anything to undo.
    pub touched: fn(&F::Notes) -> bool,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision<F: Flow> {
    /// What to ask for, after `records` is stored.
    pub effects: Vec<F::Effect>,
    /// The ledger as it is to be stored, under the version that was read; nothing where it stays as it is.
    pub records: Option<Ledger<F::Notes>>,
    /// When to look again although nothing was heard; nothing where the workflow is over.
    pub requeue: Option<Duration>,
}

/// How long until the next look while something is waited for.
pub const POLL: Duration = Duration::from_secs(10);
/// How long until the next look after a mere record.
pub const SOON: Duration = Duration::from_secs(1);
/// How long a workflow may be held up by `spec.paused` before it goes back.
pub const PAUSE_LIMIT: Duration = Duration::from_secs(24 * 3600);
/// How often a step may be lost and reached again.
pub const ATTEMPTS: u32 = 5;
/// Reason of a workflow that was called off.
pub const CANCELLED: &str = "Cancelled";

/// What to do next.
#[must_use]
pub fn decide<F: Flow>(
    plan: &Plan<F>,
    world: &F::World,
    ledger: &Ledger<F::Notes>,
    now: Time,
) -> Decision<F> {
    let control = F::control(world);
    let mut pass = Pass {
        plan,
        world,
        control,
        before: ledger,
        next: ledger.clone(),
        now,
        effects: Vec::new(),
        requeue: Some(POLL),
    };
    pass.run();
    let records = (pass.next != *ledger).then_some(pass.next);
    Decision { effects: pass.effects, records, requeue: pass.requeue }
}

/// One pass over the tables.
struct Pass<'a, F: Flow> {
    plan: &'a Plan<F>,
    world: &'a F::World,
    control: Control,
    before: &'a Ledger<F::Notes>,
    next: Ledger<F::Notes>,
    now: Time,
    effects: Vec<F::Effect>,
    requeue: Option<Duration>,
}

impl<F: Flow> Pass<'_, F> {
    fn run(&mut self) {
        let phase = self.before.phase;
        if phase.is_end() {
            self.effects = F::leave(self.world);
            self.requeue = (!self.effects.is_empty()).then_some(POLL);
        } else if let Some(why) = self.control.abandoned {
            self.end(Phase::Cancelled, "NothingToWorkOn", why.to_owned());
        } else if matches!(phase, Phase::Pending | Phase::Scheduled) {
            self.start();
        } else if self.before.version != self.plan.version {
            let (theirs, ours) = (self.before.version, self.plan.version);
            self.next.message = format!(
                "was begun by version {theirs} of the plan, and this controller has version {ours}; run the controller that began it"
            );
        } else if phase == Phase::RollingBack {
            self.walk(self.plan.back);
        } else if self.control.cancel && !self.is_past_return() {
            self.turn_back(CANCELLED, "called off by spec.cancel or by deletion".to_owned());
        } else {
            self.walk(self.plan.forward);
        }
    }

    fn start(&mut self) {
        self.next.version = self.plan.version;
        self.next.phase = Phase::Running;
        self.next.reason = "Started".to_owned();
        self.next.message = String::new();
        self.next.started = Some(self.now);
        self.requeue = Some(SOON);
    }

    fn is_past_return(&self) -> bool {
        self.plan.no_return.is_some_and(|step| self.before.is_begun(step))
    }

    fn is_back(&self) -> bool {
        self.before.phase == Phase::RollingBack
    }

    fn walk(&mut self, rows: &[Row<F>]) {
        for row in rows {
            if self.is_settled(row) {
                continue;
            }
            match (row.check)(&Scene { world: self.world, notes: &self.next.notes }) {
                Check::Met(evidence) => self.meet(row, evidence),
                Check::Waiting(why) => {
                    if !self.wait(row, why) {
                        return;
                    }
                }
                Check::Blocked(why) => {
                    if !self.fail(row, &why) {
                        return;
                    }
                }
            }
        }
        self.complete();
    }

    /// Whether the row is not to be looked at any more.
    fn is_settled(&self, row: &Row<F>) -> bool {
        match (self.next.state(row.step), row.proof) {
            (State::Skipped, _) | (State::Succeeded, Proof::Latched) => true,
            (_, Proof::HeldUntil(step)) => self.before.is_begun(step),
            _ => false,
        }
    }

    fn meet(&mut self, row: &Row<F>, evidence: String) {
        if self.next.state(row.step) == State::Succeeded {
            return;
        }
        if self.next.state(row.step) != State::Running {
            (row.begin)(self.world, &mut self.next.notes);
        }
        (row.met)(self.world, &mut self.next.notes);
        self.next.paused = None;
        self.note(row, State::Succeeded, "Reached", evidence);
    }

    /// Begins the row, or asks for its effects. Whether the walk goes on.
    fn wait(&mut self, row: &Row<F>, why: Why) -> bool {
        if self.before.state(row.step) != State::Running {
            return self.begin(row, &why);
        }
        let started = self.before.steps.get(row.step).and_then(|record| record.started).unwrap_or(self.now);
        if self.now.since(started) > self.limit(row) {
            let message =
                format!("not reached in {} minutes: {}", self.limit(row).as_secs() / 60, why.message);
            return self.fail(row, &Why::new(why.reason, message));
        }
        self.effects = (row.effects)(&Scene { world: self.world, notes: &self.next.notes });
        self.note(row, State::Running, why.reason, with_advice(&why.message, row.advice));
        false
    }

    /// The record that comes before all effects.
    fn begin(&mut self, row: &Row<F>, why: &Why) -> bool {
        let forward = !self.is_back();
        if forward && self.control.paused && !self.is_past_return() {
            return self.pause(row);
        }
        let attempts = self.before.steps.get(row.step).map_or(0, |record| record.attempts);
        if attempts >= ATTEMPTS {
            let message = format!("was reached and lost {attempts} times: {}", why.message);
            return self.fail(row, &Why::new(why.reason, message));
        }
        (row.begin)(self.world, &mut self.next.notes);
        self.next.paused = None;
        self.note(row, State::Running, why.reason, with_advice(&why.message, row.advice));
        self.requeue = Some(SOON);
        false
    }

    fn pause(&mut self, row: &Row<F>) -> bool {
        let since = *self.next.paused.get_or_insert(self.now);
        if self.now.since(since) > PAUSE_LIMIT {
            let message = format!("paused for more than {} hours", PAUSE_LIMIT.as_secs() / 3600);
            self.turn_back("PausedTooLong", message);
        } else {
            let message = "held up by spec.paused; set it to false to go on, or spec.cancel to go back";
            self.note(row, State::Pending, "Paused", message.to_owned());
        }
        false
    }

    fn limit(&self, row: &Row<F>) -> Duration {
        match row.patience {
            Patience::Steps(times) => self.control.step_timeout.saturating_mul(times),
            Patience::Hours(hours) => Duration::from_secs(hours * 3600),
        }
    }

    /// Whether the walk goes on.
    fn fail(&mut self, row: &Row<F>, why: &Why) -> bool {
        let state = if row.otherwise == Otherwise::GoOn { State::Skipped } else { State::Failed };
        self.note(row, state, why.reason, with_advice(&why.message, row.advice));
        let message = format!("{}: {}", row.step, why.message);
        match row.otherwise {
            Otherwise::GoOn => return true,
            Otherwise::TurnBack if !self.is_back() => self.turn_back(why.reason, message),
            Otherwise::TurnBack | Otherwise::GiveUp => {
                let whereabouts = F::whereabouts(&self.next.notes);
                let message = with_advice(&with_advice(&message, row.advice), &whereabouts);
                self.end(Phase::Failed, why.reason, message);
            }
        }
        false
    }

    fn turn_back(&mut self, reason: &str, message: String) {
        self.requeue = Some(SOON);
        if !(self.plan.touched)(&self.next.notes) {
            let phase = match (reason == CANCELLED, self.plan.back) {
                (true, _) => Phase::Cancelled,
                (false, []) => Phase::Failed,
                (false, _) => Phase::RolledBack,
            };
            self.end(phase, reason, with_advice(&message, "nothing was changed"));
            return;
        }
        self.next.phase = Phase::RollingBack;
        reason.clone_into(&mut self.next.reason);
        self.next.message = message;
        self.next.paused = None;
    }

    /// All rows are reached.
    fn complete(&mut self) {
        if !self.is_back() {
            self.end(Phase::Succeeded, "Succeeded", String::new());
            return;
        }
        for row in self.plan.forward {
            if let Some(record) = self.next.steps.get_mut(row.step).filter(|r| r.state != State::Failed) {
                record.state = State::RolledBack;
            }
        }
        let cancelled = self.before.reason == CANCELLED;
        let phase = if cancelled { Phase::Cancelled } else { Phase::RolledBack };
        let message = with_advice(&self.before.message, "everything is as it was before");
        let reason = self.before.reason.clone();
        self.end(phase, &reason, message);
    }

    fn end(&mut self, phase: Phase, reason: &str, message: String) {
        self.next.phase = phase;
        reason.clone_into(&mut self.next.reason);
        self.next.message = message;
        self.next.completed = Some(self.now);
        self.effects.clear();
        self.requeue = Some(SOON);
    }

    fn note(&mut self, row: &Row<F>, state: State, reason: &str, message: String) {
        let now = self.now;
        let record = self.next.steps.entry(row.step.to_owned()).or_insert_with(|| Record {
            state: State::Pending,
            reason: String::new(),
            message: String::new(),
            started: None,
            completed: None,
            attempts: 0,
        });
        if state == State::Running && record.state != State::Running {
            record.started = Some(now);
            record.completed = None;
            record.attempts += 1;
        }
        if matches!(state, State::Succeeded | State::Failed | State::Skipped) {
            record.started.get_or_insert(now);
            record.completed = Some(now);
        }
        record.state = state;
        reason.clone_into(&mut record.reason);
        record.message = message;
    }
}

fn with_advice(message: &str, advice: &str) -> String {
    match (message.is_empty(), advice.is_empty()) {
        (_, true) => message.to_owned(),
        (true, false) => advice.to_owned(),
        (false, false) => format!("{message}; {advice}"),
    }
}
