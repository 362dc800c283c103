//! The workflows of a hosted etcd, as a [`Driver`] of their flow.

use kube::{
    Api, Resource, ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
};
use repot_plan::{
    etcd::{EtcdFlow, EtcdLedger, Side, backup, effect::Effect, observed::Observed},
    flow::{self, Decision, Input, Plans},
    ledger::Phase,
    time::Time,
};
use serde_json::json;

use super::{
    act::Actor,
    context::Context,
    error::{Error, Result},
    kinds::{self, Kind, MANAGER},
    observe::{self, Observation},
    record, site,
};
use crate::{
    events::EventContent,
    flow::{Driver, Statuses},
    metrics::Metrics,
    reconciler::ReconcileError,
};

/// A workflow, by the kind, namespace and name of its object.
pub struct Workflow<'a> {
    /// What all passes share.
    pub context: &'a Context,
    /// Kind of the workflow's object.
    pub kind: Kind,
    /// Namespace of its object.
    pub namespace: String,
    /// Name of its object.
    pub name: String,
}

impl Workflow<'_> {
    fn api(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.context.clients.own().clone(), &self.namespace, &self.kind.resource())
    }
}

impl Driver for Workflow<'_> {
    type Flow = EtcdFlow;
    type Object = DynamicObject;
    type Observation = Observation;
    type Error = Error;

    fn side(&self) -> Side {
        Side::Seed
    }

    fn plans(&self) -> &'static Plans<EtcdFlow> {
        self.kind.plans()
    }

    fn now(&self) -> Time {
        self.context.now()
    }

    fn metrics(&self) -> &Metrics {
        &self.context.metrics
    }

    fn title(&self) -> String {
        format!("{} {}/{}", self.kind.name(), self.namespace, self.name)
    }

    async fn read(&self) -> Result<Option<DynamicObject>> {
        let found = self.api().get_opt(&self.name).await;
        found.map_err(|source| Error::Read { what: self.title(), source })
    }

    fn statuses(&self, object: &DynamicObject) -> Statuses<Side> {
        Statuses { own: kinds::status(object), others: Vec::new() }
    }

    async fn observe(&self, object: &DynamicObject, ledger: &EtcdLedger, now: Time) -> Result<Observation> {
        observe::observe(self.context, self.kind, object, ledger, now).await
    }

    fn facts<'a>(&self, observation: &'a Observation) -> &'a Observed {
        &observation.facts
    }

    fn decide(
        &self,
        object: &DynamicObject,
        observation: &Observation,
        input: &Input<'_, EtcdFlow>,
    ) -> Decision<EtcdFlow> {
        let makes_anew = matches!(self.kind, Kind::Restore | Kind::Migration);
        let is_unmanaged = observation.site.as_ref().is_some_and(|site| !site::is_etcd(&site.hosted));
        if makes_anew && is_unmanaged && input.ledger.phase == Phase::Pending {
            return refused(input);
        }
        match self.kind {
            Kind::Backup => backup::decide(&kinds::backup_spec(object), input),
            Kind::Restore | Kind::Migration => flow::decide(self.plans(), input),
        }
    }

    async fn record(
        &self,
        object: &DynamicObject,
        observation: &Observation,
        before: &EtcdLedger,
        next: &EtcdLedger,
    ) -> Result<DynamicObject> {
        record::record(self.context, self.kind, object, observation, (before, next)).await
    }

    async fn act(&self, object: &DynamicObject, observation: &Observation, effect: &Effect) -> Result<()> {
        Actor { context: self.context, kind: self.kind, object, observed: observation }.act(effect).await
    }

    async fn leave_alone(&self, object: &DynamicObject, message: &str) -> Result<()> {
        if kinds::text(object, "/status/message") == Some(message) {
            return Ok(());
        }
        let patch = json!({
            "metadata": {"resourceVersion": object.resource_version()}, "status": {"message": message},
        });
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let outcome = self.api().patch_status(&self.name, &params, &Patch::Merge(patch)).await;
        let task = "say in its status why the workflow is left alone";
        outcome.map(drop).map_err(|source| Error::Write { task, source })
    }

    async fn publish(&self, object: &DynamicObject, event: EventContent) {
        self.context.events.publish(&object.object_ref(&self.kind.resource()), event).await;
    }

    fn is_conflict(&self, error: &Error) -> bool {
        error.is_conflict()
    }
}

/// Nothing was started, and nothing will be: it would only fail once the API servers are stopped.
fn refused(input: &Input<'_, EtcdFlow>) -> Decision<EtcdFlow> {
    let records = EtcdLedger {
        phase: Phase::Failed,
        reason: "NotManaged".to_owned(),
        message: format!("{}; let it refer to an Etcd. Nothing was changed", Error::Unmanaged),
        started: Some(input.now),
        completed: Some(input.now),
        ..input.ledger.clone()
    };
    Decision { effects: Vec::new(), records: Some(records), requeue: None }
}
