//! Tables: the rows of a flow, their order, and their versions.

use std::time::Duration;

use super::model::{Flow, StepContext};
use crate::{
    ledger::{self, Check},
    named::Named,
};

/// How long a reached step counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof<S> {
    /// It was reached once, which is recorded with its evidence and never checked again.
    Latched,
    /// It is checked in each pass until the flow has ended, and may have to be reached again.
    Held,
    /// The same, until the named step is started.
    HeldUntil(S),
}

/// How long a step is waited for.
pub enum Timeout<F: Flow> {
    /// This many times `spec.stepTimeout`.
    Steps(u32),
    /// This many hours.
    Hours(u64),
    /// A time that follows from what was observed, such as a TTL and an interval.
    Computed {
        /// How it is computed, for the rendered table.
        text: &'static str,
        /// The time, counted from the start of the step.
        limit: fn(&StepContext<'_, F>) -> Duration,
    },
}

impl<F: Flow> Clone for Timeout<F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Flow> Copy for Timeout<F> {}

/// What follows when a step is not reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// All sides roll back. Past the point of no return the flow fails instead.
    RollBack,
    /// This side fails: it cannot go back by itself.
    Fail,
    /// The flow goes on without the step.
    Skip,
}

/// A step of a flow. Names of steps are facts that are reached.
pub struct Row<F: Flow> {
    /// Step that is reached by this row.
    pub step: F::Step,
    /// Side whose controller does this step.
    pub side: F::Side,
    /// Steps of the same table that have to be reached before, of any side. Rows that do not wait for each other run in parallel.
    pub after: &'static [F::Step],
    /// Whether the row applies. It is asked once, when the row could start; a row that does not apply is recorded as skipped.
    pub guard: fn(&StepContext<'_, F>) -> bool,
    /// What is done and waited for, in one sentence.
    pub does: &'static str,
    /// How long it counts.
    pub proof: Proof<F::Step>,
    /// How long it is waited for.
    pub timeout: Timeout<F>,
    /// What follows when it is not reached.
    pub on_failure: OnFailure,
    /// What a person can do while it is waited for.
    pub advice: &'static str,
    /// Type of the condition that shows this row; only where other programs know such a type.
    pub condition: Option<&'static str>,
    /// How far it has come.
    pub check: fn(&StepContext<'_, F>) -> Check,
    /// What to request while it is not reached.
    pub effects: fn(&StepContext<'_, F>) -> Vec<F::Effect>,
    /// What to remember before anything is requested.
    pub on_start: fn(&StepContext<'_, F>, &mut F::Notes),
    /// What to remember when it is reached.
    pub on_done: fn(&StepContext<'_, F>, &mut F::Notes),
}

impl<F: Flow> Clone for Row<F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Flow> Copy for Row<F> {}

impl<F: Flow> Row<F> {
    /// A row that waits for no other one, applies always, is checked once, is waited for one step, rolls back on failure, requests
    /// nothing and remembers nothing. It has no texts, so it is incomplete: [`Plan::problems`] reports that.
    #[must_use]
    pub const fn new(side: F::Side, step: F::Step, check: fn(&StepContext<'_, F>) -> Check) -> Self {
        Self {
            step,
            side,
            after: &[],
            guard: |_| true,
            does: "",
            proof: Proof::Latched,
            timeout: Timeout::Steps(1),
            on_failure: OnFailure::RollBack,
            advice: "",
            condition: None,
            check,
            effects: |_| Vec::new(),
            on_start: |_, _| {},
            on_done: |_, _| {},
        }
    }
}

/// One version of a flow: its forward table, and its rollback table.
pub struct Plan<F: Flow> {
    /// Kind of the flow's object.
    pub kind: &'static str,
    /// Version of the tables. It is recorded when a flow starts, and the flow goes by this version to its end.
    pub version: u32,
    /// The forward table. A row stands behind all rows that it waits for.
    pub forward: &'static [Row<F>],
    /// Rows of the rollback table; empty where the flow has no rollback.
    pub rollback: &'static [Row<F>],
    /// Step of `forward` from which on the flow cannot roll back: once it is started, an abort comes too late.
    pub point_of_no_return: Option<F::Step>,
    /// Whether this side has anything to undo.
    pub needs_rollback: fn(&F::Notes) -> bool,
    /// Fields of the status that hold the notes and what is derived of the ledger. Others are not stored.
    pub fields: &'static [&'static str],
    /// Step of `forward` from which on `spec.paused` holds nothing until the flow is past the point of no return: the data cannot be
    /// reached meanwhile. `None` where a pause may come at any time.
    pub unpausable_from: Option<F::Step>,
    /// How long a side may be silent before rows that wait for it fail. Only flows with several sides use it.
    pub side_limit: Duration,
    /// The same once the point of no return is started: nothing rolls back any more, so a side has longer to come back.
    pub committed_side_limit: Duration,
}

impl<F: Flow> Clone for Plan<F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Flow> Copy for Plan<F> {}

/// All versions of a flow that this program knows.
pub struct Plans<F: Flow> {
    /// The oldest first. A flow starts by the last one, and an unfinished one goes on by the version that started it. A version may be
    /// removed when no unfinished flow of it can exist any more.
    pub versions: &'static [&'static Plan<F>],
}

impl<F: Flow> Plans<F> {
    /// The version by which flows start.
    ///
    /// # Panics
    /// Where there is none; a program without any version of a flow does not start that flow's controller.
    #[must_use]
    pub fn newest(&self) -> &'static Plan<F> {
        self.versions.last().expect("at least one version")
    }

    /// This version; `None` where it is not known.
    #[must_use]
    pub fn of(&self, version: u32) -> Option<&'static Plan<F>> {
        self.versions.iter().copied().find(|plan| plan.version == version)
    }

    /// What to say of a flow of an unknown version.
    #[must_use]
    pub fn unknown(&self, version: u32) -> String {
        let newest = self.newest().version;
        let action =
            if version > newest { "upgrade this controller" } else { "run the controller that started it" };
        format!(
            "it was started by version {version} of the plan, and this controller knows versions up to {newest}; {action}"
        )
    }
}

impl<F: Flow> Plan<F> {
    /// All steps, those of the rollback behind the others: the order in which records are shown.
    #[must_use]
    pub fn steps(&self) -> Vec<F::Step> {
        self.forward.iter().chain(self.rollback).map(|row| row.step).collect()
    }

    /// What is wrong with the form of the tables; empty where nothing is. A test asks for each version of each flow.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for rows in [self.forward, self.rollback] {
            for (at, row) in rows.iter().enumerate() {
                let says = |problem: &str| format!("{} {}: {problem}", self.kind, row.step.name());
                let is_before = |step: &F::Step| rows[..at].iter().any(|row| row.step == *step);
                if !row.after.iter().all(is_before) {
                    problems.push(says("waits for a row that does not stand before it"));
                }
                if matches!(row.proof, Proof::HeldUntil(step) if !rows[at..].iter().any(|row| row.step == step))
                {
                    problems.push(says("is held until a row that does not follow"));
                }
                if row.does.is_empty() || row.advice.is_empty() {
                    problems.push(says("does not say what it does, or what a person can do"));
                }
            }
        }
        let all = self.steps();
        for (at, step) in all.iter().enumerate() {
            if all[..at].contains(step) {
                problems.push(format!("{} {}: there are two such rows", self.kind, step.name()));
            }
        }
        for field in self.fields.iter().filter(|field| ledger::FIELDS.contains(field)) {
            problems.push(format!("{}: field {field} is one of all flows", self.kind));
        }
        problems.extend(self.problems_of_return());
        problems
    }

    fn problems_of_return(&self) -> Vec<String> {
        let Some(step) = self.point_of_no_return else { return Vec::new() };
        if self.rollback.is_empty() || !self.forward.iter().any(|row| row.step == step) {
            return vec![format!("{} {}: is no point of return of any table", self.kind, step.name())];
        }
        let past = behind(self.forward, step);
        let past = self.forward.iter().filter(|row| past.contains(&row.step));
        past.filter(|row| row.on_failure == OnFailure::RollBack)
            .map(|row| format!("{} {}: rolls back past the point of no return", self.kind, row.step.name()))
            .collect()
    }
}

/// The step, and all steps that wait for it, directly or by other rows. The table is in order.
pub(super) fn behind<F: Flow>(rows: &[Row<F>], step: F::Step) -> Vec<F::Step> {
    let mut behind = vec![step];
    for row in rows {
        if row.after.iter().any(|before| behind.contains(before)) {
            behind.push(row.step);
        }
    }
    behind
}
