//! The network between the seeds of a landscape: what Pods of all seeds reach of load balancers of any seed.
//!
//! A load balancer listens on loopback of this machine, at 127.77.a.b. In the network of Pods of each seed the same one is at 10.77.a.b,
//! and this is the address that Services and DNS have. What runs on this machine itself asks [`here`].

use std::net::{Ipv4Addr, SocketAddr};

use std::time::Duration;

use anyhow::Result;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::pods::PodNetwork;
use crate::relay::{Link, LinkState};

/// First two numbers of addresses of load balancers, in the networks of Pods.
const WIDE: [u8; 2] = [10, 77];
/// The same on this machine.
const HERE: [u8; 2] = [127, 77];

/// Where a load balancer is in all networks. It opens no address by itself.
#[derive(Debug, Default)]
pub struct WideNetwork {
    /// Networks of Pods, by the names of their seeds and Shoots.
    networks: Mutex<Vec<(String, PodNetwork)>>,
    /// What the way from one seed to another is like. Within a seed there is no delay.
    between: watch::Sender<Link>,
    within: watch::Sender<Link>,
}

/// An address that Pods of all seeds reach, until this is dropped.
pub struct WideAddress {
    _relays: JoinSet<()>,
}

/// Seeds that do not reach each other, until this is dropped.
pub struct Partition<'a>(&'a WideNetwork);

/// Seeds that are far from each other, until this is dropped.
pub struct Distance<'a>(&'a WideNetwork);

impl WideNetwork {
    /// Adds the network of the Pods of a seed, or of a Shoot, which is not within any seed. Addresses that are open already do not appear
    /// there, so networks come before Services.
    pub fn join(&self, name: &str, network: PodNetwork) {
        self.networks.lock().push((name.to_owned(), network));
    }

    /// Removes a network: addresses that open later do not open in it.
    pub fn leave(&self, name: &str) {
        self.networks.lock().retain(|(joined, _)| joined != name);
    }

    /// Lets Pods of all seeds reach ports of an address of this machine, which leads to a seed.
    ///
    /// Errors: where one of the ports is taken in a network.
    pub async fn open(&self, seed: &str, here: Ipv4Addr, ports: &[u16]) -> Result<WideAddress> {
        let networks = self.networks.lock().clone();
        let mut relays = JoinSet::new();
        for (name, network) in &networks {
            for port in ports {
                let at = SocketAddr::from((wide(here), *port));
                let link = if name == seed { &self.within } else { &self.between };
                relays.spawn(network.open(at, SocketAddr::from((here, *port)), link.subscribe()).await?);
            }
        }
        Ok(WideAddress { _relays: relays })
    }

    /// Delays all that Pods of one seed and load balancers of another one say to each other, open connections included. The machine itself
    /// has no delay to any seed.
    pub fn set_apart(&self, round_trip: Duration) -> Distance<'_> {
        self.set_round_trip(round_trip);
        Distance(self)
    }

    /// Nothing that Pods of one seed and load balancers of another one say to each other arrives; connections stay open, and wait.
    pub fn cut(&self) -> Partition<'_> {
        self.between.send_modify(|link| link.state = LinkState::Stalled);
        Partition(self)
    }

    fn set_round_trip(&self, round_trip: Duration) {
        self.between.send_modify(|link| {
            (link.delay_to_target, link.delay_to_client) = (round_trip / 2, round_trip / 2);
        });
    }
}

impl Drop for Partition<'_> {
    fn drop(&mut self) {
        self.0.between.send_modify(|link| link.state = LinkState::Open);
    }
}

impl Drop for Distance<'_> {
    fn drop(&mut self) {
        self.0.set_round_trip(Duration::ZERO);
    }
}

/// The same for programs that are told so by a flag: the beginning of addresses, and what stands in its place here.
pub const TRANSLATION: &str = "10.77=127.77";

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
        let begin = |[a, b]: [u8; 2]| format!("{a}.{b}");
        assert_eq!(TRANSLATION, format!("{}={}", begin(WIDE), begin(HERE)));
        assert_eq!((here(wide(local)), here(others)), (local, others));
    }
}
