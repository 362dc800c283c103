//! What all roles share: a runtime, signals, the ready line.

use std::{io::Write, net::SocketAddr, sync::Arc};

use anyhow::Context;
use repot_apiserver::{
    admission::Admission,
    delegation::GroupConflict,
    listen::{self, Shutdown},
    orphans,
    server::{Parts, Server},
    tls::{self, Serving},
};
use repot_storage::Store;
use tokio::{net::TcpListener, sync::watch::Receiver};
use tokio_util::sync::CancellationToken;

/// Tasks that a thread runs before it looks again which connections have something to read. Tokio's default, 61, is milliseconds
/// while large bodies come in.
const EVENT_INTERVAL: u32 = 8;

/// Runs a role to its end.
pub fn block_on<T>(role: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .event_interval(EVENT_INTERVAL)
        .build()
        .context("failed to start the runtime")?;
    runtime.block_on(role)
}

/// Cancelled by SIGINT and SIGTERM. A second signal ends the process at once.
pub fn stop_on_signals() -> anyhow::Result<CancellationToken> {
    use tokio::signal::unix::{SignalKind, signal};
    let stop = CancellationToken::new();
    let mut interrupt = signal(SignalKind::interrupt()).context("failed to listen for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?;
    let token = stop.clone();
    tokio::spawn(async move {
        loop {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
            if token.is_cancelled() {
                tracing::warn!("second signal, ending at once");
                std::process::exit(130);
            }
            token.cancel();
        }
    });
    Ok(stop)
}

/// An API server that is about to serve.
pub struct Api {
    /// Listener whose address is bound already.
    pub listener: TcpListener,
    /// Certificates and protocol of the TLS side.
    pub tls: tls::Options,
    /// What it is made of.
    pub parts: Parts,
    /// How the server ends its work when it is to stop.
    pub shutdown: Shutdown,
    /// Host to name in the ready line.
    pub host: String,
}

/// Serves until `stop`, then closes the store.
pub async fn serve(api: Api, stop: CancellationToken) -> anyhow::Result<()> {
    let address: SocketAddr = api.listener.local_addr().context("the listener has no address")?;
    let store: Store = api.parts.store.clone();
    let trust = api.parts.trust_loaded.clone();
    let admission = api.parts.admission.clone();
    let group_conflict = api.parts.group_conflict.clone();
    let serving = Arc::new(Serving::load(api.tls).context("failed to load the serving certificate")?);
    let server = Arc::new(Server::new(api.parts)?);
    let probe = tokio::spawn(server.clone().watch_storage(stop.clone()));
    let count = tokio::spawn(server.clone().count_objects(stop.clone()));
    let orphans = tokio::spawn(orphans::watch(server.clone(), stop.clone()));
    let announce =
        tokio::spawn(announce(api.host, address.port(), (trust, group_conflict, admission), stop.clone()));
    listen::serve(api.listener, server.clone(), serving, api.shutdown, stop).await;
    let _ = tokio::join!(probe, count, orphans, announce);
    server.close_audit().await;
    store.close().await;
    Ok(())
}

/// One line on stdout when requests are answered: scripts wait for it.
async fn announce(
    host: String,
    port: u16,
    (trust, group_conflict, admission): (Option<Receiver<bool>>, Option<GroupConflict>, Admission),
    stop: CancellationToken,
) {
    if let Some(mut trust) = trust
        && !matches!(stop.run_until_cancelled(trust.wait_for(|loaded| *loaded)).await, Some(Ok(_)))
    {
        return;
    }
    if let Some(mut why) = group_conflict
        && !matches!(stop.run_until_cancelled(why.wait_for(Option::is_none)).await, Some(Ok(_)))
    {
        return;
    }
    if stop.run_until_cancelled(admission.synced()).await.is_none() {
        return;
    }
    let mut out = std::io::stdout();
    // A closed stdout is no reason not to serve.
    let _ = writeln!(out, "ready https://{host}:{port}").and_then(|()| out.flush());
}
