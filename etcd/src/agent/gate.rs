//! The gate: clients reach an etcd with a deadline through its guard only, and no byte passes once the deadline is over.
//!
//! ```text
//! clients ──► door of the guard, on the address of the Pod ──► etcd, on the loopback interface
//! ```
//!
//! The guard kills etcd when its deadline has passed, but to do so it has to run. Where all processes of a Pod are held at once, etcd may
//! be the first to go on, and would answer what has waited in its sockets. So whatever passes from one side to the other is held
//! against the clocks just before it is handed on. The gate knows neither TLS nor gRPC: it hands on bytes.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    io::AsyncWriteExt,
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Semaphore, watch},
    task::JoinSet,
    time::sleep,
};

use super::clock::Deadline;

/// Connections at a time; further ones wait until one ends. Each API server has about a hundred.
const CONNECTIONS: usize = 4096;
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
        let (until, seen) = watch::channel(until);
        let (mut tasks, places) = (JoinSet::new(), Arc::new(Semaphore::new(CONNECTIONS)));
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
async fn keep(listener: TcpListener, target: SocketAddr, until: Until, places: Arc<Semaphore>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((client, _)) => {
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
    let mut piece = vec![0; PIECE];
    loop {
        from.readable().await?;
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
    use tokio::io::AsyncReadExt;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// A gate before a server that says everything twice, and a client of it.
    async fn echo() -> (Gate, TcpStream) {
        let server = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let target = server.local_addr().expect("its address");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = server.accept().await {
                let mut piece = [0; PIECE];
                while let Ok(length @ 1..) = stream.read(&mut piece).await {
                    let _ = stream.write_all(&piece[..length].repeat(2)).await;
                }
            }
        });
        let door = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("its address");
        let doors = Doors { doors: vec![door], target };
        let gate = Gate::open(&doors, Some(Deadline::after(HOUR))).await.expect("a gate");
        (gate, TcpStream::connect(door).await.expect("a connection"))
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
    async fn address_that_is_taken_is_told() {
        let taken = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = taken.local_addr().expect("its address");
        let doors = Doors { doors: vec![at], target: at };
        let error = Gate::open(&doors, None).await.map(drop).expect_err("taken");
        assert!(error.to_string().contains(&at.to_string()), "{error}");
    }
}
