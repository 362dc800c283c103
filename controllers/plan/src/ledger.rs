//! The ledger: what is recorded about a flow, step by step. It is stored in the status of the flow's object.

use std::collections::BTreeMap;

use repot_api::conditions::Reason;
use repot_apimachinery::time::Time;

/// Fields of the status that all flows have.
pub const FIELDS: [&str; 13] = [
    "completionTime",
    "conditions",
    "failedPhase",
    "message",
    "observedTime",
    "pausedTime",
    "phase",
    "planVersion",
    "reason",
    "retriedTime",
    "retry",
    "startTime",
    "steps",
];

/// Reason of a row that waits for a row of another side.
pub const WAITING_FOR_OTHER_SIDE: &str = "WaitingForOtherSide";

/// Reason of a row that waits for the confirmation of a person.
pub const NOT_CONFIRMED: &str = "NotConfirmed";

/// Reason of a row that waits until a person has made sure that controllers of the source cannot act.
pub const SOURCE_CONTROLLERS_MAY_RUN: &str = "SourceControllersMayRun";

/// Reason of a row that waits until a person has corrected Machines.
pub const MACHINES_DIFFER: &str = "MachinesDiffer";

/// Reasons of rows that go on only when a person has acted.
const FOR_A_PERSON: [&str; 3] = [NOT_CONFIRMED, SOURCE_CONTROLLERS_MAY_RUN, MACHINES_DIFFER];

/// How much a person has to learn of what a row waits for. Of rows that are open at the same time, the most urgent one is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// A row of another side has to be reached, and that one says more.
    OtherSide,
    /// The row is worked on.
    Work,
    /// A person has to act.
    Person,
}

impl Urgency {
    /// That of a row with this reason.
    #[must_use]
    pub fn of(reason: &str) -> Self {
        match reason {
            WAITING_FOR_OTHER_SIDE => Self::OtherSide,
            other if FOR_A_PERSON.contains(&other) => Self::Person,
            _ => Self::Work,
        }
    }
}

/// How far a step has come, by what is observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// It is reached; the text is the evidence.
    Met(String),
    /// It is not reached yet, which is normal.
    Waiting(Reason),
    /// It will not be reached by waiting.
    Blocked(Reason),
}

impl Check {
    /// [`Check::Waiting`] with this reason and message.
    #[must_use]
    pub fn waiting(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Waiting(Reason::new(reason, message))
    }

    /// [`Check::Blocked`] with this reason and message.
    #[must_use]
    pub fn blocked(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Blocked(Reason::new(reason, message))
    }
}

/// How far a step has come, as recorded. The names are those of the served kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not started.
    Pending,
    /// Started: its effects may have been requested.
    Running,
    /// Reached.
    Succeeded,
    /// Not reached in time, or not reachable.
    Failed,
    /// Left out: it does not apply, or the flow succeeds without it.
    Skipped,
    /// It was reached or started, and is undone.
    RolledBack,
}

/// How far a flow has come. The names are those of the served kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not started.
    Pending,
    /// Waits for its schedule.
    Scheduled,
    /// Its forward table is worked on.
    Running,
    /// Its rollback table is worked on.
    RollingBack,
    /// It ended with what was requested.
    Succeeded,
    /// It failed, and everything is as it was before.
    RolledBack,
    /// It failed and cannot roll back; a person has to act, and the message says how.
    Failed,
    /// It was aborted, and everything is as it was before.
    Cancelled,
}

impl Phase {
    /// Whether the flow has ended.
    #[must_use]
    pub fn is_end(self) -> bool {
        match self {
            Self::Succeeded | Self::RolledBack | Self::Failed | Self::Cancelled => true,
            Self::Pending | Self::Scheduled | Self::Running | Self::RollingBack => false,
        }
    }

    /// Whether the flow has left its forward table for its rollback table.
    #[must_use]
    pub fn is_rollback(self) -> bool {
        match self {
            Self::RollingBack | Self::RolledBack | Self::Cancelled => true,
            Self::Pending | Self::Scheduled | Self::Running | Self::Succeeded | Self::Failed => false,
        }
    }
}

/// The record of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// How far the step has come.
    pub state: State,
    /// Why, in one word.
    pub reason: String,
    /// Why, for people: what is waited for and what to do about it, or the evidence.
    pub message: String,
    /// When the step was started, the last time.
    pub started: Option<Time>,
    /// When the step ended.
    pub completed: Option<Time>,
    /// How often the step was started.
    pub attempts: u32,
}

impl Record {
    /// A step that is not started.
    #[must_use]
    pub fn pending() -> Self {
        Self {
            state: State::Pending,
            reason: String::new(),
            message: String::new(),
            started: None,
            completed: None,
            attempts: 0,
        }
    }
}

/// What one side of a flow has recorded. `S` is the flow's enum of steps, `N` its notes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger<S: Ord, N> {
    /// Version of the table that the flow goes by; zero before it started.
    pub version: u32,
    /// How far the flow has come.
    pub phase: Phase,
    /// Why, in one word.
    pub reason: String,
    /// Why, for people, with what to do next where something is to be done.
    pub message: String,
    /// When the flow started.
    pub started: Option<Time>,
    /// When the flow ended.
    pub completed: Option<Time>,
    /// Since when `spec.paused` holds the flow.
    pub paused: Option<Time>,
    /// When this side last wrote. Only flows with several sides record it: the others see by it that this side is alive.
    pub observed: Option<Time>,
    /// The phase in which the flow failed, so that a retry goes on there.
    pub failed_in: Option<Phase>,
    /// The number of the last request to try again that this side has followed; zero where there was none.
    pub retry: u32,
    /// When this side followed it.
    pub retried: Option<Time>,
    /// What is recorded of each step, by step.
    pub steps: BTreeMap<S, Record>,
    /// What was observed once and is needed later.
    pub notes: N,
}

impl<S: Ord, N: Default> Default for Ledger<S, N> {
    fn default() -> Self {
        Self {
            version: 0,
            phase: Phase::Pending,
            reason: String::new(),
            message: String::new(),
            started: None,
            completed: None,
            paused: None,
            observed: None,
            failed_in: None,
            retry: 0,
            retried: None,
            steps: BTreeMap::new(),
            notes: N::default(),
        }
    }
}

impl<S: Ord, N> Ledger<S, N> {
    /// The recorded state of a step; pending where there is no record.
    #[must_use]
    pub fn state(&self, step: S) -> State {
        self.steps.get(&step).map_or(State::Pending, |record| record.state)
    }

    /// Whether effects of the step may ever have been requested.
    #[must_use]
    pub fn is_started(&self, step: S) -> bool {
        self.steps.get(&step).is_some_and(|record| record.started.is_some())
    }

    /// Whether the step is reached or left out, so that the rows behind it may start.
    #[must_use]
    pub fn is_settled(&self, step: S) -> bool {
        matches!(self.state(step), State::Succeeded | State::Skipped)
    }
}
