//! `repot webhook`: the admission webhooks.

use std::{
    io::Write,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use clap::{Args, ValueEnum};
use repot_apiserver::delegation;
use repot_certs::tls::{Serving, ServingFiles};
use repot_rules::{catalogue, facts::Settings, watch::HomeCluster};
use repot_webhook::{
    clients::Authorities,
    facts::{Cluster, Directory, Serve, Source, World},
    listen::{self, Shutdown},
    manifests::{self, Reach},
    server::{Limits, Server},
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    run,
    serving::duration,
    traces::{Traces, TracingFlags},
};

const POLL: Duration = Duration::from_millis(50);
/// Users that are controllers unless a flag says otherwise.
const CONTROLLERS: &str =
    "system:serviceaccount:garden:*,system:serviceaccount:repot-system:*,system:serviceaccount:repot-seeds:*";

/// Serve admission webhooks: a wrong migration is refused before it starts, with every reason at once.
///
/// Facts come from the cluster of the kubeconfig (in a Pod: its own), or from a directory of manifests. Register the webhooks by
/// what --print-manifests prints; --print-rules prints what they say.
#[derive(Args)]
pub struct Flags {
    /// Address to listen on
    #[arg(long, default_value = "0.0.0.0", value_name = "IP")]
    bind_address: IpAddr,
    /// Port to listen on; 0 takes any free one
    #[arg(long, default_value_t = 9443, value_name = "N")]
    secure_port: u16,
    /// Serving certificate chain, PEM; followed while running
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file", required_unless_present_any = ["print_manifests", "print_rules"])]
    tls_cert_file: Option<PathBuf>,
    /// Key of the serving certificate, PEM
    #[arg(long, requires = "tls_cert_file", value_name = "FILE")]
    tls_private_key_file: Option<PathBuf>,
    /// Authorities of client certificates, PEM: reviews are then taken only from clients with one [default: from anybody]
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,

    #[command(flatten)]
    tracing: TracingFlags,
    #[command(flatten)]
    facts: FactsFlags,
    /// Which kinds the cluster has
    #[arg(long, value_enum, default_value_t = Where::Garden, value_name = "WHERE")]
    serve: Where,

    /// The largest review, in bytes
    #[arg(long, default_value_t = Limits::default().review_bytes, value_name = "N")]
    max_review_bytes: usize,
    /// All reviews that are held in memory at once, in bytes; further ones wait
    #[arg(long, default_value_t = Limits::default().held_bytes, value_name = "N")]
    max_held_bytes: usize,
    /// How long to serve on after a signal to stop, so that nobody routes here any more
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = duration)]
    shutdown_delay_duration: Duration,

    /// Print the webhook configurations of --serve as YAML, and end
    #[arg(long)]
    print_manifests: bool,
    /// With --print-manifests: where API servers reach the webhooks, in place of the Service; gardener-apiserver needs it where
    /// names of Services do not resolve for it
    #[arg(long, value_name = "URL", requires = "print_manifests")]
    webhook_url: Option<String>,
    /// Print the catalogue of rules as Markdown, and end
    #[arg(long, conflicts_with = "print_manifests")]
    print_rules: bool,
}

impl Flags {
    /// Flags that say what is traced.
    pub fn tracing(&self) -> &TracingFlags {
        &self.tracing
    }
}

/// Where facts come from, and what an operator decided.
#[derive(Args)]
pub struct FactsFlags {
    /// Directory of YAML manifests with the facts, instead of a cluster
    #[arg(long, value_name = "DIR", conflicts_with = "kubeconfig")]
    pub facts: Option<PathBuf>,
    /// kubeconfig of the cluster with the facts
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The greatest distance of a live migration where the region ConfigMap has no threshold [default: such are refused]
    #[arg(long, value_name = "N")]
    default_distance_threshold: Option<u64>,
    /// Users that are controllers, beside gardenlets and those of Kubernetes; `*` at the end stands for all that begin so
    #[arg(
        long,
        value_delimiter = ',',
        default_value = CONTROLLERS,
        value_name = "USERS"
    )]
    controller_users: Vec<String>,
    /// Groups whose members are controllers
    #[arg(long, value_delimiter = ',', value_name = "GROUPS")]
    controller_groups: Vec<String>,
    /// Groups of administrators: what only controllers should do, they may do, with a warning
    #[arg(long, value_delimiter = ',', default_value = repot_api::names::MASTERS_GROUP, value_name = "GROUPS")]
    operator_groups: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Where {
    Garden,
    Seed,
    All,
}

impl From<Where> for Serve {
    fn from(place: Where) -> Self {
        match place {
            Where::Garden => Self::Garden,
            Where::Seed => Self::Seed,
            Where::All => Self::All,
        }
    }
}

impl FactsFlags {
    /// What rules are told.
    pub async fn world(&self, serve: Serve, stop: &CancellationToken) -> anyhow::Result<World> {
        let source = source(self.facts.as_deref(), self.kubeconfig.as_deref(), serve, stop).await?;
        let settings = Settings {
            default_threshold: self.default_distance_threshold,
            controllers: self.controller_users.clone(),
            controller_groups: self.controller_groups.clone(),
            operator_groups: self.operator_groups.clone(),
        };
        Ok(World { source, settings: Arc::new(settings) })
    }
}

/// Facts from a directory; without one from the cluster of a kubeconfig; without that from the cluster around the Pod.
pub async fn source(
    facts: Option<&Path>,
    kubeconfig: Option<&Path>,
    serve: Serve,
    stop: &CancellationToken,
) -> anyhow::Result<Source> {
    match facts {
        Some(dir) => Ok(Source::Directory(Arc::new(Directory::read(dir).context("--facts")?))),
        None => {
            let client = delegation::client(kubeconfig).await?;
            Ok(Source::Cluster(Cluster::follow(client, serve, stop)))
        }
    }
}

/// What is decided where no flag decides it.
pub fn default_settings() -> Settings {
    Settings {
        controllers: CONTROLLERS.split(',').map(str::to_owned).collect(),
        operator_groups: vec![repot_api::names::MASTERS_GROUP.to_owned()],
        ..Settings::default()
    }
}

/// Runs until a signal.
pub async fn run(flags: Flags, traces: Traces) -> anyhow::Result<()> {
    if flags.print_manifests || flags.print_rules {
        return print(&flags);
    }
    let (Some(certificate), Some(key)) = (flags.tls_cert_file.clone(), flags.tls_private_key_file.clone())
    else {
        anyhow::bail!("--tls-cert-file and --tls-private-key-file are missing");
    };
    let stop = run::stop_on_signals()?;
    let address = SocketAddr::new(flags.bind_address, flags.secure_port);
    let listener =
        TcpListener::bind(address).await.with_context(|| format!("failed to listen on {address}"))?;
    let port = listener.local_addr().context("the listener has no address")?.port();
    let serving = Serving::load(ServingFiles { certificate, key }.into())
        .context("failed to load the serving certificate")?;
    let authorities =
        flags.client_ca_file.clone().map(Authorities::load).transpose().context("--client-ca-file")?;
    // What is followed is followed to the end: reviews are answered for a while after the signal.
    let end = CancellationToken::new();
    let world = flags.facts.world(flags.serve.into(), &end).await?;
    let limits = Limits { review_bytes: flags.max_review_bytes, held_bytes: flags.max_held_bytes };
    let traces = traces.start()?;
    let server = Server::new(world, authorities.map(Arc::new), limits);
    let server = server.context("failed to register metrics")?.with_sampler(traces.sampler());
    let server = Arc::new(server);
    let host =
        if flags.bind_address.is_unspecified() { "127.0.0.1".into() } else { flags.bind_address.to_string() };
    let announce = tokio::spawn(announce(server.clone(), format!("https://{host}:{port}"), stop.clone()));
    let shutdown = Shutdown { delay: flags.shutdown_delay_duration, drain: Duration::from_secs(30) };
    listen::serve(listener, server, Arc::new(serving), shutdown, stop).await;
    let _ = announce.await;
    end.cancel();
    traces.end().await;
    Ok(())
}

fn print(flags: &Flags) -> anyhow::Result<()> {
    let text = if flags.print_rules {
        catalogue::render()
    } else {
        let places: &[HomeCluster] = match flags.serve {
            Where::Garden => &[HomeCluster::Garden],
            Where::Seed => &[HomeCluster::Seed],
            Where::All => &[HomeCluster::Garden, HomeCluster::Seed],
        };
        let reach = Reach { url: flags.webhook_url.clone(), ..Reach::default() };
        let objects: Vec<_> = places.iter().flat_map(|place| manifests::render(*place, &reach)).collect();
        manifests::to_yaml(&objects).context("failed to print the manifests")?
    };
    std::io::stdout().write_all(text.as_bytes()).context("failed to write to standard output")
}

/// One line on stdout when reviews are answered: scripts wait for it.
async fn announce(server: Arc<Server>, url: String, stop: CancellationToken) {
    while !server.missing().is_empty() {
        if stop.run_until_cancelled(tokio::time::sleep(POLL)).await.is_none() {
            return;
        }
    }
    let mut out = std::io::stdout();
    // A closed stdout is no reason not to serve.
    let _ = writeln!(out, "ready {url}").and_then(|()| out.flush());
}
