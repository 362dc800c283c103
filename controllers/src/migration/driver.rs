//! One side of a migration, as a [`Driver`] of its flow.

use kube::Api;
use repot_apimachinery::time::Time;
use repot_plan::{
    flow::{Decision, Input, Plans},
    live,
    migration::{MigrationFlow, Side, effect::Effect, observed::Observed},
    named::Named,
};

use super::{
    api::ControlPlaneMigration,
    clock,
    context::Context,
    destination,
    error::{Error, Result},
    garden,
    overall::Ledger,
    pass::{Objects, Observation, Pass},
    record, request, siblings, source,
};
use crate::{
    events::EventContent,
    flow::{Driver, Statuses},
    metrics::Metrics,
    reconciler::ReconcileError,
};

/// One side of a migration, by the namespace and name of its object.
pub struct Migration<'a> {
    /// What all passes share.
    pub context: &'a Context,
    /// The side that this pass is for.
    pub side: Side,
    /// All versions of the tables of its mode, which cannot be changed.
    pub plans: &'static Plans<MigrationFlow>,
    /// Namespace of the object in the garden.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

impl Migration<'_> {
    fn api(&self) -> Api<ControlPlaneMigration> {
        Api::namespaced(self.context.garden_client().clone(), &self.namespace)
    }
}

impl Driver for Migration<'_> {
    type Flow = MigrationFlow;
    type Object = ControlPlaneMigration;
    type Observation = Observation;
    type Error = Error;

    fn side(&self) -> Side {
        self.side
    }

    fn plans(&self) -> &'static Plans<MigrationFlow> {
        self.plans
    }

    fn now(&self) -> Time {
        clock::now()
    }

    fn metrics(&self) -> &Metrics {
        &self.context.metrics
    }

    fn title(&self) -> String {
        format!("{} {}/{} ({})", super::api::KIND, self.namespace, self.name, self.side)
    }

    async fn read(&self) -> Result<Option<ControlPlaneMigration>> {
        self.api().get_opt(&self.name).await.map_err(Error::read(self.title()))
    }

    fn statuses(&self, migration: &ControlPlaneMigration) -> Statuses<Side> {
        let others = Side::ALL.iter().filter(|side| **side != self.side);
        let others = others.filter(|side| migration.status.contains_key(side.name()));
        Statuses {
            own: record::part(migration, self.side),
            others: others.map(|side| (*side, record::part(migration, *side))).collect(),
        }
    }

    async fn observe(
        &self,
        migration: &ControlPlaneMigration,
        ledger: &Ledger,
        _: Time,
    ) -> Result<Observation> {
        let shoot = self.context.shoot(migration).await?;
        let namespace = shoot.as_ref().map(|shoot| shoot.status.technical_id.clone());
        let request = request::request(migration, shoot.as_ref());
        let mut observation = match self.side {
            Side::Garden => garden::observe(self.context, migration, shoot, request).await,
            Side::Source => source::observe(self.context, migration, shoot, request, ledger).await,
            Side::Destination => destination::observe(self.context, migration, shoot, request, ledger).await,
        }?;
        // Asked last: what a later migration has made by now is not what this one observed.
        let namespace = namespace.as_deref();
        let superseded = siblings::superseded(self.context, migration, self.side, namespace);
        observation.facts.request.superseded = superseded.await?;
        observation.facts.request.destination_lost =
            migration.is_destination_lost() && ledger.phase.is_rollback();
        observation.facts.request.forced_instead =
            siblings::forced_instead(self.context, migration, self.side).await?;
        Ok(observation)
    }

    fn facts<'a>(&self, observation: &'a Observation) -> &'a Observed {
        &observation.facts
    }

    fn decide(
        &self,
        _: &ControlPlaneMigration,
        _: &Observation,
        input: &Input<'_, MigrationFlow>,
    ) -> Decision<MigrationFlow> {
        live::decide(self.plans, input)
    }

    async fn record(
        &self,
        migration: &ControlPlaneMigration,
        _: &Observation,
        _: &Ledger,
        next: &Ledger,
    ) -> Result<ControlPlaneMigration> {
        record::record(&self.api(), migration, self.side, next).await
    }

    async fn act(
        &self,
        migration: &ControlPlaneMigration,
        observation: &Observation,
        effect: &Effect,
    ) -> Result<()> {
        let pass = Pass { context: self.context, migration, facts: &observation.facts };
        match &observation.objects {
            Objects::Garden(objects) => garden::act(&pass, objects, effect).await,
            Objects::Source(objects) => source::act(&pass, objects, effect).await,
            Objects::Destination(objects) => destination::act(&pass, objects, effect).await,
        }
    }

    async fn leave_alone(&self, migration: &ControlPlaneMigration, message: &str) -> Result<()> {
        record::leave_alone(&self.api(), migration, message).await
    }

    async fn publish(&self, migration: &ControlPlaneMigration, event: EventContent) {
        self.context.publish(migration, event).await;
    }

    fn is_conflict(&self, error: &Error) -> bool {
        error.is_conflict()
    }
}
