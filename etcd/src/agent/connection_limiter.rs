//! How many connections of clients the [proxy](super::client_proxy) takes: of all of them, and of one address.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections at a time, of all clients. Each API server has about a hundred.
const CONNECTIONS: usize = 8192;
/// File descriptors of the guard that are not for connections.
const SPARE: u64 = 64;

/// Limits of open connections. The proxy does not authenticate clients, and a client without a certificate can open connections. So one
/// address gets a quarter of them at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The limit for all clients. Further clients wait until a connection ends.
    pub(super) all: usize,
    /// The limit for one address. Further connections are closed at once.
    pub(super) each: usize,
}

impl Limits {
    /// As many as there may be with this number of file descriptors: each connection needs two.
    pub(super) fn with(descriptors: u64) -> Self {
        let all = usize::try_from(descriptors.saturating_sub(SPARE) / 2).unwrap_or(CONNECTIONS);
        let all = all.clamp(4, CONNECTIONS);
        Self { all, each: all / 4 }
    }
}

/// Raises the number of files that this process may open to what it may be raised to; tells which that is. Its children inherit it.
pub(super) fn raise_descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum.unwrap_or(u64::MAX),
        Err(_) => limit.current.unwrap_or(u64::MAX),
    }
}

/// Counts the connections of all clients and of each address.
#[derive(Debug)]
pub(super) struct ConnectionLimiter {
    pub(super) all: Arc<Semaphore>,
    each: usize,
    taken: Mutex<HashMap<IpAddr, usize>>,
}

/// The permit of one connection. Dropping it returns the permit.
pub(super) struct ConnectionPermit {
    limiter: Arc<ConnectionLimiter>,
    address: IpAddr,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionLimiter {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        let all = Arc::new(Semaphore::new(limits.all));
        Arc::new(Self { all, each: limits.each, taken: Mutex::default() })
    }

    /// A permit for a client of this address; `None`: the address has reached its limit.
    pub(super) fn take(
        self: &Arc<Self>,
        address: IpAddr,
        permit: OwnedSemaphorePermit,
    ) -> Option<ConnectionPermit> {
        let mut taken = self.taken.lock();
        let count = taken.entry(address).or_default();
        (*count < self.each).then(|| {
            *count += 1;
            ConnectionPermit { limiter: Arc::clone(self), address, _permit: permit }
        })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut taken = self.limiter.taken.lock();
        if let Some(count) = taken.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_more_connections_than_file_descriptors() {
        for (descriptors, all, each) in
            [(1024, 480, 120), (1_048_576, 8192, 2048), (u64::MAX, 8192, 2048), (0, 4, 1)]
        {
            let limits = Limits::with(descriptors);
            assert_eq!((limits.all, limits.each), (all, each), "{descriptors}");
        }
    }
}
