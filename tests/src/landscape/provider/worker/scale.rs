//! How many machines each zone of a pool has. An isolated zone gives its machines to the others.

use std::collections::BTreeMap;

use kube::ResourceExt;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use repot_extension::Failure;
use repot_extension::kinds::Worker;
use serde_json::{Value, json};

use super::MACHINES_RETRY;
use super::api::{self, MachineApi};
use super::render::{self, Zone};
use super::restore::MachineState;

/// Annotation of the deployment of an isolated zone: machines of its pool before. It stays while the zone is isolated, so that a pass that is
/// repeated does not count machines twice.
const TOTAL: &str = "local.provider.extensions.gardener.cloud/machines-of-pool";

/// MachineDeployments as they are, or as a state has them.
pub(super) struct Existing {
    replicas: BTreeMap<String, i32>,
    totals: BTreeMap<String, i32>,
}

fn number(found: &DynamicObject, path: &str) -> Option<i32> {
    i32::try_from(found.data.pointer(path).and_then(Value::as_i64)?).ok()
}

impl Existing {
    pub(super) async fn read(api: &MachineApi, state: &MachineState) -> Result<Self, Failure> {
        let all = api.deployments().list(&ListParams::default()).await.map_err(api::failed)?;
        let mut replicas = state.all_replicas();
        let found = all.iter().filter_map(|one| Some((one.name_any(), number(one, "/spec/replicas")?)));
        replicas.extend(found);
        let total = |one: &DynamicObject| one.annotations().get(TOTAL)?.parse().ok();
        let totals = all.iter().filter_map(|one| Some((one.name_any(), total(one)?))).collect();
        Ok(Self { replicas, totals })
    }

    pub(super) fn replicas(&self, deployment: &str) -> Option<i32> {
        self.replicas.get(deployment).copied()
    }

    /// Notes how many machines pools have before a zone of theirs is left, and forgets it when the zone is used again.
    pub(super) async fn note_totals(&self, api: &MachineApi, worker: &Worker) -> Result<(), Failure> {
        let isolated = render::isolated_zone(worker);
        for zone in render::zones(worker).filter(|zone| self.replicas.contains_key(&zone.name)) {
            let is_isolated = isolated.as_deref() == Some(zone.code());
            let total = match (is_isolated, self.totals.contains_key(&zone.name)) {
                (true, false) => json!(self.sum(worker, &zone).to_string()),
                (false, true) => Value::Null,
                (true, true) | (false, false) => continue,
            };
            let patch = Patch::Merge(json!({"metadata": {"annotations": {TOTAL: total}}}));
            let patched = api.deployments().patch(&zone.name, &PatchParams::default(), &patch).await;
            patched.map_err(api::failed)?;
        }
        Ok(())
    }

    fn sum(&self, worker: &Worker, of: &Zone<'_>) -> i32 {
        let zones = render::zones(worker).filter(|zone| zone.pool_name() == of.pool_name());
        zones.filter_map(|zone| self.replicas(&zone.name)).sum()
    }

    /// Machines that a zone is to have: those that it has, and its share of those of an isolated zone.
    pub(super) fn target(&self, worker: &Worker, zone: &Zone<'_>) -> i32 {
        let pool = || render::zones(worker).filter(|one| one.pool_name() == zone.pool_name());
        let isolated = render::isolated_zone(worker);
        let left = pool().find(|one| isolated.as_deref() == Some(one.code()));
        let share = left.and_then(|left| {
            let total = self.totals.get(&left.name).copied().unwrap_or_else(|| self.sum(worker, zone));
            let used: Vec<_> = pool().filter(|one| one.name != left.name).map(|one| one.name).collect();
            let (count, at) = (used.len(), used.iter().position(|name| *name == zone.name)?);
            let (count, at) = (i32::try_from(count).ok()?, i32::try_from(at).ok()?);
            Some(total / count + i32::from(at < total % count))
        });
        let has = self.replicas(&zone.name).unwrap_or(zone.minimum);
        has.max(share.unwrap_or_default()).clamp(zone.minimum, zone.maximum)
    }
}

/// Fails until these zones have as many machines as they want.
pub(super) async fn wait_for(api: &MachineApi, zones: &[&Zone<'_>]) -> Result<(), Failure> {
    for zone in zones {
        let found = api.deployments().get(&zone.name).await.map_err(api::failed)?;
        let available = number(&found, "/status/availableReplicas").unwrap_or_default();
        if available < number(&found, "/spec/replicas").unwrap_or_default() {
            let message = format!("waiting for machines of {}", zone.name);
            return Err(Failure::new(message).retry_after(MACHINES_RETRY));
        }
    }
    Ok(())
}
