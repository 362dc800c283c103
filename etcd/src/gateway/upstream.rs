//! Connections to members. Each client has its own, so that one that does not read what it asked for stops nobody else.

use std::{collections::HashMap, io, sync::Arc, time::Duration};

use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::{Instant, timeout},
};

use super::{CONNECTION_WINDOW, SEND_BUFFER, STREAM_WINDOW, body::Outgoing, members::Member, tls::Dialer};

/// How long a connection may take to be made.
const DIAL: Duration = Duration::from_secs(3);
/// A member that is silent while it has calls to answer is asked whether it is there. Not more often: etcd closes connections of
/// clients that ask every five seconds.
const PING: Duration = Duration::from_secs(10);
/// How long it has for that.
const PONG: Duration = Duration::from_secs(5);

/// Sends calls to a member.
pub(super) type Sender = SendRequest<Outgoing>;

/// The connections of one client.
pub(super) struct Pool {
    dialer: Arc<Dialer>,
    open: Mutex<HashMap<String, Slot>>,
}

/// The connection to one member. Only one is made at a time.
#[derive(Clone)]
struct Slot {
    member: Arc<Member>,
    sender: Arc<tokio::sync::Mutex<Option<Sender>>>,
}

impl Pool {
    pub(super) fn new(dialer: Arc<Dialer>) -> Self {
        Self { dialer, open: Mutex::default() }
    }

    /// The connection to this member, new or not.
    ///
    /// # Errors
    /// Where none can be made, or none could be made just now.
    pub(super) async fn to(&self, member: &Arc<Member>) -> io::Result<Sender> {
        let slot = self.slot(member);
        let mut sender = slot.sender.lock().await;
        if let Some(sender) = sender.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        member.backoff.begin(Instant::now())?;
        let silent = |_| io::Error::new(io::ErrorKind::TimedOut, "no connection within 3 seconds");
        let dialled = timeout(DIAL, self.dial(member)).await.map_err(silent).flatten();
        let fresh = dialled.inspect_err(|error| member.backoff.failed(Instant::now(), error))?;
        member.backoff.connected();
        *sender = Some(fresh.clone());
        Ok(fresh)
    }

    fn slot(&self, member: &Arc<Member>) -> Slot {
        let mut open = self.open.lock();
        open.retain(|_, slot| !slot.member.gone.is_cancelled());
        let fresh = || Slot { member: member.clone(), sender: Arc::default() };
        open.entry(member.url.clone()).or_insert_with(fresh).clone()
    }

    async fn dial(&self, member: &Member) -> io::Result<Sender> {
        let stream = TcpStream::connect((member.host.as_str(), member.port)).await?;
        stream.set_nodelay(true)?;
        if member.tls {
            return handshake(self.dialer.shake_hands(stream, &member.host).await?).await;
        }
        handshake(stream).await
    }
}

async fn handshake(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> io::Result<Sender> {
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PONG)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    // It ends when its client is gone and the last call has ended, or with the member.
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to etcd ended");
        }
    });
    Ok(sender)
}
