//! One side of an isolation, as a [`Driver`] of its flow.

use kube::{Api, Resource};
use repot_apimachinery::time::Time;
use repot_plan::{
    flow::{Decision, Input, Plans, decide},
    isolation::{IsolationSide, PLANS, ZoneIsolationFlow, effect::Effect, observed::Observed},
    named::Named,
};

use super::{
    api::{KIND, ZoneIsolation},
    garden,
    record::{self, Ledger},
    request, seed, siblings,
};
use crate::{
    events::EventContent,
    flow::{Driver, Statuses},
    metrics::Metrics,
    migration::{Context, Error, Result, clock},
    reconciler::ReconcileError,
};

/// One side of an isolation, by the namespace and name of its object.
pub struct Isolation<'a> {
    /// What all passes share.
    pub context: &'a Context,
    /// The side that this pass is for.
    pub side: IsolationSide,
    /// Namespace of the object in the garden.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

/// What was observed in a pass.
pub struct Observation {
    /// What rows decide on.
    facts: Observed,
    /// The objects that it was read from: effects are carried out under their versions.
    objects: Objects,
}

/// The objects of one side.
enum Objects {
    Garden(Box<garden::Objects>),
    Seed(Box<seed::Objects>),
}

impl Isolation<'_> {
    fn api(&self) -> Api<ZoneIsolation> {
        Api::namespaced(self.context.garden_client().clone(), &self.namespace)
    }
}

impl Driver for Isolation<'_> {
    type Flow = ZoneIsolationFlow;
    type Object = ZoneIsolation;
    type Observation = Observation;
    type Error = Error;

    fn side(&self) -> IsolationSide {
        self.side
    }

    fn plans(&self) -> &'static Plans<ZoneIsolationFlow> {
        &PLANS
    }

    fn now(&self) -> Time {
        clock::now()
    }

    fn metrics(&self) -> &Metrics {
        &self.context.metrics
    }

    fn title(&self) -> String {
        format!("{KIND} {}/{} ({})", self.namespace, self.name, self.side)
    }

    async fn read(&self) -> Result<Option<ZoneIsolation>> {
        self.api().get_opt(&self.name).await.map_err(Error::read(self.title()))
    }

    fn statuses(&self, isolation: &ZoneIsolation) -> Statuses<IsolationSide> {
        let others = IsolationSide::ALL.iter().filter(|side| **side != self.side);
        let others = others.filter(|side| isolation.status.contains_key(side.name()));
        Statuses {
            own: isolation.part(self.side),
            others: others.map(|side| (*side, isolation.part(*side))).collect(),
        }
    }

    async fn observe(&self, isolation: &ZoneIsolation, ledger: &Ledger, _: Time) -> Result<Observation> {
        let shoot = siblings::shoot(self.context, isolation).await?;
        let request = request::request(isolation, shoot.as_ref());
        let (facts, objects) = match self.side {
            IsolationSide::Garden => {
                let (facts, objects) = garden::observe(self.context, isolation, shoot).await?;
                (facts, Objects::Garden(Box::new(objects)))
            }
            IsolationSide::Seed => {
                let (facts, objects) =
                    seed::observe(self.context, isolation, (&request, shoot), ledger).await?;
                (facts, Objects::Seed(Box::new(objects)))
            }
        };
        Ok(Observation { facts: Observed { request, facts }, objects })
    }

    fn facts<'a>(&self, observation: &'a Observation) -> &'a Observed {
        &observation.facts
    }

    fn decide(
        &self,
        _: &ZoneIsolation,
        _: &Observation,
        input: &Input<'_, ZoneIsolationFlow>,
    ) -> Decision<ZoneIsolationFlow> {
        decide(&PLANS, input)
    }

    async fn record(
        &self,
        isolation: &ZoneIsolation,
        _: &Observation,
        _: &Ledger,
        next: &Ledger,
    ) -> Result<ZoneIsolation> {
        record::record(&self.api(), isolation, (self.side, next), self.now()).await
    }

    async fn act(&self, isolation: &ZoneIsolation, observation: &Observation, effect: &Effect) -> Result<()> {
        match &observation.objects {
            Objects::Garden(objects) => garden::act(self.context, isolation, objects, effect).await,
            Objects::Seed(objects) => {
                seed::act(self.context, &observation.facts.request, objects, effect).await
            }
        }
    }

    async fn leave_alone(&self, isolation: &ZoneIsolation, message: &str) -> Result<()> {
        record::leave_alone(&self.api(), isolation, message).await
    }

    async fn publish(&self, isolation: &ZoneIsolation, event: EventContent) {
        self.context.events.publish(&isolation.object_ref(&()), event).await;
    }

    fn is_conflict(&self, error: &Error) -> bool {
        error.is_conflict()
    }
}
