//! The frame of all workflows: a table of steps in the order of the paper, and [`decide`], which says what to do next.
//!
//! It may not act, and it may not look: what is seen comes in as [`Flow::World`], what is recorded as [`Ledger`].
//!
//! **The order of things.** A step is begun by a record and nothing else; its effects are asked for from the next pass on, when
//! the record is known to be stored. So there is no effect without a recorded decision, and whoever takes over after a crash
//! knows what may be on its way. Effects are targets, asked for again at each pass until they are seen: they may be lost, and
//! land late or twice.

mod pass;

use std::{fmt::Debug, time::Duration};

use crate::{
    ledger::{Check, Ledger, Why},
    time::Time,
};
use pass::Pass;

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
    /// What the workflow works on is deleted, or is being deleted. A workflow that has changed nothing ends; any other one goes
    /// back first, or on to its end where there is no way back.
    pub abandoned: Option<Why>,
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
    Pass::over(plan, world, ledger, now)
}
