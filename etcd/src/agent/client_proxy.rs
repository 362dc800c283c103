//! A TCP proxy between clients and an etcd with a deadline. It runs in the guard, and writes nothing after the deadline.
//!
//! ```text
//! clients ──► guard, on the address of the Pod ──► etcd, on the loopback interface
//! ```
//!
//! The guard kills etcd when its deadline has passed, but the guard has to be scheduled for that. If all processes of a Pod are paused and
//! resumed, etcd may be scheduled first, and would answer requests that wait in its sockets. So the proxy checks the deadline before
//! each write, in both directions. It copies bytes, and knows neither TLS nor gRPC.

use std::{io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use repot_certs::connections::host;
use rustix::net::sockopt;
use tokio::{
    io::AsyncWriteExt,
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    clock::Deadline,
    connection_limiter::{ConnectionLimiter, Limits, raise_descriptors},
};

/// How long etcd may take to take a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the second direction of a connection may go on after the first has ended.
const LINGER: Duration = Duration::from_secs(10);
/// TCP keepalive of clients: the idle time, and the interval of three probes.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// What is read at once, in bytes.
const PIECE: usize = 16 << 10;
/// After a connection could not be taken, as when there are no more file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// The addresses of a [`ClientProxy`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyAddresses {
    /// The addresses on which the proxy accepts clients.
    pub listen: Vec<SocketAddr>,
    /// The address on which etcd listens for clients.
    pub backend: SocketAddr,
}

/// A running proxy. Its listeners close soon after it is dropped, and at once by [`ClientProxy::close`].
pub(super) struct ClientProxy {
    until: watch::Sender<Option<Deadline>>,
    listeners: JoinSet<()>,
}

impl ClientProxy {
    /// Listens on all addresses, and writes nothing after `until`.
    ///
    /// # Errors
    /// Where one cannot listen on one of the addresses.
    pub(super) async fn open(addresses: &ProxyAddresses, until: Option<Deadline>) -> io::Result<Self> {
        Self::open_with(addresses, until, Limits::with(raise_descriptors())).await
    }

    async fn open_with(
        addresses: &ProxyAddresses,
        until: Option<Deadline>,
        limits: Limits,
    ) -> io::Result<Self> {
        let (until, seen) = watch::channel(until);
        let (mut tasks, limiter) = (JoinSet::new(), ConnectionLimiter::new(limits));
        for &address in &addresses.listen {
            let listener = TcpListener::bind(address).await.map_err(|error| {
                io::Error::new(error.kind(), format!("cannot listen for clients on {address}: {error}"))
            })?;
            tasks.spawn(accept_clients(listener, addresses.backend, seen.clone(), Arc::clone(&limiter)));
        }
        Ok(Self { until, listeners: tasks })
    }

    /// Closes the listeners and all connections. When it returns, nothing is handed on any more, in either direction.
    pub(super) async fn close(mut self) {
        self.listeners.shutdown().await;
    }

    /// Replaces the deadline. An open connection takes the new one from its next write on.
    pub(super) fn renew(&self, until: Option<Deadline>) {
        self.until.send_replace(until);
    }
}

type Until = watch::Receiver<Option<Deadline>>;

/// Accepts clients on one listener, one task for each connection.
async fn accept_clients(
    listener: TcpListener,
    target: SocketAddr,
    until: Until,
    limiter: Arc<ConnectionLimiter>,
) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(permit) = Arc::clone(&limiter.all).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((client, from)) => {
                let Some(permit) = limiter.take(host(from.ip()), permit) else {
                    tracing::debug!(address = %from.ip(), "too many connections of one address");
                    continue;
                };
                let until = until.clone();
                connections.spawn(async move {
                    // A connection that breaks is told to both sides by its end.
                    let _ = proxy_connection(client, target, &until).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection of a client cannot be taken");
                sleep(PAUSE).await;
            }
        }
    }
}

/// Copies bytes between one client and etcd until one of them closes, or the deadline has passed.
async fn proxy_connection(client: TcpStream, target: SocketAddr, until: &Until) -> io::Result<()> {
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
    let mut there = pin!(copy_until_deadline(from_client, to_server, until));
    let mut back = pin!(copy_until_deadline(from_server, to_client, until));
    // The second direction might otherwise wait for ever: a closed etcd leaves a silent client open.
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

/// Copies one direction until its end, and checks the deadline before each write.
async fn copy_until_deadline(from: OwnedReadHalf, mut to: OwnedWriteHalf, until: &Until) -> io::Result<()> {
    loop {
        from.readable().await?;
        // The guard has one thread, which also keeps the deadline.
        tokio::task::consume_budget().await;
        // Allocated after the wait, so that an idle connection holds no buffer.
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
            // Checked after the wait for a slow reader, just before the write.
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

    /// A proxy before a server that says everything twice, and a client of it.
    async fn echo() -> (ClientProxy, TcpStream) {
        let (proxy, address) = echo_with(Limits::with(1024)).await;
        (proxy, TcpStream::connect(address).await.expect("a connection"))
    }

    async fn echo_with(limits: Limits) -> (ClientProxy, SocketAddr) {
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
        let address =
            TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("its address");
        let addresses = ProxyAddresses { listen: vec![address], backend: target };
        let proxy =
            ClientProxy::open_with(&addresses, Some(Deadline::after(HOUR)), limits).await.expect("a proxy");
        (proxy, address)
    }

    /// A connection from an address of this machine.
    async fn connect_from(from: &str, address: SocketAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(format!("{from}:0").parse().expect("an address")).expect("bound");
        socket.connect(address).await.expect("a connection")
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
        let (proxy, mut client) = echo().await;
        says(&mut client, b"abc").await.expect("an answer");
        says(&mut client, &[7; 100_000]).await.expect("an answer");
        proxy.renew(Some(Deadline::after(Duration::ZERO)));
        assert!(says(&mut client, b"abc").await.is_err(), "it passed");
        proxy.renew(None);
        assert!(says(&mut client, b"abc").await.is_err(), "it goes on");
    }

    #[tokio::test]
    async fn client_that_ends_its_side_is_answered_to_the_end() {
        let (_proxy, mut client) = echo().await;
        client.write_all(b"abc").await.expect("sent");
        client.shutdown().await.expect("shut down");
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.expect("an answer");
        assert_eq!(answer, b"abcabc");
    }

    #[tokio::test]
    async fn address_that_has_too_many_connections_leaves_the_others_theirs() {
        let (_proxy, address) = echo_with(Limits { all: 8, each: 2 }).await;
        let mut kept = Vec::new();
        for _ in 0..2 {
            let mut client = connect_from("127.0.0.1", address).await;
            says(&mut client, b"abc").await.expect("an answer");
            kept.push(client);
        }
        for _ in 0..20 {
            let mut client = connect_from("127.0.0.1", address).await;
            assert!(says(&mut client, b"abc").await.is_err(), "a third one");
        }
        says(&mut connect_from("127.0.0.2", address).await, b"abc").await.expect("an answer");
        // One that ends makes room.
        kept.pop();
        let again =
            async { while says(&mut connect_from("127.0.0.1", address).await, b"abc").await.is_err() {} };
        tokio::time::timeout(Duration::from_secs(10), again).await.expect("room for another one");
    }

    #[tokio::test]
    async fn server_that_ends_is_told_to_a_client_that_says_nothing_and_gives_its_place_back() {
        let server = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address =
            TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("its address");
        let addresses =
            ProxyAddresses { listen: vec![address], backend: server.local_addr().expect("its address") };
        let _proxy =
            ClientProxy::open_with(&addresses, None, Limits { all: 1, each: 1 }).await.expect("a proxy");
        let _silent = TcpStream::connect(address).await.expect("a connection");
        drop(server.accept().await.expect("the connection of the proxy"));
        // The only place there is.
        let _next = TcpStream::connect(address).await.expect("a connection");
        server.accept().await.expect("the next one");
    }

    #[tokio::test]
    async fn address_that_is_taken_is_told() {
        let taken = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = taken.local_addr().expect("its address");
        let addresses = ProxyAddresses { listen: vec![at], backend: at };
        let error = ClientProxy::open(&addresses, None).await.map(drop).expect_err("taken");
        assert!(error.to_string().contains(&at.to_string()), "{error}");
    }
}
