//! Limits on the number of connections of a server, and which connection ends when a limit is reached.
//!
//! Clients need not show who they are, so no client has a place of its own. A connection ends of the address that is over its limit, or
//! of the address with the most connections: one on which no request succeeded, before one on which a request did; of these the one
//! that was not used for the longest time.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// What counts as one host: an IPv4 address, or the /64 of an IPv6 address, which is what one host is given (RFC 4291, 2.5.4).
#[must_use]
pub fn host(address: IpAddr) -> IpAddr {
    const NETWORK: u128 = !0 << 64;
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK).into(),
        v4 => v4,
    }
}

/// How many connections a server keeps open, and for how long idle ones.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections of all clients.
    pub all: usize,
    /// Connections of one host: see [`host`].
    pub of_address: usize,
    /// A connection on which a request succeeded, or none was sent yet, ends when it was idle for so long. Clients in Go end idle
    /// connections after 90 seconds, also one that they opened and had no use for. They do not repeat a POST whose connection ends.
    pub idle: Duration,
    /// A connection on which requests came and none succeeded ends when it was idle for so long.
    pub failed: Duration,
}

/// The open connections of a server.
#[derive(Debug)]
pub struct Connections {
    limits: Limits,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    all: BTreeMap<u64, Arc<Use>>,
}

/// One open connection: its address, and how it is used.
#[derive(Debug)]
pub struct Use {
    address: IpAddr,
    limits: Limits,
    end: CancellationToken,
    asked: AtomicBool,
    proven: AtomicBool,
    answering: AtomicUsize,
    last: Mutex<Instant>,
}

/// A connection counts for as long as this lives.
#[derive(Debug)]
pub struct Counted {
    connections: Arc<Connections>,
    number: u64,
    connection: Arc<Use>,
}

/// A request is being answered for as long as this lives.
#[derive(Debug)]
pub struct Answering(Arc<Use>);

impl Connections {
    /// Counts within these limits; no connection is open yet.
    #[must_use]
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, open: Mutex::default() })
    }

    /// Counts a connection of this address. Where there are too many now, another one is ended.
    pub fn count(self: &Arc<Self>, address: IpAddr) -> Counted {
        let address = host(address);
        let connection = Arc::new(Use {
            address,
            limits: self.limits,
            end: CancellationToken::new(),
            asked: AtomicBool::new(false),
            proven: AtomicBool::new(false),
            answering: AtomicUsize::new(0),
            last: Mutex::new(Instant::now()),
        });
        let mut open = self.open.lock();
        if let Some(victim) = open.victim(address, &self.limits)
            && let Some(victim) = open.all.remove(&victim)
        {
            tracing::debug!(address = %victim.address, "a connection is ended, since there are too many");
            victim.end.cancel();
        }
        let number = open.next;
        open.next += 1;
        open.all.insert(number, connection.clone());
        drop(open);
        Counted { connections: self.clone(), number, connection }
    }
}

impl Open {
    /// The connection that ends before one more of this address comes; nothing where there is a place for it.
    fn victim(&self, address: IpAddr, limits: &Limits) -> Option<u64> {
        let mut by_address: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for connection in self.all.values() {
            *by_address.entry(connection.address).or_default() += 1;
        }
        let own = by_address.get(&address).copied().unwrap_or_default();
        let from = if own >= limits.of_address.max(1) {
            address
        } else if self.all.len() >= limits.all.max(1) {
            by_address.into_iter().max_by_key(|(_, count)| *count)?.0
        } else {
            return None;
        };
        let of_address = self.all.iter().filter(|(_, connection)| connection.address == from);
        let least = of_address.min_by_key(|(_, connection)| {
            (connection.proven.load(Ordering::Acquire), *connection.last.lock())
        });
        least.map(|(number, _)| *number)
    }
}

impl Counted {
    /// The connection that is counted.
    #[must_use]
    pub fn connection(&self) -> &Arc<Use> {
        &self.connection
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.connections.open.lock().all.remove(&self.number);
    }
}

impl Use {
    /// A request has come.
    pub fn answer(self: &Arc<Self>) -> Answering {
        self.asked.store(true, Ordering::Release);
        self.answering.fetch_add(1, Ordering::AcqRel);
        Answering(self.clone())
    }

    /// Whether a request succeeded on it.
    pub fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Acquire)
    }

    /// Until it has to end: there are too many, or nothing was asked for too long. Answers that the client does not take count for nothing.
    pub async fn until_end(&self) {
        tokio::select! { () = self.end.cancelled() => {}, () = self.until_idle() => {} }
    }

    async fn until_idle(&self) {
        loop {
            // Read first: the end of an answer is written down before it is counted.
            let answers = self.answering.load(Ordering::Acquire) > 0;
            let failed = self.asked.load(Ordering::Acquire) && !self.is_proven();
            let limit = if failed { self.limits.failed } else { self.limits.idle };
            let due = *self.last.lock() + limit;
            let now = Instant::now();
            match (due <= now, answers) {
                (true, false) => return,
                // The time begins anew when it is answered.
                (true, true) => sleep_until(now + limit).await,
                // A request that fails meanwhile makes the time shorter.
                (false, _) => sleep_until(due.min(now + self.limits.failed)).await,
            }
        }
    }
}

impl Answering {
    /// The request was one that the server is there for, and it succeeded.
    pub fn succeeded(&self) {
        self.0.proven.store(true, Ordering::Release);
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        *self.0.last.lock() = Instant::now();
        self.0.answering.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILED: Duration = Duration::from_millis(50);
    const IDLE: Duration = Duration::from_millis(1000);
    const LIMITS: Limits = Limits { all: 4, of_address: 3, idle: IDLE, failed: FAILED };

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn ended(all: &[Counted]) -> Vec<bool> {
        all.iter().map(|one| one.connection().end.is_cancelled()).collect()
    }

    #[test]
    fn what_was_of_the_least_use_ends_first() {
        let connections = Connections::new(LIMITS);
        let mut all: Vec<Counted> = (0..3).map(|_| connections.count(address(1))).collect();
        // A request succeeded on the oldest.
        all[0].connection().answer().succeeded();
        all.push(connections.count(address(1)));
        assert_eq!(ended(&all), [false, true, false, false]);
        // Another address does not pay for it, as long as it has fewer.
        all.push(connections.count(address(2)));
        assert_eq!(ended(&all), [false, true, false, false, false]);
        all.push(connections.count(address(2)));
        assert_eq!(ended(&all), [false, true, true, false, false, false]);
        // One that has ended by itself leaves its place.
        drop(all.remove(3));
        all.push(connections.count(address(3)));
        assert_eq!(ended(&all), [false, true, true, false, false, false]);
    }

    #[test]
    fn addresses_of_one_network_count_as_one_host() {
        let of = |text: &str| text.parse::<IpAddr>().expect("an address");
        let connections = Connections::new(LIMITS);
        let all: Vec<Counted> =
            (1..=4).map(|last| connections.count(of(&format!("2001:db8:0:1::{last}")))).collect();
        assert_eq!(ended(&all), [true, false, false, false]);
        // The next network is another host, and so is an IPv4 address, in whichever form it is written.
        assert_ne!(host(of("2001:db8:0:2::1")), host(of("2001:db8:0:1::1")));
        assert_eq!(host(of("::ffff:10.0.0.1")), of("10.0.0.1"));
    }

    async fn end(counted: &Counted) -> Duration {
        let began = Instant::now();
        counted.connection().until_end().await;
        began.elapsed()
    }

    #[tokio::test]
    async fn idle_connections_end_the_sooner_where_requests_failed() {
        let connections = Connections::new(LIMITS);
        // Clients open connections ahead, and use them later.
        assert!(end(&connections.count(address(1))).await >= IDLE);
        let counted = connections.count(address(1));
        // It is waited for from the beginning, as a server does.
        let (ended, ()) = tokio::join!(end(&counted), async { drop(counted.connection().answer()) });
        assert!((FAILED..IDLE).contains(&ended), "a failed request counts for nothing");
        let counted = connections.count(address(1));
        let request = counted.connection().answer();
        request.succeeded();
        let busy = tokio::time::timeout(IDLE * 2, counted.connection().until_end());
        assert!(busy.await.is_err(), "a request was being answered");
        drop(request);
        assert!(end(&counted).await >= IDLE);
    }
}
