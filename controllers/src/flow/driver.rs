//! What a flow brings to its reconciler.

use std::error::Error;

use repot_apimachinery::time::Time;
use repot_plan::flow::{self, Decision, Flow, Input, LedgerOf, Plans};
use serde_json::Value;

use crate::{events::EventContent, metrics::Metrics};

/// The parts of a flow's object that are statuses of sides.
pub struct Statuses<S> {
    /// That of this side; an object without fields where it has none yet.
    pub own: Value,
    /// Those of other sides, as far as they have one.
    pub others: Vec<(S, Value)>,
}

/// The I/O of one side of a flow. The order of its calls is that of [`reconcile`](super::reconcile); none of them waits for anything
/// but the answer of a server.
pub trait Driver: Send + Sync {
    /// The flow.
    type Flow: Flow<Side: Send + Sync, Step: Send + Sync, Notes: Send + Sync, Effect: Send + Sync>;
    /// The flow's object, as it was read.
    type Object: Send + Sync;
    /// All that was observed in a pass, with the objects under whose versions effects are carried out.
    type Observation: Send + Sync;
    /// Why a call failed.
    type Error: Error + Send + Sync;

    /// The side of this controller.
    fn side(&self) -> <Self::Flow as Flow>::Side;

    /// All versions of the flow's tables.
    fn plans(&self) -> &'static Plans<Self::Flow>;

    /// The time.
    fn now(&self) -> Time;

    /// Where the steps of the flow are counted.
    fn metrics(&self) -> &Metrics;

    /// Kind, namespace and name of the object, for logs.
    fn title(&self) -> String;

    /// The object, from its API server itself; `None` where it does not exist any more.
    fn read(&self) -> impl Future<Output = Result<Option<Self::Object>, Self::Error>> + Send;

    /// The statuses in an object.
    fn statuses(&self, object: &Self::Object) -> Statuses<<Self::Flow as Flow>::Side>;

    /// Observes the clusters; a server that does not answer is observed as such where rows can wait for it.
    fn observe(
        &self,
        object: &Self::Object,
        ledger: &LedgerOf<Self::Flow>,
        now: Time,
    ) -> impl Future<Output = Result<Self::Observation, Self::Error>> + Send;

    /// What rows decide on.
    fn facts<'a>(&self, observation: &'a Self::Observation) -> &'a <Self::Flow as Flow>::Observed;

    /// What to do; a flow may add what is not in its tables.
    fn decide(
        &self,
        _object: &Self::Object,
        _observation: &Self::Observation,
        input: &Input<'_, Self::Flow>,
    ) -> Decision<Self::Flow> {
        flow::decide(self.plans(), input)
    }

    /// Stores a ledger, and gives the object as it is then. It is stored only under the version of the object that was read: that
    /// covers the ledgers of all sides.
    fn record(
        &self,
        object: &Self::Object,
        observation: &Self::Observation,
        before: &LedgerOf<Self::Flow>,
        next: &LedgerOf<Self::Flow>,
    ) -> impl Future<Output = Result<Self::Object, Self::Error>> + Send;

    /// Carries out an effect, under the versions of the objects that were observed.
    fn act(
        &self,
        object: &Self::Object,
        observation: &Self::Observation,
        effect: &<Self::Flow as Flow>::Effect,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Writes why the object is left alone into `message` of its status, and changes nothing else of it.
    fn leave_alone(
        &self,
        object: &Self::Object,
        message: &str,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Publishes an event of the object; one that cannot be published is only logged.
    fn publish(&self, object: &Self::Object, event: EventContent) -> impl Future<Output = ()> + Send;

    /// Whether somebody else changed an object since it was read.
    fn is_conflict(&self, error: &Self::Error) -> bool;
}
