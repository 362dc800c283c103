//! One row in a pass: it is started, reached, missed, or lost and started again.

use std::time::Duration;

use repot_api::conditions::Reason;
use repot_apimachinery::time::Time;

use super::{
    model::{ATTEMPTS, Flow, Input, LedgerOf, PAUSE_LIMIT, POLL, Request, SOON, StepContext},
    table::{OnFailure, Plan, Proof, Row, Timeout, behind},
};
use crate::{
    ledger::{Check, Phase, Record, State, Urgency, WAITING_FOR_OTHER_SIDE},
    named::Named,
};

/// What follows from a row for the rest of the pass.
pub(super) enum Outcome {
    /// The rows behind it may start.
    Settled,
    /// The rows behind it wait.
    Open,
    /// It is not reached, and the flow does not go on without it.
    Failed(Reason),
    /// The flow rolls back, whatever the row says.
    RollBack(Reason),
}

/// The ledger of this side while rows are worked on.
pub(super) struct Steps<'a, F: Flow> {
    pub(super) plan: &'static Plan<F>,
    pub(super) input: &'a Input<'a, F>,
    pub(super) request: Request,
    pub(super) next: LedgerOf<F>,
    pub(super) effects: Vec<F::Effect>,
    pub(super) requeue: Option<Duration>,
    /// Why an abort is not granted.
    pub(super) refused: Option<Reason>,
    /// How urgent is what the flow as a whole says; `None` where no row has said anything.
    told: Option<Urgency>,
}

impl<'a, F: Flow> Steps<'a, F> {
    pub(super) fn new(plan: &'static Plan<F>, input: &'a Input<'a, F>) -> Self {
        Self {
            plan,
            input,
            request: F::request(input.observed),
            next: input.ledger.clone(),
            effects: Vec::new(),
            requeue: Some(POLL),
            refused: None,
            told: None,
        }
    }

    pub(super) fn context(&self) -> StepContext<'_, F> {
        StepContext::new(self.input, &self.next)
    }

    pub(super) fn other(&self, side: F::Side) -> Option<&'a LedgerOf<F>> {
        self.input.others.iter().find(|(other, _)| *other == side).map(|(_, ledger)| ledger)
    }

    pub(super) fn is_rolling_back(&self) -> bool {
        self.input.ledger.phase == Phase::RollingBack
    }

    /// Whether a step is started, by what is stored, of whichever side.
    fn is_started(&self, step: F::Step) -> bool {
        self.input.ledger.is_started(step)
            || self.input.others.iter().any(|(_, ledger)| ledger.is_started(step))
    }

    /// Whether nothing rolls back any more. A point of no return that this pass records counts: else one record could hold both it and
    /// a rollback.
    pub(super) fn is_past_return(&self) -> bool {
        let is_recorded_now = |step| self.next.is_started(step);
        self.plan.point_of_no_return.is_some_and(|step| is_recorded_now(step) || self.is_started(step))
    }

    /// Whether another side has seen all rows of all sides reached.
    pub(super) fn has_other_succeeded(&self) -> bool {
        self.input.others.iter().any(|(_, ledger)| ledger.phase == Phase::Succeeded)
    }

    /// Why a row of another side will not be reached, if that is so.
    pub(super) fn trouble_of(&self, side: F::Side, step: F::Step) -> Option<Reason> {
        let (name, step, other) = (side.name(), step.name(), self.other(side));
        // One that failed before this side was told to try again is going to be told as well.
        let has_failed =
            |ledger: &&LedgerOf<F>| ledger.phase == Phase::Failed && ledger.retry >= self.next.retry;
        if let Some(ledger) = other.filter(has_failed) {
            let message = format!("the {name} has failed before {step}: {}", ledger.message);
            return Some(Reason::new("OtherSideFailed", message));
        }
        // A side that takes no part decides nothing: it waits, since rolling back alone would contradict the others.
        if !F::takes_part(self.input.observed, self.input.side) {
            return None;
        }
        let last = other.and_then(|ledger| ledger.observed).or(self.input.ledger.started)?;
        let last = self.next.retried.map_or(last, |retried| last.max(retried));
        let is_over = other.is_some_and(|ledger| ledger.phase.is_end() && ledger.phase != Phase::Failed);
        // A rollback has nothing else left to do, and what is committed does not roll back.
        let is_patient = self.is_past_return() || self.is_rolling_back();
        let limit = if is_patient { self.plan.committed_side_limit } else { self.plan.side_limit };
        if is_over || self.input.now.since(last) <= limit {
            return None;
        }
        let minutes = limit.as_secs() / 60;
        let message = format!(
            "the {name} has recorded nothing for {minutes} minutes, and {step} is not reached; see whether its controller runs"
        );
        Some(Reason::new("OtherSideSilent", message))
    }

    /// What to do about a row that nothing stands before.
    pub(super) fn work_on(&mut self, rows: &[Row<F>], row: &Row<F>) -> Outcome {
        if self.is_settled(row) {
            return Outcome::Settled;
        }
        if self.next.state(row.step) == State::Pending && !(row.guard)(&self.context()) {
            self.leave_out(row);
            return Outcome::Settled;
        }
        match (row.check)(&self.context()) {
            Check::Met(evidence) => {
                let was_running = self.input.ledger.state(row.step) == State::Running;
                self.reach(row, evidence);
                if was_running {
                    self.restart_clocks(rows, row);
                }
                Outcome::Settled
            }
            Check::Waiting(why) => self.wait(rows, row, why),
            Check::Blocked(why) => self.miss(row, why),
        }
    }

    /// Whether the row is not checked any more.
    fn is_settled(&self, row: &Row<F>) -> bool {
        match (self.next.state(row.step), row.proof) {
            (State::Skipped, _) | (State::Succeeded, Proof::Latched) => true,
            // Another side has seen that all rows are reached, so the outcome is decided.
            (State::Succeeded, _) if self.has_other_succeeded() => true,
            (State::Succeeded, Proof::HeldUntil(step)) => {
                self.is_started(step) || self.input.ledger.is_settled(step)
            }
            // Nobody may count on it yet, even where the last step was left out, as it is where a side has failed.
            (State::Pending | State::Running | State::Failed | State::RolledBack, _)
            | (State::Succeeded, Proof::Held) => false,
        }
    }

    /// The row does not apply. It is settled without ever having been started.
    fn leave_out(&mut self, row: &Row<F>) {
        let message = "it does not apply here".to_owned();
        let before = self.next.steps.get(&row.step).cloned().unwrap_or_else(Record::pending);
        let record = Record {
            state: State::Skipped,
            reason: "NotNeeded".to_owned(),
            message,
            completed: Some(self.input.now),
            ..before
        };
        self.next.steps.insert(row.step, record);
    }

    fn remember(&mut self, change: fn(&StepContext<'_, F>, &mut F::Notes)) {
        let mut notes = self.next.notes.clone();
        change(&self.context(), &mut notes);
        self.next.notes = notes;
    }

    fn reach(&mut self, row: &Row<F>, evidence: String) {
        if self.next.state(row.step) == State::Succeeded {
            return;
        }
        if self.next.state(row.step) != State::Running {
            self.remember(row.on_start);
        }
        self.remember(row.on_done);
        self.next.paused = None;
        self.note(row, State::Succeeded, "Reached", evidence);
    }

    /// What ran while an earlier row had to be reached again was not worked on: its time counts from now.
    fn restart_clocks(&mut self, rows: &[Row<F>], row: &Row<F>) {
        for step in behind(rows, row.step).into_iter().skip(1) {
            let record = self.next.steps.get_mut(&step).filter(|record| record.state == State::Running);
            record.into_iter().for_each(|record| record.started = Some(self.input.now));
        }
    }

    fn wait(&mut self, rows: &[Row<F>], row: &Row<F>, why: Reason) -> Outcome {
        if self.input.ledger.state(row.step) != State::Running {
            return self.start(row, &why);
        }
        let limit = self.limit(row);
        if self.input.now.since(self.clock(rows, row)) > limit {
            let message = format!("not reached in {} minutes: {}", limit.as_secs() / 60, why.message);
            return self.miss(row, Reason::new(why.reason, message));
        }
        self.effects.extend((row.effects)(&self.context()));
        self.tell(row, &why);
        self.note(row, State::Running, why.reason, with_advice(&why.message, row.advice));
        Outcome::Open
    }

    /// From when on the time of a running row counts: from its start, or from when a row of another side was reached again that it
    /// waits for.
    fn clock(&self, rows: &[Row<F>], row: &Row<F>) -> Time {
        let started = self.next.steps.get(&row.step).and_then(|record| record.started);
        let started = started.unwrap_or(self.input.now);
        let reached = rows.iter().filter(|other| other.side != row.side).filter_map(|other| {
            let completed = self.other(other.side)?.steps.get(&other.step)?.completed?;
            behind(rows, other.step).contains(&row.step).then_some(completed.min(self.input.now))
        });
        reached.fold(started, Time::max)
    }

    /// The record that comes before all effects.
    fn start(&mut self, row: &Row<F>, why: &Reason) -> Outcome {
        if self.may_pause() {
            return self.pause(row);
        }
        let attempts = self.input.ledger.steps.get(&row.step).map_or(0, |record| record.attempts);
        // Where nothing rolls back, there is nothing better than to reach it again.
        let most = ATTEMPTS.saturating_mul(self.next.retry.saturating_add(1));
        if attempts >= most && !self.is_past_return() {
            let message = format!("was reached and lost {attempts} times: {}", why.message);
            return self.miss(row, Reason::new(why.reason, message));
        }
        self.remember(row.on_start);
        self.next.paused = None;
        self.tell(row, why);
        self.note(row, State::Running, why.reason, with_advice(&why.message, row.advice));
        self.requeue = Some(SOON);
        Outcome::Open
    }

    fn may_pause(&self) -> bool {
        let is_urgent = self.plan.unpausable_from.is_some_and(|step| self.is_started(step));
        self.request.paused && !self.is_rolling_back() && !self.is_past_return() && !is_urgent
    }

    fn pause(&mut self, row: &Row<F>) -> Outcome {
        let since = *self.next.paused.get_or_insert(self.input.now);
        if self.input.now.since(since) > PAUSE_LIMIT {
            let message = format!("paused for more than {} hours", PAUSE_LIMIT.as_secs() / 3600);
            return Outcome::RollBack(Reason::new("PausedTooLong", message));
        }
        let message =
            format!("held up by spec.paused; set it to false to go on, or {} to go back", F::ABORT_FIELD);
        self.say(row, "Paused", &message);
        self.note(row, State::Pending, "Paused", message);
        Outcome::Open
    }

    fn limit(&self, row: &Row<F>) -> Duration {
        match row.timeout {
            Timeout::Steps(times) => self.request.step_timeout.saturating_mul(times),
            Timeout::Hours(hours) => Duration::from_secs(hours * 3600),
            Timeout::Computed { limit, .. } => limit(&self.context()),
        }
    }

    /// The row is not reached.
    pub(super) fn miss(&mut self, row: &Row<F>, why: Reason) -> Outcome {
        let is_skipped = row.on_failure == OnFailure::Skip;
        let state = if is_skipped { State::Skipped } else { State::Failed };
        self.note(row, state, why.reason, with_advice(&why.message, row.advice));
        if is_skipped { Outcome::Settled } else { Outcome::Failed(why) }
    }

    /// The flow as a whole says what the most urgent of its open rows waits for, or the first of these.
    pub(super) fn tell(&mut self, row: &Row<F>, why: &Reason) {
        let message = with_advice(&why.message, row.advice);
        self.say(row, why.reason, &message);
    }

    /// A row waits for a row of another side: what can be done about it is told there.
    pub(super) fn tell_wait(&mut self, row: &Row<F>, step: F::Step, side: F::Side) {
        let message = format!("waits for {} of the {}", step.name(), side.name());
        self.say(row, WAITING_FOR_OTHER_SIDE, &message);
    }

    /// The flow as a whole waits for another side alone.
    pub(super) fn tell_all(&mut self, step: F::Step, side: F::Side) {
        self.next.reason = WAITING_FOR_OTHER_SIDE.to_owned();
        self.next.message = format!("waits for {} of the {}", step.name(), side.name());
    }

    fn say(&mut self, row: &Row<F>, reason: &str, message: &str) {
        // During a rollback the flow as a whole says why it rolls back; its steps say what they wait for.
        let urgency = Some(Urgency::of(reason));
        if self.told >= urgency || self.next.phase != Phase::Running {
            return;
        }
        self.told = urgency;
        reason.clone_into(&mut self.next.reason);
        self.next.message = format!("{}: {message}", row.step.name());
        if let Some(refused) = &self.refused {
            self.next.message = with_advice(&self.next.message, &format!("not aborted: {}", refused.message));
        }
    }

    fn note(&mut self, row: &Row<F>, state: State, reason: &str, message: String) {
        let now = self.input.now;
        let record = self.next.steps.entry(row.step).or_insert_with(Record::pending);
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

pub(super) fn with_advice(message: &str, advice: &str) -> String {
    match (message.is_empty(), advice.is_empty()) {
        (_, true) => message.to_owned(),
        (true, false) => advice.to_owned(),
        (false, false) => format!("{message}; {advice}"),
    }
}
