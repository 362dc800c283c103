//! How many connections there may be without credentials. A new one beyond that ends the oldest one of the address that has the most
//! of them, and none of a client that has shown who it is. So a probe, or a client that is about to show a token, is served while
//! one host opens connections and keeps them, or opens them and says nothing.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::Arc,
};

use parking_lot::Mutex;
use repot_certs::connections::host;
use tokio_util::sync::CancellationToken;

use crate::metrics;

/// The connections without credentials, from when they are accepted.
#[derive(Clone, Debug)]
pub(crate) struct Unauthenticated {
    most: usize,
    connections: Arc<Mutex<Connections>>,
}

#[derive(Debug, Default)]
struct Connections {
    next: u64,
    count: usize,
    /// Of each address, by age. An address without a connection has no entry.
    by_address: HashMap<IpAddr, BTreeMap<u64, CancellationToken>>,
}

/// A connection counts for as long as this lives.
#[derive(Debug)]
pub(crate) struct Counted {
    connections: Arc<Mutex<Connections>>,
    address: IpAddr,
    number: u64,
}

impl Unauthenticated {
    /// So many at once, at least one.
    pub(crate) fn new(most: usize) -> Self {
        Self { most: most.max(1), connections: Arc::default() }
    }

    /// Counts a connection from this address, which `end` ends. Where there are too many now, the oldest one of the address with
    /// the most is ended; of several such addresses, the one that has the oldest connection.
    pub(crate) fn count(&self, end: CancellationToken, address: IpAddr) -> Counted {
        let address = host(address);
        let mut connections = self.connections.lock();
        let number = connections.next;
        connections.next += 1;
        connections.add(address, number, end);
        if connections.count > self.most
            && let Some(oldest) = connections.pop_fairly()
        {
            oldest.cancel();
            metrics::EVICTED_CONNECTIONS.inc();
        }
        Counted { connections: self.connections.clone(), address, number }
    }
}

impl Connections {
    fn add(&mut self, address: IpAddr, number: u64, end: CancellationToken) {
        self.by_address.entry(address).or_default().insert(number, end);
        self.count += 1;
    }

    fn remove(&mut self, address: IpAddr, number: u64) -> Option<CancellationToken> {
        let own = self.by_address.get_mut(&address)?;
        let end = own.remove(&number)?;
        if own.is_empty() {
            self.by_address.remove(&address);
        }
        self.count -= 1;
        Some(end)
    }

    fn pop_fairly(&mut self) -> Option<CancellationToken> {
        let oldest = |own: &BTreeMap<u64, _>| own.first_key_value().map(|(number, _)| *number);
        let most = self.by_address.iter().max_by_key(|(_, own)| (own.len(), std::cmp::Reverse(oldest(own))));
        let (address, number) = most.and_then(|(address, own)| Some((*address, oldest(own)?)))?;
        self.remove(address, number)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.connections.lock().remove(self.address, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// Which connections from these addresses are ended, where so many may be open.
    fn ended(most: usize, addresses: &[&str]) -> Vec<bool> {
        let connections = Unauthenticated::new(most);
        let ends: Vec<CancellationToken> = addresses.iter().map(|_| CancellationToken::new()).collect();
        let counted = addresses.iter().zip(&ends);
        let _counted: Vec<_> =
            counted.map(|(from, end)| connections.count(end.clone(), address(from))).collect();
        ends.iter().map(CancellationToken::is_cancelled).collect()
    }

    #[test]
    fn the_newest_ends_the_oldest_and_those_that_have_shown_who_they_are_stay() {
        let connections = Unauthenticated::new(2);
        let ends: Vec<CancellationToken> = (0..4).map(|_| CancellationToken::new()).collect();
        let count = |at: usize| connections.count(ends[at].clone(), address("192.0.2.1"));
        let ended = || ends.iter().map(CancellationToken::is_cancelled).collect::<Vec<_>>();
        let (first, _second) = (count(0), count(1));
        assert_eq!(ended(), [false; 4]);
        // The first shows who it is.
        drop(first);
        let _third = count(2);
        assert_eq!(ended(), [false; 4]);
        let fourth = count(3);
        assert_eq!(ended(), [false, true, false, false]);
        drop((_second, _third, fourth));
        let left = connections.connections.lock();
        assert_eq!((left.count, left.by_address.len()), (0, 0), "addresses without a connection are kept");
    }

    #[test]
    fn one_host_ends_its_own_connections_and_not_older_ones_of_others() {
        let (many, other) = ("192.0.2.1", "192.0.2.2");
        assert_eq!(ended(3, &[other, many, many, many, many]), [false, true, true, false, false]);
        // Whoever comes later finds room, too.
        assert_eq!(ended(3, &[many, many, many, other, other]), [true, true, false, false, false]);
        // Among equals the oldest goes.
        assert_eq!(ended(2, &[other, many, "192.0.2.3"]), [true, false, false]);
    }

    #[test]
    fn one_host_has_one_count_for_all_its_addresses() {
        let other = "2001:db8:2::1";
        assert_eq!(ended(2, &[other, "2001:db8:1::1", "2001:db8:1::2"]), [false, true, false]);
        assert_eq!(ended(2, &[other, "::ffff:192.0.2.1", "192.0.2.1"]), [false, true, false]);
    }
}
