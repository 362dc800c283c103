//! The workflows of a hosted etcd, as a [`Driver`] of their flow.

use std::marker::PhantomData;

use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use repot_apimachinery::time::Time;
use repot_plan::{
    etcd::{EtcdFlow, EtcdLedger, Side, backup, effect::Effect, observed::Observed},
    flow::{self, Decision, Input, Plans},
    ledger::Phase,
};
use serde_json::json;

use super::{
    act::Actor,
    api::{WorkflowObject, WorkflowSpec},
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

/// A workflow, by the kind, namespace and name of its object; `S` is the spec of its kind.
pub struct Workflow<'a, S> {
    /// What all passes share.
    pub context: &'a Context,
    /// Namespace of its object.
    pub namespace: String,
    /// Name of its object.
    pub name: String,
    /// Kind of its object.
    pub kind: PhantomData<S>,
}

impl<S: WorkflowSpec> Workflow<'_, S> {
    fn api(&self) -> Api<WorkflowObject<S>> {
        Api::namespaced(self.context.clients.own().clone(), &self.namespace)
    }
}

impl<S: WorkflowSpec> Driver for Workflow<'_, S> {
    type Flow = EtcdFlow;
    type Object = WorkflowObject<S>;
    type Observation = Observation;
    type Error = Error;

    fn side(&self) -> Side {
        Side::Seed
    }

    fn plans(&self) -> &'static Plans<EtcdFlow> {
        S::KIND.plans()
    }

    fn now(&self) -> Time {
        self.context.now()
    }

    fn metrics(&self) -> &Metrics {
        &self.context.metrics
    }

    fn title(&self) -> String {
        format!("{} {}/{}", S::KIND.name(), self.namespace, self.name)
    }

    async fn read(&self) -> Result<Option<WorkflowObject<S>>> {
        let found = self.api().get_opt(&self.name).await;
        found.map_err(|source| Error::Read { what: self.title(), source })
    }

    fn statuses(&self, object: &WorkflowObject<S>) -> Statuses<Side> {
        Statuses { own: object.status.to_ledger(), others: Vec::new() }
    }

    async fn observe(
        &self,
        object: &WorkflowObject<S>,
        ledger: &EtcdLedger,
        now: Time,
    ) -> Result<Observation> {
        observe::observe(self.context, object, ledger, now).await
    }

    fn facts<'a>(&self, observation: &'a Observation) -> &'a Observed {
        &observation.facts
    }

    fn decide(
        &self,
        object: &WorkflowObject<S>,
        observation: &Observation,
        input: &Input<'_, EtcdFlow>,
    ) -> Decision<EtcdFlow> {
        let makes_anew = matches!(S::KIND, Kind::Restore | Kind::Migration);
        let is_unmanaged = observation.site.as_ref().is_some_and(|site| !site::is_etcd(&site.hosted));
        if makes_anew && is_unmanaged && input.ledger.phase == Phase::Pending {
            return refused(input);
        }
        match object.spec.backup(kinds::created(object)) {
            Some(spec) => backup::decide(&spec, input),
            None => flow::decide(self.plans(), input),
        }
    }

    async fn record(
        &self,
        object: &WorkflowObject<S>,
        observation: &Observation,
        before: &EtcdLedger,
        next: &EtcdLedger,
    ) -> Result<WorkflowObject<S>> {
        record::record(self.context, object, observation, (before, next)).await
    }

    async fn act(
        &self,
        object: &WorkflowObject<S>,
        observation: &Observation,
        effect: &Effect,
    ) -> Result<()> {
        Actor { context: self.context, object, observed: observation }.act(effect).await
    }

    async fn leave_alone(&self, object: &WorkflowObject<S>, message: &str) -> Result<()> {
        if object.status.message() == Some(message) {
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

    async fn publish(&self, object: &WorkflowObject<S>, event: EventContent) {
        self.context.events.publish(&object.object_ref(&()), event).await;
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
