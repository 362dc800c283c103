//! One pass over the tables of a workflow.

use std::time::Duration;

use super::{
    ATTEMPTS, CANCELLED, Control, Decision, Flow, Otherwise, PAUSE_LIMIT, POLL, Patience, Plan, Proof, Row,
    SOON, Scene,
};
use crate::{
    ledger::{Check, Ledger, Phase, Record, State, Why},
    time::Time,
};

/// What the end of a workflow says that has changed nothing.
const NOTHING_CHANGED: &str = "nothing was changed";

/// One pass over the tables.
pub(super) struct Pass<'a, F: Flow> {
    plan: &'a Plan<F>,
    world: &'a F::World,
    control: Control,
    before: &'a Ledger<F::Notes>,
    next: Ledger<F::Notes>,
    now: Time,
    effects: Vec<F::Effect>,
    requeue: Option<Duration>,
}

impl<'a, F: Flow> Pass<'a, F> {
    /// What to do next.
    pub(super) fn over(
        plan: &'a Plan<F>,
        world: &'a F::World,
        before: &'a Ledger<F::Notes>,
        now: Time,
    ) -> Decision<F> {
        let (control, next) = (F::control(world), before.clone());
        let mut pass =
            Self { plan, world, control, before, next, now, effects: Vec::new(), requeue: Some(POLL) };
        pass.run();
        let records = (pass.next != *before).then_some(pass.next);
        Decision { effects: pass.effects, records, requeue: pass.requeue }
    }

    fn run(&mut self) {
        let phase = self.before.phase;
        if phase.is_end() {
            self.effects = F::leave(self.world);
            self.requeue = (!self.effects.is_empty()).then_some(POLL);
        } else if let Some(why) = self.control.abandoned.clone().filter(|_| !self.is_touched()) {
            self.end(Phase::Cancelled, why.reason, with_advice(&why.message, NOTHING_CHANGED));
        } else if matches!(phase, Phase::Pending | Phase::Scheduled) {
            self.start();
        } else if self.before.version != self.plan.version {
            let (theirs, ours) = (self.before.version, self.plan.version);
            self.next.message = format!(
                "was begun by version {theirs} of the plan, and this controller has version {ours}; run the controller that began it"
            );
        } else if phase == Phase::RollingBack {
            self.walk(self.plan.back);
        } else if self.is_past_return() {
            self.walk(self.plan.forward);
        } else if let Some(why) = self.control.abandoned.clone() {
            self.turn_back(why.reason, why.message);
        } else if self.control.cancel {
            self.turn_back(CANCELLED, "called off by spec.cancel or by deletion".to_owned());
        } else {
            self.walk(self.plan.forward);
        }
    }

    /// Whether there may be something to undo, by what was recorded before this pass.
    fn is_touched(&self) -> bool {
        (self.plan.touched)(&self.before.notes)
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
                Check::Met(evidence) => {
                    let lost = self.before.state(row.step) == State::Running;
                    self.meet(row, evidence);
                    if lost {
                        self.restart_clocks(rows);
                    }
                }
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
            (_, Proof::Held | Proof::Latched) => false,
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

    /// What ran while an earlier row had to be reached again was not worked on: its time counts from now.
    fn restart_clocks(&mut self, rows: &[Row<F>]) {
        for row in rows {
            let record = self.next.steps.get_mut(row.step);
            record.filter(|r| r.state == State::Running).into_iter().for_each(|r| r.started = Some(self.now));
        }
    }

    /// Begins the row, or asks for its effects. Whether the walk goes on.
    fn wait(&mut self, row: &Row<F>, why: Why) -> bool {
        if self.before.state(row.step) != State::Running {
            return self.begin(row, &why);
        }
        let started = self.next.steps.get(row.step).and_then(|record| record.started).unwrap_or(self.now);
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
        let mut message = format!("{}: {}", row.step, why.message);
        if self.is_back() {
            message = format!("{message}; this was on the way back after {}", self.before.message);
        }
        match row.otherwise {
            Otherwise::GoOn => return true,
            // A row that is held, such as the lock, may be lost when there is no way back any more.
            Otherwise::TurnBack if !self.is_back() && !self.is_past_return() => {
                self.turn_back(why.reason, message);
            }
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
            self.end(phase, reason, with_advice(&message, NOTHING_CHANGED));
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
        // On the way back the workflow as a whole says why it went back; its steps say what they wait for.
        if matches!(state, State::Running | State::Pending) && self.next.phase == Phase::Running {
            reason.clone_into(&mut self.next.reason);
            self.next.message = format!("{}: {message}", row.step);
        }
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
