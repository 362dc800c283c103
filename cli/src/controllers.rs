//! `repot controllers`: everything that reconciles.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::{Args, builder::NonEmptyStringValueParser};
use repot_apiserver::delegation;
use repot_controllers::{
    election::Election,
    etcd,
    local_stores::LocalStores,
    namespaces::Namespaces,
    term::{LeaseDeadline, fenced_client},
    workflow::{self, Context},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_util::sync::CancellationToken;

use crate::run;

const LEASE: &str = "repot-controllers";
/// How long a client of the health endpoint may take.
const PATIENCE: Duration = Duration::from_secs(5);
const REQUEST_BYTES: u64 = 8 << 10;

/// Run the controllers of a seed: the operator, which makes members of Etcds, and the workflows EtcdBackup, EtcdRestore and EtcdMigration.
///
/// Several may run; with --leader-elect the one that holds the Lease `repot-controllers` acts. Whoever cannot renew it for ten seconds
/// writes nothing any more and ends; whoever is asked to end gives it back first, so that the next one need not wait. /healthz
/// answers as long as the process lives, /readyz once it could ask kube-apiserver. deploy/rbac/controllers.yaml has the permissions.
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
    /// Address of /healthz and /readyz
    #[arg(long, default_value = "0.0.0.0:8081", value_name = "ADDRESS")]
    health_address: SocketAddr,
}

/// Runs until a signal, or until the Lease is lost.
pub async fn run(flags: Flags) -> anyhow::Result<()> {
    let local_stores = LocalStores::below(flags.local_store_path)?;
    let stop = run::stop_on_signals()?;
    let client = delegation::client(flags.kubeconfig.as_deref()).await?;
    let ready = Arc::new(AtomicBool::new(false));
    let listener = TcpListener::bind(flags.health_address).await;
    let listener = listener.with_context(|| format!("failed to listen on {}", flags.health_address))?;
    let address = listener.local_addr().context("the listener has no address")?;
    tokio::spawn(answer(listener, ready.clone()));

    let word =
        std::fs::read_to_string("/proc/sys/kernel/random/uuid").context("failed to make an identity")?;
    let own = flags.identity.unwrap_or_else(|| "repot-controllers".to_owned());
    // A Pod that is started again under its name is another holder.
    let identity = format!("{own}_{}", word.trim());
    let election = Election::new(client.clone(), &flags.namespace, LEASE, identity.clone());
    let version = client.apiserver_version().await.context("failed to ask kube-apiserver for its version")?;
    tracing::info!(identity, kubernetes = version.git_version, %address, "controllers are up");
    ready.store(true, Ordering::Relaxed);
    let term = match flags.leader_elect {
        false => Some(LeaseDeadline::endless()),
        true => stop.run_until_cancelled(election.lead()).await,
    };
    let Some(term) = term else { return Ok(()) };
    tracing::info!(identity, "acting");
    let client = fenced_client(term.clone(), client);
    let namespaces = Namespaces::new(flags.namespaces);
    let operator = etcd::Options {
        image: flags.image.clone(),
        namespaces: namespaces.clone(),
        local_stores: local_stores.clone(),
        term: term.clone(),
    };
    let operator = etcd::run(client.clone(), operator, stop.clone());
    let context = Context::new(client, flags.image, own, local_stores, term.clone());
    let workflows = workflow::run(context, &namespaces, stop.clone());
    let work = async { tokio::join!(operator, workflows) };
    if !flags.leader_elect {
        work.await;
        return Ok(());
    }
    // The Lease is given back only after the last pass is over.
    let over = CancellationToken::new();
    let kept = election.keep(&term, &over);
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

/// Answers probes, one request a connection.
async fn answer(listener: TcpListener, ready: Arc<AtomicBool>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let ready = ready.clone();
                tokio::spawn(async move {
                    // Whoever asks may go away at any time.
                    let _ = tokio::time::timeout(PATIENCE, answer_one(stream, &ready)).await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a probe could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn answer_one(mut stream: TcpStream, ready: &AtomicBool) -> std::io::Result<()> {
    let (reader, mut writer) = stream.split();
    let mut request = Vec::new();
    let mut reader = reader.take(REQUEST_BYTES);
    while !request.windows(4).any(|window| window == b"\r\n\r\n") {
        if reader.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let status = match request.split(|byte| *byte == b' ').nth(1) {
        Some(b"/healthz" | b"/livez") => "200 OK",
        Some(b"/readyz") if ready.load(Ordering::Relaxed) => "200 OK",
        Some(b"/readyz") => "503 Service Unavailable",
        _ => "404 Not Found",
    };
    let text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{status}\n",
        status.len() + 1
    );
    writer.write_all(text.as_bytes()).await?;
    writer.shutdown().await
}
