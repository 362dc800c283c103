//! `repot dev`: everything in one process, for a laptop.

use std::{net::Ipv4Addr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context;
use clap::Args;
use repot_apiserver::{
    admission::Admission,
    audit::Auditor,
    delegation::Namespaces,
    filters::{authentication::Authenticator, authorization::Authorizer, client_certificate::Roots},
    listen::{self, Shutdown},
    registry,
    server::{Limits, Parts},
    tls::{Serving, ServingFiles},
};
use repot_certs::{Authority, write_private};
use repot_storage::{
    Keyring, Store, StoreOptions,
    backend::embedded::{Embedded, Options},
    keyring::Follow,
};
use repot_telemetry::RequestSampler;
use repot_webhook::{
    facts::{Serve, World},
    listen as webhook_listen, server as webhook_server,
};
use time::OffsetDateTime;
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{kubeconfig, limits::LimitFlags, run, webhook};

/// How long reviews that are being answered have.
const WEBHOOKS_DRAIN: Duration = Duration::from_secs(10);

/// Run everything in one process on 127.0.0.1, with an embedded store.
///
/// Makes its own certificates and encryption key under the data directory, writes a kubeconfig for an administrator, and
/// prints `ready https://127.0.0.1:PORT` when it serves. Every namespace counts as existing. Try:
///
///     repot dev &
///     kubectl --kubeconfig repot-data/kubeconfig get shootstates -A
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Flags {
    /// Where objects, certificates and the encryption key rest; made where it is missing
    #[arg(long, default_value = "repot-data", value_name = "DIR")]
    data_dir: PathBuf,
    /// Port on 127.0.0.1; 0 takes any free one
    #[arg(long, default_value_t = 7443, value_name = "N")]
    port: u16,
    /// Where to write the administrator's kubeconfig [default: DIR/kubeconfig]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    limits: LimitFlags,
    /// Serve the admission webhooks too, with facts from this directory of YAML manifests
    #[arg(long, value_name = "DIR", conflicts_with = "garden_kubeconfig")]
    facts: Option<PathBuf>,
    /// Serve the admission webhooks too, with facts from the cluster of this kubeconfig
    #[arg(long, value_name = "FILE")]
    garden_kubeconfig: Option<PathBuf>,
    /// Port of the webhooks on 127.0.0.1; 0 takes any free one
    #[arg(long, default_value_t = 9443, value_name = "N")]
    webhook_port: u16,
}

/// Runs until a signal.
pub async fn run(flags: Flags) -> anyhow::Result<()> {
    let stop = run::stop_on_signals()?;
    let dir = &flags.data_dir;
    let memory = flags.limits.memory(None)?;
    make_private_dir(dir)?;
    // Keys are followed to the end: requests are answered for a while after the signal.
    let end = CancellationToken::new();
    let _end = end.clone().drop_guard();
    let store = open_store(dir, end).await?;
    let spool = flags.limits.spool(Some(dir)).await?;
    let listener = listen::bind((Ipv4Addr::LOCALHOST, flags.port).into()).await.with_context(|| {
        format!("failed to listen on 127.0.0.1:{}; choose another with --port", flags.port)
    })?;
    let port = listener.local_addr().context("the listener has no address")?.port();
    let kubeconfig = flags.kubeconfig.clone().unwrap_or_else(|| dir.join("kubeconfig"));
    let (files, roots) = certificates(dir, &kubeconfig, port)?;
    let webhooks = webhooks(&flags, files.clone(), &stop).await?;
    let authenticator = Arc::new(Authenticator::new(None, true));
    authenticator.set_trust(None, Some(roots));
    let parts = Parts {
        store,
        resources: registry::resources(registry::Serve::All, repot_api::names::CORE_GROUP),
        authenticator,
        authorizer: Authorizer::new(None),
        namespaces: Namespaces::Any,
        admission: Admission::none(),
        limits: Limits {
            object_bytes: flags.limits.max_object_bytes,
            namespace_bytes: flags.limits.max_namespace_bytes,
            watches_per_user: flags.limits.max_watches_per_user,
            watch_stall: flags.limits.watch_stall_timeout,
            memory,
            request_timeout: flags.limits.request_timeout,
            connections: flags.limits.connections(Limits::default().connections.unauthenticated),
            ..Limits::default()
        },
        auditor: Auditor::off(),
        sampler: RequestSampler::off(),
        profiling: true,
        spool,
        trust_loaded: None,
        group_conflict: None,
    };
    tracing::info!(kubeconfig = %kubeconfig.display(), "administrator's kubeconfig written");
    let host = Ipv4Addr::LOCALHOST.to_string();
    let api = run::Api { listener, tls: files.into(), parts, shutdown: Shutdown::default(), host };
    let served = run::serve(api, stop).await;
    if let Some(webhooks) = webhooks {
        webhooks.await.context("the webhooks broke off")?;
    }
    served
}

/// The admission webhooks, where facts are given. They end with `stop`.
async fn webhooks(
    flags: &Flags,
    files: ServingFiles,
    stop: &CancellationToken,
) -> anyhow::Result<Option<JoinHandle<()>>> {
    if flags.facts.is_none() && flags.garden_kubeconfig.is_none() {
        return Ok(None);
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, flags.webhook_port)).await.with_context(|| {
        format!("failed to listen on 127.0.0.1:{}; choose another with --webhook-port", flags.webhook_port)
    })?;
    let port = listener.local_addr().context("the listener has no address")?.port();
    let (facts, kubeconfig) = (flags.facts.as_deref(), flags.garden_kubeconfig.as_deref());
    let source = webhook::source(facts, kubeconfig, Serve::All, stop).await?;
    let world = World { source, settings: Arc::new(webhook::default_settings()) };
    let server = webhook_server::Server::new(world, None, webhook_server::Limits::default());
    let server = Arc::new(server.context("failed to register metrics")?);
    let serving = Arc::new(Serving::load(files.into()).context("failed to load the serving certificate")?);
    let shutdown = webhook_listen::Shutdown { delay: Duration::ZERO, drain: WEBHOOKS_DRAIN };
    tracing::info!(url = %format!("https://127.0.0.1:{port}"), "webhooks are served");
    Ok(Some(tokio::spawn(webhook_listen::serve(listener, server, serving, shutdown, stop.clone()))))
}

fn make_private_dir(dir: &PathBuf) -> anyhow::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.with_context(|| format!("failed to make the data directory {}", dir.display()))
}

async fn open_store(dir: &std::path::Path, end: CancellationToken) -> anyhow::Result<Store> {
    let keys = dir.join("encryption.yaml");
    if Keyring::ensure_file(&keys).context("failed to make an encryption key")? {
        tracing::info!(file = %keys.display(), "encryption key made; without it the objects cannot be read again");
    }
    let follow = Follow {
        path: keys,
        reload: false,
        server: crate::store::server(),
        second: std::time::Duration::from_secs(1),
    };
    let keyring = Keyring::follow(follow, end).await.context("failed to read the encryption key")?;
    let backend =
        Embedded::open(dir.join("store"), Options::default()).await.context("failed to open the store")?;
    let options = StoreOptions::default();
    Store::open(Arc::new(backend), keyring, options).await.context("failed to open the store")
}

/// Certificates: the authority is kept, leaves are made anew at each start.
fn certificates(
    dir: &std::path::Path,
    kubeconfig: &std::path::Path,
    port: u16,
) -> anyhow::Result<(ServingFiles, Roots)> {
    let pki = dir.join("pki");
    make_private_dir(&pki)?;
    let now = OffsetDateTime::now_utc();
    let authority = Authority::load_or_generate(&pki, "ca", "repot-dev", now)?;
    let names = ["127.0.0.1", "localhost"].map(str::to_owned);
    let server = authority.issue_server("repot", &names, now)?;
    let files = ServingFiles { certificate: pki.join("server.crt"), key: pki.join("server.key") };
    write_private(&files.key, server.key_pem.as_bytes())?;
    write_private(&files.certificate, server.certificate_pem.as_bytes())?;
    let admin = authority.issue_client("admin", "system:masters", now)?;
    let url = format!("https://127.0.0.1:{port}");
    let text = kubeconfig::render(&url, authority.certificate_pem(), &admin);
    write_private(kubeconfig, text.as_bytes())?;
    let roots =
        Roots::from_pem(authority.certificate_pem().as_bytes()).context("the authority cannot be used")?;
    Ok((files, roots))
}
