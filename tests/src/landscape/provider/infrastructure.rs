//! Infrastructure: one network of the cloud for each Shoot, with a state like that of terraform.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt;
use parking_lot::Mutex;
use repot_extension::kinds::Infrastructure;
use repot_extension::{Context, Failure, Outcome, Provider, State};
use serde_json::json;

use super::journal::Log;
use crate::landscape::subnets::Subnets;

/// The addresses of nodes.
const NODES: &str = "10.5.0.0/16";
/// What JSON parsers change: numbers, order and repetition of keys, white space, escapes.
const TERRAFORM: &str = "{\r\n  \"version\": 4,\n\t\"serial\": 1.0, \"huge\": 1e400, \"z\": -0, \"a\": 12345678901234567890,\n  \
                         \"z\": \"<&>\\u00e9\\/\u{2028}\u{0}\"\n}\n";

/// The networks of a cloud that seeds share, with counters of what it was asked for. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct CloudNetworks(Arc<Mutex<Inventory>>);

#[derive(Debug, Default)]
struct Inventory {
    networks: BTreeMap<String, Network>,
    /// Zones that are cut off, by Shoot.
    isolated: BTreeMap<String, String>,
    /// Subnets in which packets really pass, by Shoot. Others have no nodes with a network.
    subnets: BTreeMap<String, Subnets>,
    counters: NetworkCounters,
}

/// A network of one Shoot.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Network {
    cluster: String,
    /// The state that describes it: nothing else is accepted for it.
    state: Vec<u8>,
}

/// What a cloud was asked for since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkCounters {
    /// Networks that were created.
    pub created: u64,
    /// Networks that were taken over with their state byte for byte.
    pub restored: u64,
    /// Networks that were deleted.
    pub deleted: u64,
}

impl CloudNetworks {
    /// What it was asked for so far.
    pub fn counters(&self) -> NetworkCounters {
        self.0.lock().counters
    }

    /// IDs of the networks of a Shoot, by its technical ID.
    pub fn of(&self, cluster: &str) -> Vec<String> {
        let inventory = self.0.lock();
        let found = inventory.networks.iter().filter(|(_, network)| network.cluster == cluster);
        found.map(|(id, _)| id.clone()).collect()
    }

    /// The zone of a Shoot that is cut off, by its technical ID.
    pub fn isolated_of(&self, cluster: &str) -> Option<String> {
        self.0.lock().isolated.get(cluster).cloned()
    }

    /// Says where packets of the nodes of a Shoot really pass.
    pub fn attach(&self, cluster: &str, subnets: &Subnets) {
        self.0.lock().subnets.insert(cluster.to_owned(), subnets.clone());
    }

    /// Cuts a zone off, and gives the ID of the rule; the same one where it is cut off already.
    pub(super) async fn isolate(&self, cluster: &str, zone: &str) -> Result<String, Failure> {
        if let Some(subnets) = self.subnets_of(cluster) {
            subnets.isolate(zone).await.map_err(refused)?;
        }
        self.0.lock().isolated.insert(cluster.to_owned(), zone.to_owned());
        Ok(format!("acl-{cluster}-{zone}"))
    }

    /// Undoes that for whatever zone it was done.
    pub(super) async fn release(&self, cluster: &str) -> Result<(), Failure> {
        if let Some(subnets) = self.subnets_of(cluster) {
            subnets.release().await.map_err(refused)?;
        }
        self.0.lock().isolated.remove(cluster);
        Ok(())
    }

    fn subnets_of(&self, cluster: &str) -> Option<Subnets> {
        self.0.lock().subnets.get(cluster).cloned()
    }

    /// Makes a network, and gives its state.
    fn create(&self, cluster: &str) -> Vec<u8> {
        let mut inventory = self.0.lock();
        inventory.counters.created += 1;
        let id = format!("network-{:06}", inventory.counters.created);
        let state = format!("{id}\n{TERRAFORM}").into_bytes();
        let network = Network { cluster: cluster.to_owned(), state: state.clone() };
        inventory.networks.insert(id, network);
        state
    }

    fn check(&self, cluster: &str, state: &[u8]) -> Result<(), Failure> {
        let inventory = self.0.lock();
        let found = inventory.networks.values().any(|one| one.cluster == cluster && one.state == state);
        let message = "the state differs from that of each network of this cluster";
        found.then_some(()).ok_or_else(|| Failure::new(message))
    }

    fn restore(&self, cluster: &str, state: &[u8]) -> Result<(), Failure> {
        self.check(cluster, state)?;
        self.0.lock().counters.restored += 1;
        Ok(())
    }

    fn delete(&self, state: &[u8]) {
        let mut inventory = self.0.lock();
        let before = inventory.networks.len();
        inventory.networks.retain(|_, network| network.state != state);
        let deleted = before - inventory.networks.len();
        inventory.counters.deleted += u64::try_from(deleted).unwrap_or(u64::MAX);
    }
}

/// Makes and deletes networks of the cloud.
pub(super) struct InfrastructureProvider {
    pub(super) networks: CloudNetworks,
    pub(super) log: Log,
}

impl Provider for InfrastructureProvider {
    type Object = Infrastructure;

    async fn reconcile(
        &self,
        object: &Infrastructure,
        context: &Context<Infrastructure>,
    ) -> Result<Outcome, Failure> {
        self.log.record("reconcile", object);
        let cluster = object.namespace().unwrap_or_default();
        let state = match context.state()? {
            Some(state) => bytes(state)?,
            None => {
                let state = self.networks.create(&cluster);
                context.save_state(&State::bytes(state.clone())).await?;
                state
            }
        };
        self.networks.check(&cluster, &state)?;
        outcome(state)
    }

    async fn restore(
        &self,
        object: &Infrastructure,
        context: &Context<Infrastructure>,
    ) -> Result<Outcome, Failure> {
        self.log.record("restore", object);
        let state = context.state()?.ok_or_else(|| Failure::new("there is no state to restore"))?;
        let state = bytes(state)?;
        self.networks.restore(&object.namespace().unwrap_or_default(), &state)?;
        outcome(state)
    }

    async fn migrate(
        &self,
        object: &Infrastructure,
        _: &Context<Infrastructure>,
    ) -> Result<Outcome, Failure> {
        self.log.record("migrate", object);
        Ok(Outcome::new())
    }

    async fn delete(
        &self,
        object: &Infrastructure,
        context: &Context<Infrastructure>,
    ) -> Result<Outcome, Failure> {
        self.log.record("delete", object);
        if let Some(state) = context.state()? {
            self.networks.delete(&bytes(state)?);
        }
        Ok(Outcome::new())
    }
}

fn refused(error: anyhow::Error) -> Failure {
    Failure::new(format!("the rules of the network: {error:#}"))
}

fn bytes(state: State) -> Result<Vec<u8>, Failure> {
    match state {
        State::Bytes(bytes) => Ok(bytes),
        State::Json(_) => Err(Failure::new("the state is JSON and not bytes")),
    }
}

fn outcome(state: Vec<u8>) -> Result<Outcome, Failure> {
    let outcome = Outcome::new().state(&State::bytes(state))?.field("nodesCIDR", NODES)?;
    Ok(outcome.provider_status(&json!({"kind": "InfrastructureStatus", "nodes": NODES}))?)
}
