//! A TCP relay whose link a test can cut, stall, slow down and throttle: the wire between two sites, or a load balancer.

mod pump;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::port;

pub use pump::run as carry;

/// A relay. Its connections end when it is dropped.
pub struct Relay {
    address: SocketAddr,
    link: watch::Sender<Link>,
    targets: watch::Sender<Arc<[SocketAddr]>>,
    task: JoinHandle<()>,
}

/// What the wire is like, for all connections at once, open and new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Whether bytes pass, and how.
    pub state: LinkState,
    /// Time that every byte spends on the way to the target; the way back has a value of its own.
    pub delay_to_target: Duration,
    /// Time that every byte spends on the way back.
    pub delay_to_client: Duration,
    /// Bytes per second to the target, of each connection; `None` is no limit.
    pub throttle_to_target: Option<u32>,
    /// Bytes per second back, of each connection.
    pub throttle_to_client: Option<u32>,
}

/// Whether bytes pass, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkState {
    /// They do.
    #[default]
    Open,
    /// They wait, and connections stay: how a partition looks from both ends. New connections open and then wait, too.
    Stalled,
    /// Connections are closed, and new ones as soon as they come: how a dead process looks.
    Cut,
}

/// One direction of one connection.
#[derive(Clone, Copy, Debug)]
enum Direction {
    ToTarget,
    ToClient,
}

impl Relay {
    /// Listens on a port of its own and passes connections to the targets in turn; a target that refuses is left out.
    pub async fn start(targets: &[SocketAddr]) -> Result<Self> {
        Self::start_at((Ipv4Addr::LOCALHOST, port::reserve()?).into(), targets).await
    }

    /// The same at an address of the caller's.
    pub async fn start_at(address: SocketAddr, targets: &[SocketAddr]) -> Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let (link, link_seen) = watch::channel(Link::default());
        let (targets, targets_seen) = watch::channel(Arc::from(targets));
        let task = tokio::spawn(accept(listener, link_seen, targets_seen));
        Ok(Self { address, link, targets, task })
    }

    /// The port at which the relay listens.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The address at which the relay listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where new connections go from now on; open ones stay where they are.
    pub fn set_targets(&self, targets: &[SocketAddr]) {
        self.targets.send_replace(Arc::from(targets));
    }

    /// Changes the wire, at once, for open and new connections.
    pub fn change(&self, change: impl FnOnce(&mut Link)) {
        self.link.send_modify(change);
    }

    /// Closes all connections and refuses new ones.
    pub fn cut(&self) {
        self.change(|link| link.state = LinkState::Cut);
    }

    /// Lets nothing through, and closes nothing.
    pub fn stall(&self) {
        self.change(|link| link.state = LinkState::Stalled);
    }

    /// Lets bytes pass again; delays and throttles stay as they are.
    pub fn heal(&self) {
        self.change(|link| link.state = LinkState::Open);
    }

    /// Delays every byte by half of a round trip in each direction.
    pub fn set_round_trip(&self, round_trip: Duration) {
        self.change(|link| (link.delay_to_target, link.delay_to_client) = (round_trip / 2, round_trip / 2));
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Link {
    fn delay(&self, direction: Direction) -> Duration {
        match direction {
            Direction::ToTarget => self.delay_to_target,
            Direction::ToClient => self.delay_to_client,
        }
    }

    fn throttle(&self, direction: Direction) -> Option<u32> {
        match direction {
            Direction::ToTarget => self.throttle_to_target,
            Direction::ToClient => self.throttle_to_client,
        }
    }
}

async fn accept(
    listener: TcpListener,
    link: watch::Receiver<Link>,
    targets: watch::Receiver<Arc<[SocketAddr]>>,
) {
    // Connections live in this set, so that they end with the relay.
    let mut connections = JoinSet::new();
    let mut turn: usize = 0;
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // A connection that was gone before it was accepted is nobody's loss.
                let Ok((client, _)) = accepted else { continue };
                let targets = targets.borrow().clone();
                connections.spawn(connect(client, targets, turn, link.clone()));
                turn = turn.wrapping_add(1);
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Relays one connection until either side or the link ends it. Its errors show at both ends, so nobody else needs them.
async fn connect(
    client: TcpStream,
    targets: Arc<[SocketAddr]>,
    turn: usize,
    mut link: watch::Receiver<Link>,
) {
    // A stalled wire carries no handshake either; a cut one closes what comes.
    let opened = link.wait_for(|link| link.state != LinkState::Stalled).await.map(|link| link.state);
    if !matches!(opened, Ok(LinkState::Open)) {
        return;
    }
    if let Some(target) = dial(&targets, turn).await {
        pump::run(client, target, link).await;
    }
}

async fn dial(targets: &[SocketAddr], turn: usize) -> Option<TcpStream> {
    for offset in 0..targets.len() {
        let target = targets[turn.wrapping_add(offset) % targets.len()];
        if let Ok(stream) = TcpStream::connect(target).await {
            return Some(stream);
        }
    }
    None
}
