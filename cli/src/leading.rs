//! One of several processes acts: what roles that hold a Lease have in common.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, bail};
use kube::Client;
use repot_controllers::{
    election::Election,
    metrics::Metrics,
    server::{self, Readiness},
    term::LeaseDeadline,
};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

/// How long work may go on after a signal: shorter than the 30 s after which the kubelet kills a Pod.
const STOP_GRACE: Duration = Duration::from_secs(20);

/// The server of health and metrics of a process.
pub struct Health {
    end: CancellationToken,
    served: JoinHandle<()>,
}

impl Health {
    /// Serves from now on.
    pub async fn serve(address: SocketAddr, readiness: Readiness, metrics: Metrics) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(address).await;
        let listener = listener.with_context(|| format!("failed to listen on {address}"))?;
        let address = listener.local_addr().context("the listener has no address")?;
        tracing::info!(%address, "serving health and metrics");
        let end = CancellationToken::new();
        let served = tokio::spawn(server::serve(listener, readiness, metrics, end.clone()));
        Ok(Self { end, served })
    }

    /// Ends it, after the requests that are being answered.
    pub async fn end(self) -> anyhow::Result<()> {
        self.end.cancel();
        self.served.await.context("the server of health and metrics failed")
    }
}

/// Who a process is in a Lease: a Pod that is started again under its name is another holder.
pub fn identity(own: &str) -> anyhow::Result<String> {
    let random = std::fs::read_to_string("/proc/sys/kernel/random/uuid");
    let random = random.context("failed to make an identity")?;
    Ok(format!("{own}_{}", random.trim()))
}

/// The election for a Lease, where one is asked for.
pub fn election(
    wanted: bool,
    client: &Client,
    namespace: &str,
    lease: &'static str,
    identity: &str,
    metrics: &Metrics,
) -> Option<Election> {
    wanted.then(|| {
        let leader = metrics.leader(lease);
        Election::new(client.clone(), namespace, lease, identity.to_owned(), leader)
    })
}

/// Waits until this process may act; `None` where it is to stop before.
pub async fn lead(election: Option<&Election>, stop: &CancellationToken) -> Option<LeaseDeadline> {
    match election {
        None => Some(LeaseDeadline::endless()),
        Some(election) => stop.run_until_cancelled(election.lead()).await,
    }
}

/// Not ready from `stop` on.
pub async fn set_not_ready_at(stop: CancellationToken, readiness: Readiness) {
    stop.cancelled().await;
    readiness.set_not_ready("stopping");
}

/// Works to its end, which comes after `stop`, for as long as the Lease is kept; gives the Lease back afterwards.
///
/// An API server that does not answer must not hold the process until it is killed. The Lease of a process that has given work up
/// expires: what it has requested may still be carried out.
pub async fn while_leading(
    election: Option<&Election>,
    term: &LeaseDeadline,
    stop: &CancellationToken,
    work: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let work = within_grace(work, stop);
    let Some(election) = election else { return work.await };
    let over = CancellationToken::new();
    let kept = election.keep(term, &over);
    tokio::pin!(work, kept);
    tokio::select! {
        ended = &mut work => {
            ended?;
            over.cancel();
            kept.await;
            Ok(())
        }
        _ = &mut kept => bail!("the Lease {} is lost; another process may act now", election.name),
    }
}

async fn within_grace(work: impl Future<Output = ()>, stop: &CancellationToken) -> anyhow::Result<()> {
    let late = async {
        stop.cancelled().await;
        tokio::time::sleep(STOP_GRACE).await;
    };
    tokio::select! {
        () = work => Ok(()),
        () = late => bail!("reconciles did not end within {} s of the signal, and are given up", STOP_GRACE.as_secs()),
    }
}
