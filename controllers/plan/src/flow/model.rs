//! What a flow is: its types, and what one decision is made from.

use std::{fmt::Debug, time::Duration};

use repot_api::conditions::Reason;
use repot_apimachinery::time::Time;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::{
    ledger::{Ledger, Record, State},
    named::Named,
};

/// A kind of flow: what it observes, remembers and requests.
pub trait Flow: Sized + Clone + Debug + PartialEq + 'static {
    /// Who works on it. Each side has one controller, which acts on one cluster and writes one ledger.
    type Side: Named;
    /// All steps of all versions of its tables. A step keeps its recorded name for ever.
    type Step: Named;
    /// What one side observes in one pass.
    type Observed;
    /// What one side remembers between passes; stored as fields of the status.
    type Notes: Clone + Debug + Default + PartialEq + Serialize + DeserializeOwned;
    /// What a side can request.
    type Effect: Clone + Debug + PartialEq;

    /// Field of the spec that asks to abort, for messages.
    const ABORT_FIELD: &'static str;
    /// Field of the spec that asks to try again what has failed; `None` where a failed flow stays as it is.
    const RETRY_FIELD: Option<&'static str> = None;

    /// What the flow's object asks for.
    fn request(observed: &Self::Observed) -> Request;

    /// What this side gives back when the flow has ended, however it ended. It is requested again until it is observed.
    fn cleanup(context: &StepContext<'_, Self>) -> Vec<Self::Effect>;

    /// Where the data is, for the person who has to act when the flow has failed.
    fn data_locations(notes: &Self::Notes) -> String;

    /// Whether a side takes part. Rows of a side that does not, such as a dead source, count as reached for the others. Its controller
    /// works on them where it runs. The answer follows from the flow's object alone, and never turns back, so all sides give the same.
    fn takes_part(_observed: &Self::Observed, _side: Self::Side) -> bool {
        true
    }

    /// Whether [`Abort::Abort`] is granted now. [`Abort::Force`] does not ask. Neither is granted past the point of no return.
    ///
    /// # Errors
    /// Why not, and what to do instead.
    fn may_abort(_context: &StepContext<'_, Self>) -> Result<(), Reason> {
        Ok(())
    }

    /// Whether a flow that has failed goes on now, as `request.retry` asks.
    ///
    /// # Errors
    /// Why not.
    fn may_retry(_context: &StepContext<'_, Self>) -> Result<(), Reason> {
        Ok(())
    }

    /// What has to be there as long as the flow runs. It is requested in each pass until it is observed.
    fn upkeep(_context: &StepContext<'_, Self>) -> Vec<Self::Effect> {
        Vec::new()
    }

    /// Fields of the status that follow from the ledger. They are written and never read back.
    fn derived(_ledger: &LedgerOf<Self>) -> Map<String, Value> {
        Map::new()
    }
}

/// The ledger of one side of a flow.
pub type LedgerOf<F> = Ledger<<F as Flow>::Step, <F as Flow>::Notes>;

/// The ledgers of other sides, as they were read. They may be stale; a side that has not started has none.
pub type Evidence<F> = [(<F as Flow>::Side, LedgerOf<F>)];

/// A request to end a flow early. It never deletes anything by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Abort {
    /// No such request.
    #[default]
    None,
    /// Roll back where [`Flow::may_abort`] grants it.
    Abort,
    /// Roll back unless the point of no return is started.
    Force,
}

/// What the flow's object asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Start no further step of the forward table.
    pub paused: bool,
    /// Roll back, if that is still possible.
    pub abort: Abort,
    /// What the flow works on is deleted, or is being deleted. A flow that has changed nothing ends; any other one rolls back, or
    /// goes on to its end where it is past the point of no return.
    pub abandoned: Option<Reason>,
    /// Another object of this kind goes on in place of this one. A side that takes no part ends at once; any other one undoes what it
    /// has made, even past the point of no return, and waits for nobody.
    pub superseded: Option<Reason>,
    /// Another object of this kind goes on from where this one has come: each side ends where it stands, and undoes nothing.
    pub continued: Option<Reason>,
    /// Number of the request to try again what has failed. Each higher number is followed once by each side.
    pub retry: u32,
    /// How long a step may take.
    pub step_timeout: Duration,
}

/// What one decision is made from.
pub struct Input<'a, F: Flow> {
    /// Whose decision it is.
    pub side: F::Side,
    /// What this side observes.
    pub observed: &'a F::Observed,
    /// The ledger of this side, as it was read.
    pub ledger: &'a LedgerOf<F>,
    /// The ledgers of the other sides, as they were read together with `ledger`.
    pub others: &'a Evidence<F>,
    /// Time at which the decision is made.
    pub now: Time,
}

impl<'a, F: Flow> Input<'a, F> {
    /// For a flow that has one side.
    #[must_use]
    pub fn alone(observed: &'a F::Observed, ledger: &'a LedgerOf<F>, now: Time) -> Self {
        Self { side: F::Side::ALL[0], observed, ledger, others: &[], now }
    }
}

impl<F: Flow> Clone for Input<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Flow> Copy for Input<'_, F> {}

/// What a row decides on.
pub struct StepContext<'a, F: Flow> {
    /// Time at which the decision is made.
    pub now: Time,
    /// What this side observes.
    pub observed: &'a F::Observed,
    /// What this side remembers.
    pub notes: &'a F::Notes,
    /// The ledger of this side.
    pub ledger: &'a LedgerOf<F>,
    /// Ledgers of other sides: evidence that may be stale.
    pub others: &'a Evidence<F>,
}

impl<'a, F: Flow> StepContext<'a, F> {
    /// With the ledger as it is after what was decided so far in this pass.
    pub(super) fn new(input: &Input<'a, F>, ledger: &'a LedgerOf<F>) -> Self {
        let &Input { observed, others, now, .. } = input;
        Self { now, observed, notes: &ledger.notes, ledger, others }
    }

    /// The ledger of another side; `None` where it has recorded nothing.
    #[must_use]
    pub fn side(&self, side: F::Side) -> Option<&'a LedgerOf<F>> {
        self.others.iter().find(|(other, _)| *other == side).map(|(_, ledger)| ledger)
    }

    /// The record of a step, whichever side has it.
    #[must_use]
    pub fn record(&self, step: F::Step) -> Option<&'a Record> {
        let own = self.ledger.steps.get(&step);
        own.or_else(|| self.others.iter().find_map(|(_, ledger)| ledger.steps.get(&step)))
    }

    /// Whether a step is reached or left out, whichever side has it.
    #[must_use]
    pub fn is_settled(&self, step: F::Step) -> bool {
        self.ledger.is_settled(step) || self.others.iter().any(|(_, ledger)| ledger.is_settled(step))
    }

    /// Whether a step is reached, and not left out, whichever side has it.
    #[must_use]
    pub fn is_reached(&self, step: F::Step) -> bool {
        self.record(step).is_some_and(|record| record.state == State::Succeeded)
    }

    /// How long ago a step was reached; `None` where it is not. The time of another side is that of its own clock.
    #[must_use]
    pub fn since(&self, step: F::Step) -> Option<Duration> {
        let completed = self.record(step)?.completed.filter(|_| self.is_settled(step))?;
        Some(self.now.since(completed))
    }

    /// How long ago a step was started, the last time; `None` where it was not.
    #[must_use]
    pub fn since_start(&self, step: F::Step) -> Option<Duration> {
        Some(self.now.since(self.record(step)?.started?))
    }
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision<F: Flow> {
    /// What to request, after `records` is stored.
    pub effects: Vec<F::Effect>,
    /// The ledger of this side as it is to be stored; `None` where it stays as it is. It is stored only if neither it nor any other
    /// side's ledger has changed since they were read: so no side starts a point of no return that another side rolls back from.
    pub records: Option<LedgerOf<F>>,
    /// When to look again although no event came; `None` where the flow is over.
    pub requeue: Option<Duration>,
}

/// How long until the next look while something is waited for.
pub const POLL: Duration = Duration::from_secs(10);
/// How long until the next look after a record without effects.
pub const SOON: Duration = Duration::from_secs(1);
/// How long `spec.paused` may hold a flow before it rolls back.
pub const PAUSE_LIMIT: Duration = Duration::from_secs(24 * 3600);
/// How often a side writes its ledger, where there are other sides to see it.
pub const HEARTBEAT: Duration = Duration::from_secs(60);
/// How often a step may be lost and reached again.
pub const ATTEMPTS: u32 = 5;
/// Reason of a flow that was aborted.
pub const CANCELLED: &str = "Cancelled";
