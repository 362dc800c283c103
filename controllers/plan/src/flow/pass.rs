//! One pass over the tables of a flow.

use repot_api::conditions::Reason;

use super::{
    model::{Abort, CANCELLED, Decision, Flow, HEARTBEAT, Input, LedgerOf, POLL, Request, SOON},
    step::{Outcome, Steps, with_advice},
    table::{OnFailure, Plan, Plans, Row, behind},
};
use crate::{
    ledger::{Phase, State},
    named::Named,
};

/// What the end of a flow says that has changed nothing.
const NOTHING_CHANGED: &str = "nothing was changed";

/// What to do next, by the version of the tables that started the flow.
#[must_use]
pub fn decide<F: Flow>(plans: &Plans<F>, input: &Input<'_, F>) -> Decision<F> {
    let recorded = |ledger: &LedgerOf<F>| (ledger.version > 0).then_some(ledger.version);
    let others = input.others.iter().filter_map(|(_, ledger)| recorded(ledger)).max();
    let version = recorded(input.ledger).or(others).unwrap_or(plans.newest().version);
    match plans.of(version) {
        Some(plan) => Pass::new(plan, input).run(),
        None => leave_alone(plans, input, version),
    }
}

/// What another version started is left as it is, with a message.
fn leave_alone<F: Flow>(plans: &Plans<F>, input: &Input<'_, F>, version: u32) -> Decision<F> {
    let mut next = input.ledger.clone();
    next.message = plans.unknown(version);
    Decision { effects: Vec::new(), records: (next != *input.ledger).then_some(next), requeue: Some(POLL) }
}

/// Why a row cannot start: a row of this side is not reached, or this row of another side.
#[derive(Clone, Copy)]
enum Cause<Side, Step> {
    Own,
    Other(Side, Step),
}

/// Rows that are not reached, and those behind them.
type Open<F> = Vec<(<F as Flow>::Step, Cause<<F as Flow>::Side, <F as Flow>::Step>)>;

/// The rows that are worked on in a phase.
fn rows_of<F: Flow>(plan: &Plan<F>, phase: Phase) -> &'static [Row<F>] {
    if phase == Phase::RollingBack { plan.rollback } else { plan.forward }
}

/// One pass over the tables.
struct Pass<'a, F: Flow> {
    steps: Steps<'a, F>,
}

impl<'a, F: Flow> Pass<'a, F> {
    fn new(plan: &'static Plan<F>, input: &'a Input<'a, F>) -> Self {
        Self { steps: Steps::new(plan, input) }
    }

    fn run(mut self) -> Decision<F> {
        self.choose();
        let Steps { input, mut next, effects, requeue, .. } = self.steps;
        // Sides that are alone need not show that they are alive.
        if F::Side::ALL.len() > 1 && !input.ledger.phase.is_end() {
            let is_due = next.observed.is_none_or(|last| input.now.since(last) >= HEARTBEAT);
            if is_due || next != *input.ledger {
                next.observed = Some(input.now);
            }
        }
        let records = (next != *input.ledger).then_some(next);
        Decision { effects, records, requeue }
    }

    fn choose(&mut self) {
        let (plan, phase) = (self.steps.plan, self.steps.input.ledger.phase);
        let Request { abandoned, superseded, continued, .. } = self.steps.request.clone();
        if phase == Phase::Failed && self.is_retried() {
            match F::may_retry(&self.steps.context()) {
                Ok(()) => self.reopen(),
                Err(why) => self.refuse_retry(&why),
            }
        } else if phase.is_end() {
            self.follow_retry();
            self.steps.effects = F::cleanup(&self.steps.context());
            self.steps.requeue = (!self.steps.effects.is_empty()).then_some(POLL);
        } else if let Some(why) = continued {
            self.end(Phase::Failed, why.reason, why.message);
        } else if let Some(why) = superseded.clone().filter(|_| !self.takes_part()) {
            self.end(Phase::RolledBack, why.reason, with_advice(&why.message, "it does the rest"));
        } else if let Some(why) = superseded.filter(|_| phase != Phase::RollingBack) {
            self.roll_back(why.reason, why.message);
        } else if let Some(why) =
            abandoned.clone().filter(|_| !self.is_touched() && !self.steps.is_past_return())
        {
            self.end(Phase::Cancelled, why.reason, with_advice(&why.message, NOTHING_CHANGED));
        } else if matches!(phase, Phase::Pending | Phase::Scheduled) {
            self.start();
        } else if phase == Phase::RollingBack {
            self.walk(plan.rollback);
        } else if self.steps.is_past_return() || self.steps.has_other_succeeded() {
            self.walk(plan.forward);
        } else if let Some((reason, message)) = self.other_rolls_back() {
            self.roll_back(&reason, message);
        } else if let Some(why) = abandoned {
            self.roll_back(why.reason, why.message);
        } else if self.is_aborted() {
            self.roll_back(CANCELLED, format!("called off by {} or by deletion", F::ABORT_FIELD));
        } else {
            self.walk(plan.forward);
        }
    }

    /// Whether somebody asks to try again what is still there.
    fn is_retried(&self) -> bool {
        let Request { retry, abandoned, superseded, continued, .. } = &self.steps.request;
        let is_over = [abandoned, superseded, continued].into_iter().any(Option::is_some);
        *retry > self.steps.next.retry && !is_over
    }

    /// A side that has not failed follows by going on, or by being at its end. The others see that it allows the retry.
    fn follow_retry(&mut self) {
        let (asked, followed) = (self.steps.request.retry, self.steps.next.retry);
        let is_failed = self.steps.input.ledger.phase == Phase::Failed;
        if asked > followed && !is_failed && F::may_retry(&self.steps.context()).is_ok() {
            self.note_retry(rows_of(self.steps.plan, self.steps.input.ledger.phase));
        }
    }

    fn refuse_retry(&mut self, why: &Reason) {
        let words = format!("not tried again: {}", why.message);
        let message = &mut self.steps.next.message;
        if !message.contains(&words) {
            *message = with_advice(message, &words);
        }
        self.steps.requeue = Some(HEARTBEAT);
    }

    /// What has failed is tried again from where it stood.
    fn reopen(&mut self) {
        let retry = self.steps.request.retry;
        let next = &mut self.steps.next;
        next.phase = next.failed_in.take().unwrap_or(Phase::Running);
        next.completed = None;
        next.observed = next.observed.map(|_| self.steps.input.now);
        next.message = format!("tried again, as request {retry} asks");
        self.note_retry(rows_of(self.steps.plan, self.steps.next.phase));
        self.steps.requeue = Some(SOON);
    }

    /// Each row that is not reached has all its time again.
    fn note_retry(&mut self, rows: &'static [Row<F>]) {
        let now = self.steps.input.now;
        let next = &mut self.steps.next;
        for row in rows {
            match next.steps.get_mut(&row.step) {
                Some(record) if record.state == State::Failed => record.state = State::Pending,
                Some(record) if record.state == State::Running => record.started = Some(now),
                Some(_) | None => {}
            }
        }
        next.retry = self.steps.request.retry;
        next.retried = Some(now);
    }

    /// Whether there may be something to undo, by what was recorded before this pass.
    fn is_touched(&self) -> bool {
        (self.steps.plan.needs_rollback)(&self.steps.input.ledger.notes)
    }

    fn takes_part(&self) -> bool {
        F::takes_part(self.steps.input.observed, self.steps.input.side)
    }

    fn is_aborted(&mut self) -> bool {
        match self.steps.request.abort {
            Abort::None => false,
            Abort::Force => true,
            Abort::Abort => match F::may_abort(&self.steps.context()) {
                Ok(()) => true,
                Err(why) => {
                    self.steps.refused = Some(why);
                    false
                }
            },
        }
    }

    /// Why another side rolls back, if one does.
    fn other_rolls_back(&self) -> Option<(String, String)> {
        // A side that takes no part decides nothing for the others.
        let takes_part = |side| F::takes_part(self.steps.input.observed, side);
        let mut others = self.steps.input.others.iter().filter(|(side, _)| takes_part(*side));
        let (side, ledger) = others.find(|(_, ledger)| ledger.phase.is_rollback())?;
        Some((ledger.reason.clone(), format!("the {} rolls back: {}", side.name(), ledger.message)))
    }

    fn start(&mut self) {
        let next = &mut self.steps.next;
        next.version = self.steps.plan.version;
        next.phase = Phase::Running;
        next.reason = "Started".to_owned();
        next.message = String::new();
        next.started = Some(self.steps.input.now);
        self.steps.requeue = Some(SOON);
    }

    fn walk(&mut self, rows: &'static [Row<F>]) {
        self.follow_retry();
        self.steps.effects = F::upkeep(&self.steps.context());
        let mut open: Open<F> = Vec::new();
        for row in rows {
            let cause = open.iter().find(|(step, _)| row.after.contains(step)).map(|(_, cause)| *cause);
            let outcome = match cause {
                _ if row.side != self.steps.input.side => {
                    if cause.is_some() || !self.is_settled_elsewhere(row) {
                        open.push((row.step, cause.unwrap_or(Cause::Other(row.side, row.step))));
                    }
                    continue;
                }
                Some(Cause::Other(side, step)) if !self.steps.next.is_settled(row.step) => {
                    self.wait_for_other(rows, row, side, step)
                }
                Some(_) => Outcome::Open,
                None => self.steps.work_on(rows, row),
            };
            match outcome {
                Outcome::Settled => {}
                Outcome::Open => open.push((row.step, cause.unwrap_or(Cause::Own))),
                Outcome::Failed(why) => return self.fail(row, &why),
                Outcome::RollBack(why) => return self.roll_back(why.reason, why.message),
            }
        }
        self.end_of_walk(rows, &open);
    }

    /// Whether another side has this row behind it.
    fn is_settled_elsewhere(&self, row: &Row<F>) -> bool {
        // Where another flow goes on, each side undoes what it has made, and none waits for one that may be dead.
        if self.steps.request.superseded.is_some() || !F::takes_part(self.steps.input.observed, row.side) {
            return true;
        }
        let Some(ledger) = self.steps.other(row.side) else { return false };
        // A side that has rolled back has nothing left to undo.
        let is_back =
            self.steps.is_rolling_back() && matches!(ledger.phase, Phase::RolledBack | Phase::Cancelled);
        is_back || ledger.is_settled(row.step)
    }

    /// The row waits for a row of another side, which may have failed, or may be silent for too long.
    fn wait_for_other(&mut self, rows: &[Row<F>], row: &Row<F>, side: F::Side, step: F::Step) -> Outcome {
        match self.steps.trouble_of(side, step) {
            // What a row past the point of no return does on failure counts once that point is started.
            Some(why) if self.is_early(rows, row) => Outcome::RollBack(why),
            Some(why) => self.steps.miss(row, why),
            None => {
                self.steps.tell_wait(row, step, side);
                Outcome::Open
            }
        }
    }

    /// Whether the row is past a point of no return that is not started, so that the flow can still roll back.
    fn is_early(&self, rows: &[Row<F>], row: &Row<F>) -> bool {
        let past = self.steps.plan.point_of_no_return.map(|step| behind(rows, step)).unwrap_or_default();
        !self.steps.is_rolling_back() && !self.steps.is_past_return() && past.contains(&row.step)
    }

    fn end_of_walk(&mut self, rows: &[Row<F>], open: &Open<F>) {
        let mut own = rows.iter().filter(|row| row.side == self.steps.input.side);
        if own.any(|row| open.iter().any(|(step, _)| *step == row.step)) {
            return;
        }
        if open.is_empty() || self.steps.is_rolling_back() || self.steps.has_other_succeeded() {
            return self.complete();
        }
        let Some((step, Cause::Other(side, _))) = open.first().copied() else { return };
        match self.steps.trouble_of(side, step) {
            Some(why) if self.steps.is_past_return() => self.end_failed(why.reason, &why.message, ""),
            Some(why) => self.roll_back(why.reason, why.message),
            None => self.steps.tell_all(step, side),
        }
    }

    fn fail(&mut self, row: &Row<F>, why: &Reason) {
        let mut message = format!("{}: {}", row.step.name(), why.message);
        if self.steps.is_rolling_back() {
            message =
                format!("{message}; this was on the way back after {}", self.steps.input.ledger.message);
        } else if row.on_failure == OnFailure::RollBack && !self.steps.is_past_return() {
            return self.roll_back(why.reason, message);
        }
        // A row that is held, such as a lock, may be lost past the point of no return.
        self.end_failed(why.reason, &message, row.advice);
    }

    fn end_failed(&mut self, reason: &str, message: &str, advice: &str) {
        let locations = F::data_locations(&self.steps.next.notes);
        let mut message = with_advice(&with_advice(message, advice), &locations);
        if let Some(field) = F::RETRY_FIELD {
            self.steps.next.failed_in = Some(self.steps.input.ledger.phase);
            message = with_advice(&message, &format!("raise {field} to try again"));
        }
        self.end(Phase::Failed, reason, message);
    }

    fn roll_back(&mut self, reason: &str, message: String) {
        self.steps.requeue = Some(SOON);
        self.steps.effects.clear();
        if !(self.steps.plan.needs_rollback)(&self.steps.next.notes) {
            let phase = match (reason == CANCELLED, self.steps.plan.rollback) {
                (true, _) => Phase::Cancelled,
                (false, []) => Phase::Failed,
                (false, _) => Phase::RolledBack,
            };
            self.end(phase, reason, with_advice(&message, NOTHING_CHANGED));
            return;
        }
        let next = &mut self.steps.next;
        next.phase = Phase::RollingBack;
        reason.clone_into(&mut next.reason);
        next.message = message;
        next.paused = None;
    }

    /// All rows are reached.
    fn complete(&mut self) {
        if !self.steps.is_rolling_back() {
            self.end(Phase::Succeeded, "Succeeded", String::new());
            return;
        }
        for row in self.steps.plan.forward {
            let record = self.steps.next.steps.get_mut(&row.step);
            if let Some(record) = record.filter(|record| record.state != State::Failed) {
                record.state = State::RolledBack;
            }
        }
        let before = self.steps.input.ledger;
        let phase = if before.reason == CANCELLED { Phase::Cancelled } else { Phase::RolledBack };
        let message = match &self.steps.request.superseded {
            Some(why) => why.message.clone(),
            None => with_advice(&before.message, "everything is as it was before"),
        };
        self.end(phase, &before.reason, message);
    }

    fn end(&mut self, phase: Phase, reason: &str, message: String) {
        let next = &mut self.steps.next;
        next.phase = phase;
        reason.clone_into(&mut next.reason);
        next.message = message;
        next.completed = Some(self.steps.input.now);
        self.steps.effects.clear();
        self.steps.requeue = Some(SOON);
    }
}
