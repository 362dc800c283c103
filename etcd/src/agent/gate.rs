//! The gate: clients reach an etcd with a deadline through its guard only, which hands on nothing once the deadline is over.
//!
//! ```text
//! clients ──► door of the guard, on the address of the Pod ──► etcd, on the loopback interface
//! ```
//!
//! The guard kills etcd when its deadline has passed, but to do so it has to run. Where all processes of a Pod are held at once, etcd may
//! be the first to go on, and would answer what has waited in its sockets. So whatever passes from one side to the other is held
//! against the clocks just before it is handed on. The gate knows neither TLS nor gRPC: it hands on bytes.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use rustix::{
    net::sockopt,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

use tokio::{
    io::AsyncWriteExt,
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
    time::{sleep, timeout},
};

use super::clock::Deadline;

/// Connections at a time, of all clients. Each API server has about a hundred.
const CONNECTIONS: usize = 8192;
/// File descriptors that are left for other things.
const SPARE: u64 = 64;
/// How long etcd may take to take a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// When one side has ended its direction, the other one has so long.
const LINGER: Duration = Duration::from_secs(10);
/// A client that says nothing is asked this often whether it is there, and has gone when it does not answer for as long three times.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// What is read at once, in bytes.
const PIECE: usize = 16 << 10;
/// After a connection could not be taken, as when there are no more file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Where clients come in, and where they are led.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doors {
    /// Addresses to listen on.
    pub doors: Vec<SocketAddr>,
    /// Where etcd listens.
    pub target: SocketAddr,
}

/// How many connections there may be at a time. The guard cannot tell who a client is, and somebody without a certificate can open
/// connections, too: so one address has a part of them only.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Of all clients; further ones wait until one ends.
    all: usize,
    /// Of one address; further ones are closed at once.
    each: usize,
}

impl Limits {
    /// As many as there may be with this number of file descriptors: each connection needs two.
    fn with(descriptors: u64) -> Self {
        let all = usize::try_from(descriptors.saturating_sub(SPARE) / 2).unwrap_or(CONNECTIONS);
        let all = all.clamp(4, CONNECTIONS);
        Self { all, each: all / 4 }
    }
}

/// Raises the number of files that this process may open to what it may be raised to; tells which that is. Its children inherit it.
fn raise_descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum.unwrap_or(u64::MAX),
        Err(_) => limit.current.unwrap_or(u64::MAX),
    }
}

/// Who has how many connections.
#[derive(Debug)]
struct Places {
    all: Arc<Semaphore>,
    each: usize,
    taken: Mutex<HashMap<IpAddr, usize>>,
}

/// A place of one connection, given back when it is dropped.
struct Place {
    places: Arc<Places>,
    address: IpAddr,
    _one: OwnedSemaphorePermit,
}

impl Places {
    fn new(limits: Limits) -> Arc<Self> {
        let all = Arc::new(Semaphore::new(limits.all));
        Arc::new(Self { all, each: limits.each, taken: Mutex::default() })
    }

    /// A place for a client of this address, if it has not too many.
    fn take(self: &Arc<Self>, address: IpAddr, one: OwnedSemaphorePermit) -> Option<Place> {
        let mut taken = self.taken.lock();
        let count = taken.entry(address).or_default();
        (*count < self.each).then(|| {
            *count += 1;
            Place { places: Arc::clone(self), address, _one: one }
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        if let Some(count) = taken.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.address);
            }
        }
    }
}

/// See the module. It closes soon after it is dropped.
pub(super) struct Gate {
    until: watch::Sender<Option<Deadline>>,
    doors: JoinSet<()>,
}

impl Gate {
    /// Listens. `until`: after this moment nothing passes.
    ///
    /// # Errors
    /// Where one cannot listen on one of the addresses.
    pub(super) async fn open(doors: &Doors, until: Option<Deadline>) -> io::Result<Self> {
        Self::open_with(doors, until, Limits::with(raise_descriptors())).await
    }

    async fn open_with(doors: &Doors, until: Option<Deadline>, limits: Limits) -> io::Result<Self> {
        let (until, seen) = watch::channel(until);
        let (mut tasks, places) = (JoinSet::new(), Places::new(limits));
        for &door in &doors.doors {
            let listener = TcpListener::bind(door).await.map_err(|error| {
                io::Error::new(error.kind(), format!("cannot listen for clients on {door}: {error}"))
            })?;
            tasks.spawn(keep(listener, doors.target, seen.clone(), Arc::clone(&places)));
        }
        Ok(Self { until, doors: tasks })
    }

    /// Nobody listens any more when this returns.
    pub(super) async fn close(mut self) {
        self.doors.shutdown().await;
    }

    /// Nothing passes after this moment instead.
    pub(super) fn renew(&self, until: Option<Deadline>) {
        self.until.send_replace(until);
    }
}

type Until = watch::Receiver<Option<Deadline>>;

/// Keeps one door.
async fn keep(listener: TcpListener, target: SocketAddr, until: Until, places: Arc<Places>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(one) = Arc::clone(&places.all).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((client, from)) => {
                let Some(place) = places.take(from.ip(), one) else {
                    tracing::debug!(address = %from.ip(), "too many connections of one address");
                    continue;
                };
                let until = until.clone();
                connections.spawn(async move {
                    // A connection that breaks is told to both sides by its end.
                    let _ = pass(client, target, &until).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection of a client cannot be taken");
                sleep(PAUSE).await;
            }
        }
    }
}

/// Leads one client to etcd.
async fn pass(client: TcpStream, target: SocketAddr, until: &Until) -> io::Result<()> {
    check(until)?;
    let server = timeout(CONNECT, TcpStream::connect(target)).await??;
    // While nobody listens on a port yet, a connection to it may come from that very port.
    if server.local_addr()? == server.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    keep_alive(&client)?;
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let mut there = pin!(hand_on(from_client, to_server, until));
    let mut back = pin!(hand_on(from_server, to_client, until));
    // A side that has ended may have left the other one waiting for ever.
    tokio::select! {
        ended = &mut there => {
            ended?;
            timeout(LINGER, back).await?
        }
        ended = &mut back => {
            ended?;
            timeout(LINGER, there).await?
        }
    }
}

/// Lets the kernel find out whether the other side is still there: etcd, which would ask for that, has its connection to us.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE)?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    Ok(sockopt::set_tcp_user_timeout(stream, 4 * u32::try_from(KEEPALIVE.as_millis()).unwrap_or(u32::MAX))?)
}

/// Hands on what comes until it ends.
async fn hand_on(from: OwnedReadHalf, mut to: OwnedWriteHalf, until: &Until) -> io::Result<()> {
    loop {
        from.readable().await?;
        // Others of this thread are to run in between, the deadline among them.
        tokio::task::consume_budget().await;
        // A connection that is idle holds no memory here.
        let mut piece = vec![0; PIECE];
        let length = match from.try_read(&mut piece) {
            Ok(0) => return to.shutdown().await,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        let mut rest = &piece[..length];
        while !rest.is_empty() {
            to.writable().await?;
            // Here and nowhere earlier: a side that reads slowly may have been waited for.
            check(until)?;
            match to.try_write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// # Errors
/// Once the deadline is over.
fn check(until: &Until) -> io::Result<()> {
    match *until.borrow() {
        Some(deadline) if deadline.is_over() => Err(io::Error::other("the deadline of etcd has passed")),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncReadExt, net::TcpSocket};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// A gate before a server that says everything twice, and a client of it.
    async fn echo() -> (Gate, TcpStream) {
        let (gate, door) = echo_with(Limits::with(1024)).await;
        (gate, TcpStream::connect(door).await.expect("a connection"))
    }

    async fn echo_with(limits: Limits) -> (Gate, SocketAddr) {
        let server = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let target = server.local_addr().expect("its address");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = server.accept().await {
                tokio::spawn(async move {
                    let mut piece = vec![0; PIECE];
                    while let Ok(length @ 1..) = stream.read(&mut piece).await {
                        let _ = stream.write_all(&piece[..length].repeat(2)).await;
                    }
                });
            }
        });
        let door = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("its address");
        let doors = Doors { doors: vec![door], target };
        let gate = Gate::open_with(&doors, Some(Deadline::after(HOUR)), limits).await.expect("a gate");
        (gate, door)
    }

    /// A connection from an address of this machine.
    async fn connect_from(address: &str, door: SocketAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(format!("{address}:0").parse().expect("an address")).expect("bound");
        socket.connect(door).await.expect("a connection")
    }

    async fn says(stream: &mut TcpStream, word: &[u8]) -> io::Result<()> {
        stream.write_all(word).await?;
        let mut answer = vec![0; 2 * word.len()];
        stream.read_exact(&mut answer).await?;
        assert_eq!(answer, word.repeat(2));
        Ok(())
    }

    #[tokio::test]
    async fn hands_on_everything_until_the_deadline_and_nothing_after_it() {
        let (gate, mut client) = echo().await;
        says(&mut client, b"abc").await.expect("an answer");
        says(&mut client, &[7; 100_000]).await.expect("an answer");
        gate.renew(Some(Deadline::after(Duration::ZERO)));
        assert!(says(&mut client, b"abc").await.is_err(), "it passed");
        gate.renew(None);
        assert!(says(&mut client, b"abc").await.is_err(), "it goes on");
    }

    #[tokio::test]
    async fn client_that_ends_its_side_is_answered_to_the_end() {
        let (_gate, mut client) = echo().await;
        client.write_all(b"abc").await.expect("sent");
        client.shutdown().await.expect("shut down");
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.expect("an answer");
        assert_eq!(answer, b"abcabc");
    }

    #[tokio::test]
    async fn address_that_has_too_many_connections_leaves_the_others_theirs() {
        let (_gate, door) = echo_with(Limits { all: 8, each: 2 }).await;
        let mut kept = Vec::new();
        for _ in 0..2 {
            let mut client = connect_from("127.0.0.1", door).await;
            says(&mut client, b"abc").await.expect("an answer");
            kept.push(client);
        }
        for _ in 0..20 {
            let mut client = connect_from("127.0.0.1", door).await;
            assert!(says(&mut client, b"abc").await.is_err(), "a third one");
        }
        says(&mut connect_from("127.0.0.2", door).await, b"abc").await.expect("an answer");
        // One that ends makes room.
        kept.pop();
        let again =
            async { while says(&mut connect_from("127.0.0.1", door).await, b"abc").await.is_err() {} };
        tokio::time::timeout(Duration::from_secs(10), again).await.expect("room for another one");
    }

    #[tokio::test]
    async fn server_that_ends_is_told_to_a_client_that_says_nothing_and_gives_its_place_back() {
        let server = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let door = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("its address");
        let doors = Doors { doors: vec![door], target: server.local_addr().expect("its address") };
        let _gate = Gate::open_with(&doors, None, Limits { all: 1, each: 1 }).await.expect("a gate");
        let _silent = TcpStream::connect(door).await.expect("a connection");
        drop(server.accept().await.expect("the connection of the gate"));
        // The only place there is.
        let _next = TcpStream::connect(door).await.expect("a connection");
        server.accept().await.expect("the next one");
    }

    #[test]
    fn there_are_no_more_connections_than_file_descriptors() {
        for (descriptors, all, each) in
            [(1024, 480, 120), (1_048_576, 8192, 2048), (u64::MAX, 8192, 2048), (0, 4, 1)]
        {
            let limits = Limits::with(descriptors);
            assert_eq!((limits.all, limits.each), (all, each), "{descriptors}");
        }
    }

    #[tokio::test]
    async fn address_that_is_taken_is_told() {
        let taken = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = taken.local_addr().expect("its address");
        let doors = Doors { doors: vec![at], target: at };
        let error = Gate::open(&doors, None).await.map(drop).expect_err("taken");
        assert!(error.to_string().contains(&at.to_string()), "{error}");
    }
}
