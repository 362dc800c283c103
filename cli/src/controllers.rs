//! `repot controllers`: everything that reconciles.

use std::{net::SocketAddr, path::PathBuf};

use anyhow::{Context as _, bail};
use clap::{Args, builder::NonEmptyStringValueParser};
use repot_apiserver::delegation;
use repot_controllers::{
    election::Election,
    etcd,
    local_stores::LocalStores,
    metrics::Metrics,
    namespaces::Namespaces,
    server::{self, Readiness},
    term::{LeaseDeadline, fenced_client},
    workflow::{self, Context},
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::run;

const LEASE: &str = "repot-controllers";

/// Run the controllers of a seed: the operator, which makes members of Etcds, and the workflows EtcdBackup, EtcdRestore and EtcdMigration.
///
/// Several may run; with --leader-elect the one that holds the Lease `repot-controllers` acts. Whoever cannot renew it for ten seconds
/// writes nothing any more and ends; whoever is asked to end gives it back first, so that the next one need not wait. /healthz and
/// /livez answer as long as the process lives, /readyz once it could ask kube-apiserver, /metrics to Prometheus.
/// deploy/rbac/controllers.yaml has the permissions.
/// With --namespaces they act in these namespaces only, and roles there are enough.
///
///     repot controllers --image registry.example.com/repot:1 --leader-elect
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Flags {
    /// kubeconfig of the seed [default: that of the Pod]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Image of the Pods and Jobs that are made: with repot, etcd, etcdctl and etcdutl
    #[arg(long, value_name = "IMAGE")]
    image: String,
    /// Directory of nodes below which stores with the provider Local lie; such stores are refused without it
    #[arg(long, value_name = "DIR")]
    local_store_path: Option<PathBuf>,
    /// Namespace of the Lease
    #[arg(long, env = "POD_NAMESPACE", default_value = "repot-system", value_name = "NAMESPACE")]
    namespace: String,
    /// Namespaces to act in, separated by commas [default: all]
    ///
    /// Objects of other namespaces are not read, so roles in these namespaces are enough: deploy/rbac/namespaced has them.
    #[arg(long, value_delimiter = ',', value_name = "NAMESPACES", value_parser = NonEmptyStringValueParser::new())]
    namespaces: Vec<String>,
    /// Act only while holding the Lease
    #[arg(long)]
    leader_elect: bool,
    /// Who this is, in the Lease and in events [default: name of the host and a random word]
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    identity: Option<String>,
    /// Address of /healthz, /livez, /readyz and /metrics, without TLS
    #[arg(long, default_value = "0.0.0.0:8081", value_name = "ADDRESS")]
    health_address: SocketAddr,
}

/// Runs until a signal, or until the Lease is lost.
pub async fn run(flags: Flags) -> anyhow::Result<()> {
    let stop = run::stop_on_signals()?;
    let metrics = Metrics::new().context("failed to create metrics")?;
    let readiness = Readiness::not_ready("kube-apiserver has not answered yet");
    let listener = TcpListener::bind(flags.health_address).await;
    let listener = listener.with_context(|| format!("failed to listen on {}", flags.health_address))?;
    let address = listener.local_addr().context("the listener has no address")?;
    tracing::info!(%address, "serving health and metrics");
    let end = CancellationToken::new();
    let served = server::serve(listener, readiness.clone(), metrics.clone(), end.clone());
    let served = tokio::spawn(served);
    // Whoever has lost the Lease ends at once, without waiting for clients.
    control(flags, readiness, metrics, stop).await?;
    end.cancel();
    served.await.context("the server of health and metrics failed")
}

/// Runs the controllers, once this process may act.
async fn control(
    flags: Flags,
    readiness: Readiness,
    metrics: Metrics,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let local_stores = LocalStores::below(flags.local_store_path)?;
    let client = delegation::client(flags.kubeconfig.as_deref()).await?;
    let random = std::fs::read_to_string("/proc/sys/kernel/random/uuid");
    let random = random.context("failed to make an identity")?;
    let own = flags.identity.unwrap_or_else(|| "repot-controllers".to_owned());
    // A Pod that is started again under its name is another holder.
    let identity = format!("{own}_{}", random.trim());
    let version = client.apiserver_version().await.context("failed to ask kube-apiserver for its version")?;
    tracing::info!(identity, kubernetes = version.git_version, "controllers are up");
    readiness.set_ready();
    tokio::spawn(set_not_ready_at(stop.clone(), readiness));
    let election = flags.leader_elect.then(|| {
        let leader = metrics.leader(LEASE);
        Election::new(client.clone(), &flags.namespace, LEASE, identity.clone(), leader)
    });
    let term = match &election {
        None => LeaseDeadline::endless(),
        Some(election) => match stop.run_until_cancelled(election.lead()).await {
            Some(term) => term,
            None => return Ok(()),
        },
    };
    tracing::info!(identity, "acting");
    let client = fenced_client(term.clone(), client);
    let namespaces = Namespaces::new(flags.namespaces);
    let operator = etcd::Options {
        image: flags.image.clone(),
        namespaces: namespaces.clone(),
        local_stores: local_stores.clone(),
        term: term.clone(),
        metrics: metrics.clone(),
    };
    let operator = etcd::run(client.clone(), operator, stop.clone());
    let context = Context::new(client, flags.image, own, local_stores, term.clone(), metrics);
    let workflows = workflow::run(context, &namespaces, stop.clone());
    let work = async { tokio::join!(operator, workflows) };
    match election {
        None => drop(work.await),
        Some(election) => while_leading(&election, &term, work).await?,
    }
    Ok(())
}

async fn set_not_ready_at(stop: CancellationToken, readiness: Readiness) {
    stop.cancelled().await;
    readiness.set_not_ready("stopping");
}

/// Works for as long as the Lease is kept, and gives it back after the last reconcile has ended.
async fn while_leading<T>(
    election: &Election,
    term: &LeaseDeadline,
    work: impl Future<Output = T>,
) -> anyhow::Result<()> {
    let over = CancellationToken::new();
    let kept = election.keep(term, &over);
    tokio::pin!(work, kept);
    tokio::select! {
        _ = &mut work => {
            over.cancel();
            kept.await;
            Ok(())
        }
        _ = &mut kept => bail!("the Lease {LEASE} is lost; another process may act now"),
    }
}
