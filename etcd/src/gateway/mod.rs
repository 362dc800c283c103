//! A gateway in front of one etcd, for API servers: it speaks gRPC as etcd does, and hides from them that the leader moves and that
//! members come and go.
//!
//! It may not look into what it carries: the path of a call says what it does, and bytes pass as they are. Only of watches it reads
//! revisions, to know where they go on.
//!
//! | what | while the leader moves | when its member goes away |
//! |---|---|---|
//! | write: put, delete, transaction, compaction, lease granted or revoked | waits, for at most the time of [`Handle::hold`] | is answered with `Unavailable`: whether it was done is not known, so it is never sent again |
//! | read: range, leases, members, status | passes; asked again when etcd says that the leader changed | asked again at another member, within its deadline |
//! | watch | passes | goes on at another member, without a gap or a repetition |
//! | lease kept alive, snapshot | passes | ends with `Unavailable`; clients of etcd begin it anew |
//! | anything else | passes | as a write |
//!
//! **Why writes are held.** A leader that hands over drops what it is asked for meanwhile, and nobody learns whether it was done.
//! So the gateway lets those that are on their way end and keeps the next ones at the door. Whoever shut the door may die, so it
//! opens by itself.
//!
//! **A write is sent twice only where it is certain that it was not done**: no connection could be made, the connection ended before
//! it took the call, or the member says that it did not look at it.
//!
//! **Authentication.** Members see the certificate of the gateway, not that of the client. Where etcd has authentication enabled,
//! clients need tokens, which pass; calls without one are refused (`auth`).
//!
//! **Bounds.** A message is taken in whole before it is sent, so that a write that waits does not stand in the way of reads on its
//! connection; all messages together have [`Limits::memory`], and whoever finds no room waits. Answers over 256 KiB and streams are
//! passed on as fast as the client takes them, those
//! of watches in messages of at most 4 MiB: each client has connections to etcd of its own, and its slowness is nobody else's.
//! A member that cannot be reached is dialled twice a second at most, by all clients together (`backoff`).
//! Deadlines of clients are passed on, less the time spent here; a call that a client gives up is given up at etcd.

mod auth;
mod backoff;
mod body;
mod calls;
mod client;
mod gate;
mod grpc;
mod listen;
mod members;
mod method;
mod proxy;
mod tls;
mod upstream;
mod watch;

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use repot_certs::{clients::Authorities, tls::Serving};
use tokio::{net::TcpListener, time::Instant};
use tokio_rustls::rustls;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use gate::NotDrained;
pub use members::Endpoint;

use crate::link;

/// What may be on its way in one stream, in each direction, before it is taken.
const STREAM_WINDOW: u32 = 256 << 10;
/// What may be on its way in all streams of a connection.
const CONNECTION_WINDOW: u32 = 16 << 20;
/// What of a stream may wait to be sent.
const SEND_BUFFER: usize = 256 << 10;

/// What can go wrong with a gateway.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The port is taken, or the address is not one of this machine.
    #[error("failed to listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// No member to ask.
    #[error("a gateway needs the URL of a member at least")]
    NoEndpoints,
    /// Not a URL of a member.
    #[error("{url:?} is not the URL of a member, such as https://etcd-0:2379: {why}")]
    BadEndpoint {
        /// What was given.
        url: String,
        /// Why it is none.
        why: &'static str,
    },
    /// A certificate or key for members is not PEM.
    #[error("a certificate or key for members is not PEM")]
    Pem(#[source] rustls::pki_types::pem::Error),
    /// A certificate or key for members cannot be used.
    #[error("a certificate or key for members cannot be used")]
    Tls(#[source] rustls::Error),
    /// Calls at members that are not to be used any more have not ended in time. They go on; no new ones go there.
    #[error("{calls} calls did not end within {waited:?}")]
    StillBusy {
        /// How many.
        calls: usize,
        /// How long they were waited for.
        waited: Duration,
    },
}

/// What a gateway is made of.
pub struct Options {
    /// Where to listen; with port 0 the system chooses one.
    pub listen: SocketAddr,
    /// Certificates to serve with; plain HTTP/2 without.
    pub serving: Option<Serving>,
    /// Whose certificates clients have to show; with `serving` only.
    pub clients: Option<Authorities>,
    /// The members that calls are sent to, until [`Handle::set_endpoints`] names others; at least one.
    pub endpoints: Vec<Endpoint>,
    /// How to speak to members: authorities, the own certificate, the name in theirs. Neither its endpoints nor its user are used;
    /// a client's token passes.
    pub access: link::Options,
    /// Bounds on messages, memory, calls and time.
    pub limits: Limits,
}

/// Bounds of a gateway.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The largest message, in bytes. etcd itself takes 1.5 MiB where it is not told otherwise.
    pub message: usize,
    /// All messages that are here, in bytes.
    pub memory: usize,
    /// Calls of one connection at a time.
    pub streams: u32,
    /// How long another member is looked for, for calls without a deadline.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { message: 16 << 20, memory: 128 << 20, streams: 2000, patience: Duration::from_secs(10) }
    }
}

/// What everything here shares.
struct Shared {
    members: members::Members,
    gate: Arc<gate::Gate>,
    auth: auth::Auth,
    room: body::MessageBudget,
    dialer: Arc<tls::Dialer>,
    limits: Limits,
    /// How many there have been.
    connections: AtomicUsize,
}

/// Starts gateways with [`Gateway::start`]; one that serves is a [`Handle`].
pub struct Gateway;

/// A gateway that serves. It ends when this is dropped.
pub struct Handle {
    addr: SocketAddr,
    shared: Arc<Shared>,
    stop: CancellationToken,
    task: TaskTracker,
}

/// How a gateway stands.
#[derive(Clone, Debug)]
pub struct Status {
    /// The members that are used.
    pub endpoints: Vec<EndpointStatus>,
    /// How much longer writes are held, if they are.
    pub held_for: Option<Duration>,
    /// Writes that are on their way.
    pub writes: usize,
    /// Writes that wait until they may pass.
    pub waiting: usize,
    /// Whether etcd has authentication enabled; `None` before a member has told. Calls without a token are refused then.
    pub auth_enabled: Option<bool>,
}

/// How a gateway stands with a member.
#[derive(Clone, Debug)]
pub struct EndpointStatus {
    /// The member's URL for clients, `http://` or `https://`.
    pub url: String,
    /// Whether it is on the same site.
    pub near: bool,
    /// Whether no call failed there just now.
    pub well: bool,
    /// Calls that are on their way there; watches and other streams are not counted.
    pub calls: usize,
}

impl Gateway {
    /// Listens, and serves from then on.
    ///
    /// # Errors
    /// [`Error`], all but `StillBusy`. That members do not answer is none: they may come later.
    pub async fn start(options: Options) -> Result<Handle, Error> {
        let Options { listen: address, serving, clients, endpoints, access, limits } = options;
        let shared = Shared {
            members: members::Members::default(),
            gate: Arc::default(),
            auth: auth::Auth::default(),
            room: body::MessageBudget::new(limits.memory, limits.message),
            dialer: Arc::new(tls::Dialer::new(&access)?),
            limits,
            connections: AtomicUsize::new(0),
        };
        shared.members.set(&endpoints)?;
        let failed = |source| Error::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let addr = listener.local_addr().map_err(failed)?;
        let tls = serving.map(|serving| listen::Tls { serving, clients });
        let (shared, stop) = (Arc::new(shared), CancellationToken::new());
        let task = TaskTracker::new();
        task.spawn(listen::serve(listener, tls, shared.clone(), stop.clone()));
        task.spawn(stop.clone().run_until_cancelled_owned(auth::follow(shared.clone())));
        task.close();
        Ok(Handle { addr, shared, stop, task })
    }
}

impl Handle {
    /// The address that the gateway listens on, with the port that the system chose for port 0.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Keeps new writes waiting, for at most so long, and returns when no write is on its way any more, with the time that is
    /// left. Half of the time is for that; the other half is for what writes are held for. Called again it begins anew.
    ///
    /// # Errors
    /// Where writes have not ended in their half of the time. Then they are no longer held.
    pub async fn hold(&self, deadline: Duration) -> Result<Duration, NotDrained> {
        let until = self.shared.gate.hold(deadline).await?;
        Ok(until.saturating_duration_since(Instant::now()))
    }

    /// Lets writes go on.
    pub fn release(&self) {
        self.shared.gate.release();
    }

    /// Uses these members from now on. Watches at members that are not among them go on at others, other streams there end with
    /// `Unavailable`, and calls that are on their way there may end in good order, for at most so long.
    ///
    /// # Errors
    /// Where there are none or a URL cannot be used: then nothing has changed. Where calls have not ended in time: then it has.
    pub async fn set_endpoints(&self, endpoints: &[Endpoint], deadline: Duration) -> Result<(), Error> {
        let left = self.shared.members.set(endpoints)?;
        match members::retire(&left, Instant::now() + deadline).await {
            0 => Ok(()),
            calls => Err(Error::StillBusy { calls, waited: deadline }),
        }
    }

    /// Makes further connections to members like this. Those that are there stay.
    ///
    /// # Errors
    /// Where a certificate or a key cannot be used; then nothing has changed.
    pub fn set_access(&self, access: &link::Options) -> Result<(), Error> {
        self.shared.dialer.set(access)
    }

    /// Whether etcd has authentication enabled; `None` before a member has told.
    #[must_use]
    pub fn auth_enabled(&self) -> Option<bool> {
        self.shared.auth.enabled()
    }

    /// How the gateway stands at this moment.
    #[must_use]
    pub fn status(&self) -> Status {
        let gate = self.shared.gate.standing();
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        Status {
            endpoints: self.shared.members.status(),
            held_for: gate.held_until.map(left),
            writes: gate.passing,
            waiting: gate.waiting,
            auth_enabled: self.auth_enabled(),
        }
    }

    /// Ends it: no new connections, an end of streams, and fifteen seconds for calls that are being answered.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.task.wait().await;
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
