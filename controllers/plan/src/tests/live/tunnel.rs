//! The simulated tunnel: servers at both seeds, and clients in the Shoot.

use super::world::World;
use crate::{
    migration::{
        Side,
        effect::Effect,
        observed::{TunnelClient, TunnelFacts},
    },
    tests::rng::Rng,
};

/// Name of the servers.
pub(super) const TUNNEL_NAME: &str = "a-tunnel";
/// The usual client reconnects within this time, in seconds.
const RECONNECTS: u64 = 20;

/// Clients of the tunnel.
#[derive(Clone, Debug)]
pub(super) struct TunnelClients {
    /// Where the usual one is connected; else when it tries again.
    usual: Result<Side, u64>,
    /// When the temporary one is ready, where there is one.
    temporary: Option<u64>,
    /// When its name leads to the destination.
    exposed_at: Option<u64>,
}

impl Default for TunnelClients {
    fn default() -> Self {
        Self { usual: Ok(Side::Source), temporary: None, exposed_at: None }
    }
}

impl TunnelClients {
    /// Whether there is no temporary one.
    pub(super) fn is_usual(&self) -> bool {
        self.temporary.is_none()
    }
}

impl World {
    /// The usual client stays connected as long as servers run, and dials the name of the API then.
    pub(super) fn run_tunnel(&mut self) {
        let wait = self.rng.within(1, RECONNECTS);
        let is_slow = self.rng.percent(50);
        self.tunnel_clients.usual = match self.tunnel_clients.usual {
            Ok(side) if self.site(side).tunnel.running > 0 => Ok(side),
            Ok(_) => Err(self.now + wait),
            Err(at) if self.now < at => Err(at),
            Err(_) => {
                let side = self.zone.api_by_one_server(self.now, is_slow);
                if self.site(side).tunnel.running > 0 { Ok(side) } else { Err(self.now + wait) }
            }
        };
    }

    fn is_temporary_client_ready(&self) -> bool {
        let is_after = |at: Option<u64>| at.is_some_and(|at| self.now >= at);
        let clients = &self.tunnel_clients;
        is_after(clients.temporary)
            && is_after(clients.exposed_at)
            && self.site(Side::Destination).tunnel.running > 0
    }

    /// Whether kube-apiservers of a side reach the Shoot.
    pub(super) fn reaches_shoot(&self, side: Side) -> bool {
        let is_usual = self.tunnel_clients.usual == Ok(side) && self.site(side).tunnel.running > 0;
        is_usual || (side == Side::Destination && self.is_temporary_client_ready())
    }

    pub(super) fn change_tunnel(&mut self, side: Side, effect: &Effect, rng: &mut Rng) {
        let at = self.now + rng.within(1, 30);
        match effect {
            Effect::ExposeTunnel => {
                self.tunnel_clients.exposed_at.get_or_insert(at);
            }
            // A request to the API of the Shoot takes seconds at most, so none of before arrives in a rollback.
            Effect::EnsureTemporaryClient if self.is_api_ready(side) && !self.is_going_back => {
                self.tunnel_clients.temporary.get_or_insert(at);
            }
            Effect::RemoveTemporaryClient if self.is_api_ready(side) => self.tunnel_clients.temporary = None,
            _ => {}
        }
    }

    pub(super) fn tunnel_facts(&self, side: Side) -> TunnelFacts {
        let ready = |is_ready| if is_ready { TunnelClient::Ready } else { TunnelClient::Starting };
        let temporary = match self.tunnel_clients.temporary {
            Some(_) => ready(self.is_temporary_client_ready()),
            None => TunnelClient::Absent,
        };
        let unread = || TunnelClient::Unknown("the API of the Shoot does not answer".to_owned());
        let is_read = self.is_api_ready(side);
        let is_exposed = self.tunnel_clients.exposed_at.is_some_and(|at| self.now >= at);
        let is_reached = is_read && self.reaches_shoot(side);
        TunnelFacts {
            servers: self.site(side).tunnel.facts(TUNNEL_NAME, true),
            invalid: None,
            unexposed: (!is_exposed).then(|| "there is no DNSRecord".to_owned()),
            unreached: (!is_reached).then(|| "no client is connected".to_owned()),
            client: if is_read { ready(self.tunnel_clients.usual.is_ok()) } else { unread() },
            temporary_client: if is_read { temporary } else { unread() },
        }
    }
}
