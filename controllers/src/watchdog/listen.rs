//! Connections of the controller, on loopback and with TLS.

use std::{sync::Arc, time::Duration};

use repot_certs::{
    clients::Peer,
    connections::{Connections, Counted, Limits},
    http::{self, ACCEPT_PAUSE, HANDSHAKE_DEADLINE, Protocol},
    unread,
};
use tokio::{
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    files::Tls,
    proxy::{Proxy, unauthorized},
};

/// All clients come from one address, so one limit is enough. Clients in Go end idle connections after 90 seconds.
const LIMITS: Limits =
    Limits { all: 1024, of_address: 1024, idle: Duration::from_secs(120), failed: Duration::from_secs(32) };
/// How long requests may take that are being answered when the process stops. Watches end at once.
const DRAIN: Duration = Duration::from_secs(20);

/// Serves on this listener until `stop`.
pub async fn serve(listener: TcpListener, tls: Arc<Tls>, proxy: Arc<Proxy>, stop: CancellationToken) {
    let (tasks, connections) = (TaskTracker::new(), Connections::new(LIMITS));
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, address)) => {
                let counted = connections.count(address.ip());
                tasks.spawn(connect(stream, counted, tls.clone(), proxy.clone(), stop.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    tasks.close();
    if timeout(DRAIN, tasks.wait()).await.is_err() {
        tracing::warn!("requests are still being answered after {DRAIN:?}, ending");
    }
}

async fn connect(
    stream: TcpStream,
    counted: Counted,
    tls: Arc<Tls>,
    proxy: Arc<Proxy>,
    stop: CancellationToken,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "failed to set TCP_NODELAY");
    }
    let stream = match timeout(HANDSHAKE_DEADLINE, tls.serving.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "handshake failed"),
        Err(_) => return tracing::debug!("handshake took too long"),
    };
    let session = stream.get_ref().1;
    let chain = session.peer_certificates().unwrap_or_default();
    let peer = Peer::new(chain.iter().map(|der| der.clone().into_owned()).collect());
    let protocol = Protocol::of_alpn(session.alpn_protocol());
    let is_trusted = peer.is_trusted(&tls.authorities);
    if !is_trusted {
        tracing::warn!("a client without the certificate of the kubeconfig is turned away");
    }
    http::serve(stream, protocol, &counted, unread::Limits::default(), &stop, |request, answering| {
        let proxy = proxy.clone();
        async move { if is_trusted { proxy.answer(request, answering).await } else { unauthorized() } }
    })
    .await;
}
