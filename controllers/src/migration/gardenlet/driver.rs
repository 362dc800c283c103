//! One side of a migration by gardenlet, as a [`Driver`] of its flow.

use kube::Api;
use repot_apimachinery::time::Time;
use repot_plan::{
    flow::Plans,
    gardenlet::{
        CLASSIC_PLANS, GardenletMigration, PLANS,
        effect::Effect,
        observed::{Facts, Observed},
    },
    migration::{Side, observed::MigrationMode},
    named::Named,
};

use super::{
    destination::{self, Objects as DestinationObjects},
    garden, request, source,
    status::{self, Ledger},
};
use crate::{
    events::EventContent,
    flow::{Driver, Statuses},
    metrics::Metrics,
    migration::{
        api::{self, ControlPlaneMigration},
        clock,
        context::Context,
        error::{Error, Result},
        garden::objects::Objects as GardenObjects,
        record,
    },
    reconciler::ReconcileError,
};

/// One side of a migration that is steered, by the namespace and name of its object.
pub struct Steered<'a> {
    /// What all passes share.
    pub context: &'a Context,
    /// The side that this pass is for. The source has rows in a classic migration alone.
    pub side: Side,
    /// Mode of the migration.
    pub mode: MigrationMode,
    /// Namespace of the object in the garden.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

/// What was observed in a pass.
pub struct Observation {
    facts: Observed,
    objects: Objects,
}

/// The objects under whose versions effects are carried out.
enum Objects {
    Garden(Box<GardenObjects>),
    /// The source is only looked at.
    Source,
    Destination(Box<DestinationObjects>),
}

impl Steered<'_> {
    fn api(&self) -> Api<ControlPlaneMigration> {
        Api::namespaced(self.context.garden_client().clone(), &self.namespace)
    }
}

impl Driver for Steered<'_> {
    type Flow = GardenletMigration;
    type Object = ControlPlaneMigration;
    type Observation = Observation;
    type Error = Error;

    fn side(&self) -> Side {
        self.side
    }

    fn plans(&self) -> &'static Plans<GardenletMigration> {
        match self.mode {
            MigrationMode::Classic | MigrationMode::Live => &CLASSIC_PLANS,
            MigrationMode::Forced => &PLANS,
        }
    }

    fn now(&self) -> Time {
        clock::now()
    }

    fn metrics(&self) -> &Metrics {
        &self.context.metrics
    }

    fn title(&self) -> String {
        format!("{} {}/{} ({})", api::KIND, self.namespace, self.name, self.side)
    }

    async fn read(&self) -> Result<Option<ControlPlaneMigration>> {
        self.api().get_opt(&self.name).await.map_err(Error::read(self.title()))
    }

    fn statuses(&self, migration: &ControlPlaneMigration) -> Statuses<Side> {
        let others = [Side::Garden, Side::Destination].into_iter().filter(|side| *side != self.side);
        let others = others.filter(|side| migration.status.contains_key(side.name()));
        Statuses {
            own: record::part(migration, self.side),
            others: others.map(|side| (side, record::part(migration, side))).collect(),
        }
    }

    async fn observe(
        &self,
        migration: &ControlPlaneMigration,
        ledger: &Ledger,
        _: Time,
    ) -> Result<Observation> {
        let shoot = self.context.shoot(migration).await?;
        let request = request::request(migration, self.mode, shoot.as_ref());
        let (facts, objects) = match self.side {
            Side::Garden => {
                let (facts, objects) =
                    garden::observe(self.context, migration, self.mode, shoot, ledger).await?;
                (facts, Objects::Garden(Box::new(objects)))
            }
            Side::Source => {
                let facts = source::observe(self.context, shoot.as_ref(), ledger).await?;
                (Facts::Source(facts), Objects::Source)
            }
            Side::Destination => {
                let (facts, objects) = destination::observe(self.context, migration, shoot, ledger).await?;
                (facts, Objects::Destination(Box::new(objects)))
            }
        };
        Ok(Observation { facts: Observed { request, facts }, objects })
    }

    fn facts<'a>(&self, observation: &'a Observation) -> &'a Observed {
        &observation.facts
    }

    async fn record(
        &self,
        migration: &ControlPlaneMigration,
        _: &Observation,
        _: &Ledger,
        next: &Ledger,
    ) -> Result<ControlPlaneMigration> {
        let status = status::render(migration, self.plans(), (self.side, next));
        record::store(&self.api(), migration, status).await
    }

    async fn act(
        &self,
        migration: &ControlPlaneMigration,
        observation: &Observation,
        effect: &Effect,
    ) -> Result<()> {
        match &observation.objects {
            Objects::Garden(objects) => garden::act(self.context, migration, objects, effect).await,
            Objects::Source => Ok(()),
            Objects::Destination(objects) => destination::act(self.context, migration, objects, effect).await,
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
