//! Worker: a MachineClass and a MachineDeployment for each zone of each pool, for the real machine-controller-manager.
//!
//! The provider never scales machine-controller-manager and never asks the cloud for anything.

mod api;
mod migrate;
pub(super) mod render;
mod restore;
mod scale;

use std::time::Duration;

use kube::ResourceExt;
use repot_extension::kinds::{Cluster, MachineDeploymentRange, Worker};
use repot_extension::{Context, Failure, Outcome, Provider};

use super::journal::Log;
use api::MachineApi;
use restore::MachineState;

/// How soon a deletion looks again whether machine-controller-manager has removed the Machines.
const MACHINES_RETRY: Duration = Duration::from_secs(1);

/// Writes machine objects for machine-controller-manager.
pub(super) struct WorkerProvider {
    pub(super) log: Log,
}

impl WorkerProvider {
    /// Applies the deployments of all pools; one that exists keeps its replicas within the limits of its zone. Those of a hibernated Shoot
    /// have none. Zones grow before others shrink, so that an isolated zone is left when others have its machines.
    async fn apply(
        &self,
        worker: &Worker,
        context: &Context<Worker>,
        state: &MachineState,
    ) -> Result<Outcome, Failure> {
        let api = MachineApi::new(context.client(), &worker.namespace().unwrap_or_default());
        let hibernated = context.cluster().map_or(Ok(false), Cluster::shoot_is_hibernated);
        let hibernated = hibernated.map_err(|error| Failure::new(error.to_string()))?;
        let zones: Vec<_> = render::zones(worker).collect();
        let existing = scale::Existing::read(&api, state).await?;
        existing.note_totals(&api, worker).await?;
        let wanted = |zone: &&render::Zone<'_>| if hibernated { 0 } else { existing.target(worker, zone) };
        let (grow, shrink): (Vec<_>, Vec<_>) =
            zones.iter().partition(|zone| wanted(zone) >= existing.replicas(&zone.name).unwrap_or_default());
        for zone in &grow {
            api.apply(api.deployments(), &zone.deployment(wanted(zone))).await?;
        }
        if !shrink.is_empty() && !hibernated {
            scale::wait_for(&api, &grow).await?;
        }
        for zone in &shrink {
            api.apply(api.deployments(), &zone.deployment(wanted(zone))).await?;
        }
        let range = |zone: &render::Zone<'_>| MachineDeploymentRange {
            name: zone.name.clone(),
            minimum: zone.minimum,
            maximum: zone.maximum,
            ..MachineDeploymentRange::default()
        };
        let ranges: Vec<_> = zones.iter().map(range).collect();
        let outcome = Outcome::new().field("machineDeployments", &ranges)?;
        match render::isolated_zone(worker) {
            Some(code) => Ok(outcome.field("isolatedZoneCode", &code)?),
            None => Ok(outcome.without_field("isolatedZoneCode")?),
        }
    }

    async fn tell_zones(worker: &Worker, context: &Context<Worker>) -> Result<(), Failure> {
        let code = render::isolated_zone(worker);
        let told = worker.tell_left_out(context.client(), code.as_deref()).await;
        told.map_err(|error| Failure::new(format!("the API server of the seed: {error}")))
    }

    async fn apply_classes(&self, worker: &Worker, api: &MachineApi) -> Result<(), Failure> {
        for zone in render::zones(worker) {
            api.apply(api.classes(), &zone.class()).await?;
        }
        Ok(())
    }
}

impl Provider for WorkerProvider {
    type Object = Worker;

    async fn reconcile(&self, worker: &Worker, context: &Context<Worker>) -> Result<Outcome, Failure> {
        self.log.record("reconcile", worker);
        Self::tell_zones(worker, context).await?;
        let api = MachineApi::new(context.client(), &worker.namespace().unwrap_or_default());
        self.apply_classes(worker, &api).await?;
        self.apply(worker, context, &MachineState::default()).await
    }

    /// MachineSets and Machines exist before the MachineDeployment: machine-controller-manager would make new ones otherwise. The
    /// state is removed then, so that no later operation takes it for that of the machines.
    async fn restore(&self, worker: &Worker, context: &Context<Worker>) -> Result<Outcome, Failure> {
        self.log.record("restore", worker);
        Self::tell_zones(worker, context).await?;
        let state = context.state()?.ok_or_else(|| Failure::new("there is no state to restore"))?;
        let state = MachineState::read(&state)?;
        let api = MachineApi::new(context.client(), &worker.namespace().unwrap_or_default());
        self.apply_classes(worker, &api).await?;
        restore::create(&api, &state).await?;
        Ok(self.apply(worker, context, &state).await?.without_state())
    }

    async fn migrate(&self, worker: &Worker, context: &Context<Worker>) -> Result<Outcome, Failure> {
        self.log.record("migrate", worker);
        let namespace = worker.namespace().unwrap_or_default();
        migrate::ensure_manager_is_stopped(context.client(), &namespace).await?;
        migrate::forget(&MachineApi::new(context.client(), &namespace)).await?;
        migrate::release_secrets(context.client(), &namespace).await?;
        Ok(Outcome::new())
    }

    /// Deletes the deployments, waits until machine-controller-manager has deleted the VMs, and deletes the classes.
    async fn delete(&self, worker: &Worker, context: &Context<Worker>) -> Result<Outcome, Failure> {
        self.log.record("delete", worker);
        let api = MachineApi::new(context.client(), &worker.namespace().unwrap_or_default());
        api.delete_all(api.deployments()).await?;
        let left = api.names(api.machines()).await?;
        if !left.is_empty() {
            let message = format!("waiting for {} Machines to be deleted", left.len());
            return Err(Failure::new(message).retry_after(MACHINES_RETRY));
        }
        api.delete_all(api.classes()).await?;
        Ok(Outcome::new())
    }
}
