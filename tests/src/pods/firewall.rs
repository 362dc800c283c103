//! Addresses of a network that are cut off from all others, by nftables as routers have it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};

use super::slow::SlowPackets;
use super::wire::Wire;

/// Between them are the ones of a set of addresses and all others; what stays within passes.
const ISOLATED: &str = "
  chain zone {
    ip saddr @own ip daddr @own accept
    ip saddr @own counter drop
    ip daddr @own counter drop
  }
  chain forward { type filter hook forward priority 0; jump zone; }
  chain input { type filter hook input priority 0; jump zone; }
  chain output { type filter hook output priority 0; jump zone; }";

/// Packets that go in or out of a set of addresses. What the hub says to itself goes out and comes in: it is marked once.
const MARKED: &str = "
  chain zone {
    ip saddr @own ip daddr @own accept
    ip saddr @own jump slow
    ip daddr @own jump slow
  }
  chain forward { type filter hook forward priority -10; jump zone; }
  chain input { type filter hook input priority -10; iif != \"lo\" jump zone; }
  chain output { type filter hook output priority -10; jump zone; }";

/// Sends those with a mark to the queue of that number. Kernels without queues of nftables have that of iptables.
const QUEUED: &str = r#"set -e
for chain in FORWARD OUTPUT "INPUT ! -i lo"; do
  iptables -w -A $chain -m mark --mark $1 -j NFQUEUE --queue-num $1 --queue-bypass
done"#;

/// Rules of the network of a NodeNetwork. Clones change the same ones.
#[derive(Clone)]
pub struct Firewall {
    wire: Arc<Wire>,
}

/// A way that is long and loses packets, until this is dropped.
#[must_use]
pub struct SlowZone {
    wire: Arc<Wire>,
    packets: SlowPackets,
}

impl Drop for SlowZone {
    fn drop(&mut self) {
        // Where this fails, the network has ended.
        drop(self.wire.in_hub_blocking("nft", &["delete", "table", "inet", &self.packets.table()]));
    }
}

impl Firewall {
    pub(super) fn new(wire: Arc<Wire>) -> Self {
        Self { wire }
    }

    /// Lets no packet pass between these addresses, such as `10.250.1.0/24` or `10.111.0.2-10.111.255.255`, and all others. The rules are a
    /// table of that name. One that is there already gets these addresses.
    pub async fn isolate(&self, table: &str, addresses: &[String]) -> Result<()> {
        let set =
            format!("set own {{ type ipv4_addr; flags interval; elements = {{ {} }}; }}", list(addresses));
        self.nft(&format!("{}\ntable inet {table} {{\n  {set}{ISOLATED}\n}}", without(table))).await.map(drop)
    }

    /// Deletes a table; it need not be there.
    pub async fn release(&self, table: &str) -> Result<()> {
        self.nft(&without(table)).await.map(drop)
    }

    /// Packets that a table has dropped so far.
    ///
    /// Errors: where there is no such table.
    pub async fn dropped(&self, table: &str) -> Result<u64> {
        let rules = self.nft(&format!("list table inet {table}")).await?;
        let counts = rules.split("counter packets ").skip(1);
        let counts = counts.map(|rest| rest.split(' ').next().unwrap_or_default().parse::<u64>());
        counts.sum::<Result<u64, _>>().with_context(|| format!("no counter of nft: {rules}"))
    }

    /// Keeps each packet between these addresses and all others for so long, and loses so many of a hundred.
    pub async fn slow_down(&self, addresses: &[String], delay: Duration, lost: u32) -> Result<SlowZone> {
        let packets = SlowPackets::start(&self.wire, delay)?;
        let table = packets.table();
        let set =
            format!("set own {{ type ipv4_addr; flags interval; elements = {{ {} }}; }}", list(addresses));
        let number = packets.number().to_string();
        let is_lost = if lost < 100 { format!("numgen random mod 100 < {lost}") } else { String::new() };
        let slow = format!("chain slow {{ {is_lost} drop; meta mark set {number}; }}");
        self.nft(&format!("{}\ntable inet {table} {{\n{set}\n{slow}{MARKED}\n}}", without(&table))).await?;
        self.wire.in_hub("/bin/sh", &["-c", QUEUED, "-", &number]).await?;
        Ok(SlowZone { wire: self.wire.clone(), packets })
    }

    async fn nft(&self, script: &str) -> Result<String> {
        self.wire.in_hub_with("nft", &["-f", "-"], script).await
    }
}

/// Deletes a table, whether it is there or not.
fn without(table: &str) -> String {
    format!("table inet {table} {{}}\ndelete table inet {table}")
}

fn list(addresses: &[String]) -> String {
    addresses.join(", ")
}

impl fmt::Debug for Firewall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Firewall").finish_non_exhaustive()
    }
}
