//! The network between the seeds of a landscape: what Pods of all seeds reach of load balancers of any seed.
//!
//! A load balancer listens on loopback of this machine, at 127.77.a.b. In the network of Pods of each seed the same one is at 10.77.a.b,
//! and this is the address that Services and DNS have. What runs on this machine itself asks [`here`].

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::pods::PodNetwork;

/// First two numbers of addresses of load balancers, in the networks of Pods.
const WIDE: [u8; 2] = [10, 77];
/// The same on this machine.
const HERE: [u8; 2] = [127, 77];

/// Where a load balancer is in all networks. It opens no address by itself.
#[derive(Debug, Default)]
pub struct WideNetwork(Mutex<Vec<PodNetwork>>);

/// An address that Pods of all seeds reach, until this is dropped.
pub struct WideAddress {
    _relays: JoinSet<()>,
}

impl WideNetwork {
    /// Adds the network of the Pods of a seed. Addresses that are open already do not appear there, so seeds come before Services.
    pub fn join(&self, seed: PodNetwork) {
        self.0.lock().push(seed);
    }

    /// Lets Pods of all seeds reach ports of an address of this machine.
    ///
    /// Errors: where one of the ports is taken in a network.
    pub async fn open(&self, here: Ipv4Addr, ports: &[u16]) -> Result<WideAddress> {
        let networks = self.0.lock().clone();
        let mut relays = JoinSet::new();
        for network in &networks {
            for port in ports {
                let at = SocketAddr::from((wide(here), *port));
                relays.spawn(network.open(at, SocketAddr::from((here, *port))).await?);
            }
        }
        Ok(WideAddress { _relays: relays })
    }
}

/// The address by which Pods reach a load balancer that listens at this one.
#[must_use]
pub fn wide(here: Ipv4Addr) -> Ipv4Addr {
    let [_, _, a, b] = here.octets();
    Ipv4Addr::new(WIDE[0], WIDE[1], a, b)
}

/// Where the load balancer with an address of Services and DNS listens on this machine; another address is as it was.
#[must_use]
pub fn here(address: Ipv4Addr) -> Ipv4Addr {
    match address.octets() {
        [x, y, a, b] if [x, y] == WIDE => Ipv4Addr::new(HERE[0], HERE[1], a, b),
        _ => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_load_balancers_are_translated_and_no_others() {
        let (local, others) = (Ipv4Addr::new(127, 77, 3, 9), Ipv4Addr::new(10, 0, 0, 20));
        assert_eq!(wide(local), Ipv4Addr::new(10, 77, 3, 9));
        assert_eq!((here(wide(local)), here(others)), (local, others));
    }
}
