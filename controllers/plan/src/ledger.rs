//! The ledger: what is written down about a workflow, step by step. It is the status of the workflow's object.

use std::collections::BTreeMap;

use crate::time::Time;

/// Why something is as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// One word in CamelCase, for programs.
    pub reason: &'static str,
    /// The same for people.
    pub message: String,
}

impl Why {
    /// A reason and its message.
    #[must_use]
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// How far a step has come, by what is seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// It is reached; the text is the evidence.
    Met(String),
    /// It is not reached yet, which is normal.
    Waiting(Why),
    /// It will not be reached by waiting.
    Blocked(Why),
}

impl Check {
    /// [`Check::Waiting`].
    #[must_use]
    pub fn waiting(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Waiting(Why::new(reason, message))
    }

    /// [`Check::Blocked`].
    #[must_use]
    pub fn blocked(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Blocked(Why::new(reason, message))
    }
}

/// How far a step has come, as recorded. The words are those of the served kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not begun.
    Pending,
    /// Begun: its effects may have been asked for.
    Running,
    /// Reached.
    Succeeded,
    /// Not reached in time, or not to be reached.
    Failed,
    /// Left undone, because it is not needed for the workflow to succeed.
    Skipped,
    /// Was reached or begun, and is undone.
    RolledBack,
}

/// How far a workflow has come. The words are those of the served kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not begun.
    Pending,
    /// Waits for its schedule.
    Scheduled,
    /// On its way.
    Running,
    /// On its way back.
    RollingBack,
    /// The end that was asked for.
    Succeeded,
    /// It failed, and everything is what it was before.
    RolledBack,
    /// It failed and cannot go back; a person has to act, and the message says how.
    Failed,
    /// It was called off, and everything is what it was before.
    Cancelled,
}

impl Phase {
    /// Whether nothing more is going to happen.
    #[must_use]
    pub fn is_end(self) -> bool {
        match self {
            Self::Succeeded | Self::RolledBack | Self::Failed | Self::Cancelled => true,
            Self::Pending | Self::Scheduled | Self::Running | Self::RollingBack => false,
        }
    }
}

/// The record of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// How far it has come.
    pub state: State,
    /// Why, in one word.
    pub reason: String,
    /// Why, for people: what is waited for and what to do about it, or the evidence.
    pub message: String,
    /// When it was begun, the last time.
    pub started: Option<Time>,
    /// When it was over.
    pub completed: Option<Time>,
    /// How often it was begun.
    pub attempts: u32,
}

/// What is recorded of a workflow. `N` is what the workflow has to remember.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger<N> {
    /// Version of the table by which it goes; zero before it began.
    pub version: u32,
    /// How far it has come.
    pub phase: Phase,
    /// Why, in one word.
    pub reason: String,
    /// Why, for people, with what to do next where something is to be done.
    pub message: String,
    /// When it began.
    pub started: Option<Time>,
    /// When it was over.
    pub completed: Option<Time>,
    /// Since when it is held up by `spec.paused`.
    pub paused: Option<Time>,
    /// Records by the name of the step.
    pub steps: BTreeMap<String, Record>,
    /// What was seen once and is needed later.
    pub notes: N,
}

impl<N: Default> Default for Ledger<N> {
    fn default() -> Self {
        Self {
            version: 0,
            phase: Phase::Pending,
            reason: String::new(),
            message: String::new(),
            started: None,
            completed: None,
            paused: None,
            steps: BTreeMap::new(),
            notes: N::default(),
        }
    }
}

impl<N> Ledger<N> {
    /// The recorded state of a step; pending where there is no record.
    #[must_use]
    pub fn state(&self, step: &str) -> State {
        self.steps.get(step).map_or(State::Pending, |record| record.state)
    }

    /// Whether effects of the step may have been asked for, ever.
    #[must_use]
    pub fn is_begun(&self, step: &str) -> bool {
        self.steps.get(step).is_some_and(|record| record.started.is_some())
    }
}
