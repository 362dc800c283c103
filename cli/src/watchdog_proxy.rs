//! `repot watchdog-proxy`: refuses writes of an extension controller for Shoots that its seed does not own.

use std::{io::Write, net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::{Context, ensure};
use clap::Args;
use repot_apiserver::delegation;
use repot_controllers::{
    metrics::Metrics,
    server::{self, Readiness},
    watchdog::{Options, Timing, Watchdog},
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{run, serving::duration};

/// Front the kube-apiserver of a seed for one extension controller, and refuse its writes for Shoots that the seed does not own.
///
/// A sidecar of the controller. It writes a kubeconfig into --dir, which the controller uses instead of its own, and forwards with the
/// credentials of --kubeconfig, or of the Pod. Reads and watches pass. A write to a Namespace with an Etcd that has spec.backup.ownerCheck
/// passes only while the owner record in DNS names the owner ID of that Etcd. Otherwise it is answered with 503 and who the owner is.
/// /healthz, /livez, /readyz and /metrics are on --health-address. It needs get, list and watch of etcds.druid.gardener.cloud.
///
///     repot watchdog-proxy --dir /run/watchdog --extension-kinds infrastructures,workers
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Flags {
    /// kubeconfig of the seed, with the credentials of the controller [default: that of the Pod]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Directory for the kubeconfig of the controller and for the keys of the proxy; it has to survive restarts of the container
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Address on loopback where the controller is served
    #[arg(long, default_value = "127.0.0.1:7444", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Extension kinds of the controller, by plural names separated by commas: while all its objects in a Namespace are being migrated,
    /// its writes there pass without ownership
    #[arg(long, value_delimiter = ',', value_name = "KINDS", value_parser = kind)]
    extension_kinds: Vec<String>,
    /// A write passes without a query while the last answer of DNS is younger than this
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = seconds)]
    check_interval: Duration,
    /// Longest duration of one query
    #[arg(long, default_value = "5s", value_name = "DURATION", value_parser = seconds)]
    check_timeout: Duration,
    /// While DNS does not answer, writes pass until the last confirmation is so old
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = seconds)]
    max_age: Duration,
    /// Address of /healthz, /livez, /readyz and /metrics, without TLS
    #[arg(long, default_value = "0.0.0.0:8082", value_name = "ADDRESS")]
    health_address: SocketAddr,
}

/// Runs until a signal.
pub async fn run(flags: Flags) -> anyhow::Result<()> {
    let timing =
        Timing { interval: flags.check_interval, timeout: flags.check_timeout, max_age: flags.max_age };
    ensure!(
        timing.max_age >= timing.interval + timing.timeout,
        "--max-age must be at least --check-interval and --check-timeout together: otherwise writes fail between two queries"
    );
    let stop = run::stop_on_signals()?;
    let metrics = Metrics::new().context("failed to create metrics")?;
    let readiness = Readiness::not_ready("the Etcds of the seed are not listed yet");
    let health = bind(flags.health_address).await?;
    let end = CancellationToken::new();
    let health = tokio::spawn(server::serve(health, readiness.clone(), metrics.clone(), end.clone()));
    let client = delegation::client_without_retries(flags.kubeconfig.as_deref()).await?;
    let options = Options { dir: flags.dir, kinds: flags.extension_kinds, timing };
    let watchdog = Watchdog::new(bind(flags.listen).await?, client, options, &metrics, &stop)?;
    let address = watchdog.address();
    tracing::info!(%address, kubeconfig = %watchdog.kubeconfig().display(), "serving the controller");
    let ready = move || {
        let mut out = std::io::stdout();
        // A closed stdout is no reason not to serve.
        let _ = writeln!(out, "ready https://{address}").and_then(|()| out.flush());
    };
    watchdog.run(readiness, ready, stop).await;
    end.cancel();
    health.await.context("the server of health and metrics failed")
}

async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("failed to listen on {address}"))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    let is_whole =
        time.subsec_nanos() == 0 && time >= Duration::from_secs(1) && time <= Duration::from_secs(3600);
    is_whole.then_some(time).ok_or_else(|| "must be whole seconds, from 1s to 1h".to_owned())
}

fn kind(text: &str) -> Result<String, String> {
    let is_plural = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase());
    is_plural.then(|| text.to_owned()).ok_or_else(|| "must be a plural name such as workers".to_owned())
}
