//! The gate: clients reach an etcd with a deadline through its guard only, and no byte passes once the deadline is over.
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
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;

use tokio::{
    io::AsyncWriteExt,
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
    time::sleep,
};

use super::clock::Deadline;

/// Connections at a time, of all clients and of one address. Each API server has about a hundred.
const LIMITS: Limits = Limits { all: 8192, each: 2048 };
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

/// See the module. It closes when it is dropped.
pub(super) struct Gate {
    until: watch::Sender<Option<Deadline>>,
    _doors: JoinSet<()>,
}

impl Gate {
    /// Listens. `until`: after this moment nothing passes.
    ///
    /// # Errors
    /// Where one cannot listen on one of the addresses.
    pub(super) async fn open(doors: &Doors, until: Option<Deadline>) -> io::Result<Self> {
        Self::open_with(doors, until, LIMITS).await
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
        Ok(Self { until, _doors: tasks })
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
    let server = TcpStream::connect(target).await?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::try_join!(hand_on(from_client, to_server, until), hand_on(from_server, to_client, until)).map(drop)
}

/// Hands on what comes until it ends.
async fn hand_on(from: OwnedReadHalf, mut to: OwnedWriteHalf, until: &Until) -> io::Result<()> {
    loop {
        from.readable().await?;
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
        let (gate, door) = echo_with(LIMITS).await;
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
    async fn address_that_is_taken_is_told() {
        let taken = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = taken.local_addr().expect("its address");
        let doors = Doors { doors: vec![at], target: at };
        let error = Gate::open(&doors, None).await.map(drop).expect_err("taken");
        assert!(error.to_string().contains(&at.to_string()), "{error}");
    }
}
