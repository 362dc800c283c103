//! Addresses of a Shoot by zone, and the rule that cuts those of one zone off: what a cloud does with subnets and access lists.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;

use crate::pods::{Firewall, NodeNetwork, SlowZone};

/// Nodes that a zone may have, one after the other.
const NODES: usize = 30;
/// Zones that a Shoot may have.
const ZONES: usize = 3;
/// The table with the rule.
const TABLE: &str = "isolated_zone";

/// The subnets of a Shoot. Clones are the same ones.
#[derive(Clone, Debug)]
pub struct Subnets {
    firewall: Firewall,
    zones: Arc<Mutex<Zones>>,
}

#[derive(Debug, Default)]
struct Zones {
    /// Their numbers follow from their order.
    names: Vec<String>,
    /// Zone and number of each node by its name. None is given twice.
    nodes: BTreeMap<String, (usize, usize)>,
}

impl Subnets {
    /// Subnets of a network whose rules are these.
    pub fn new(firewall: Firewall) -> Self {
        Self { firewall, zones: Arc::default() }
    }

    /// The address of a node, and the number of the range of its Pods.
    ///
    /// Errors: where all addresses have been given away.
    pub fn place(&self, node: &str, zone: &str) -> Result<(Ipv4Addr, usize)> {
        let mut zones = self.zones.lock();
        let number = zones.number(zone)?;
        let next = zones.nodes.values().filter(|(zone, _)| *zone == number).count() + 1;
        let (zone, node) = *zones.nodes.entry(node.to_owned()).or_insert((number, next));
        ensure!(node < NODES, "all addresses of nodes have been given away");
        Ok((Ipv4Addr::new(10, 250, u8::try_from(zone)?, u8::try_from(node)?), zone * NODES + node))
    }

    /// Lets no packet into a zone, and none out of it.
    pub async fn isolate(&self, zone: &str) -> Result<()> {
        self.firewall.isolate(TABLE, &self.addresses(zone)?).await
    }

    /// Undoes that for whatever zone it was done.
    pub async fn release(&self) -> Result<()> {
        self.firewall.release(TABLE).await
    }

    /// Packets that the rule has dropped.
    ///
    /// Errors: where no zone is isolated.
    pub async fn dropped(&self) -> Result<u64> {
        self.firewall.dropped(TABLE).await
    }

    /// Makes the way into a zone and out of it long, and loses so many of a hundred packets.
    pub async fn slow_down(&self, zone: &str, delay: Duration, lost: u32) -> Result<SlowZone> {
        self.firewall.slow_down(&self.addresses(zone)?, delay, lost).await
    }

    /// An address of a zone that no node gets.
    pub fn spare_address(&self, zone: &str) -> Result<Ipv4Addr> {
        Ok(Ipv4Addr::new(10, 250, u8::try_from(self.zones.lock().number(zone)?)?, 250))
    }

    fn addresses(&self, zone: &str) -> Result<Vec<String>> {
        let zone = self.zones.lock().number(zone)?;
        let pods = (zone * NODES..(zone + 1) * NODES).map(NodeNetwork::pods_of);
        Ok([format!("10.250.{zone}.0/24")].into_iter().chain(pods).collect())
    }
}

impl Zones {
    fn number(&mut self, zone: &str) -> Result<usize> {
        if !self.names.iter().any(|name| name == zone) {
            self.names.push(zone.to_owned());
        }
        let found = self.names.iter().position(|name| name == zone).filter(|at| *at < ZONES);
        found.with_context(|| format!("zone {zone} is the fourth: there are addresses for {ZONES}"))
    }
}
