//! `repot apiserver`: the aggregated API server behind a kube-apiserver.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use clap::Args;
use repot_apiserver::{
    admission::Admission,
    delegation::{self, AccessReviewer, FrontProxyTrust, Memory, Namespaces, TokenReviewer},
    filters::{
        authentication::{Authenticator, FrontProxy},
        authorization::Authorizer,
        client_certificate::Roots,
    },
    listen, registry,
    server::{Limits, Parts, UNAUTHENTICATED_CONNECTIONS},
    tls::ServingFiles,
};
use repot_certs::{Authority, write_private};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use crate::{
    high_water::MarkFlags,
    limits::LimitFlags,
    peers::PeerFlags,
    run,
    serving::{self, duration},
    store,
    traces::{Traces, TracingFlags},
};

/// Serve ShootState behind a kube-apiserver, as an aggregated API.
///
/// Flags are spelled as kube-apiserver spells them. Without kubeconfig flags the in-cluster configuration is used.
#[derive(Args)]
pub struct Flags {
    /// Address to listen on
    #[arg(long, default_value = "0.0.0.0", value_name = "IP")]
    bind_address: IpAddr,
    /// Port to listen on; 0 takes any free one
    #[arg(long, default_value_t = 8443, value_name = "N")]
    secure_port: u16,
    /// Serving certificate chain, PEM; followed while running [default: a self-signed one in --cert-dir]
    #[arg(long, requires = "tls_private_key_file", value_name = "FILE")]
    tls_cert_file: Option<PathBuf>,
    /// Key of the serving certificate, PEM
    #[arg(long, requires = "tls_cert_file", value_name = "FILE")]
    tls_private_key_file: Option<PathBuf>,
    /// Where a self-signed serving certificate is kept when none is given
    #[arg(long, default_value = "/var/run/repot/certs", value_name = "DIR")]
    cert_dir: PathBuf,

    /// kubeconfig for TokenReview and for reading whom the front proxy is
    #[arg(long, value_name = "FILE")]
    authentication_kubeconfig: Option<PathBuf>,
    /// kubeconfig for SubjectAccessReview
    #[arg(long, value_name = "FILE")]
    authorization_kubeconfig: Option<PathBuf>,
    /// kubeconfig for everything else, such as namespaces [default: --authorization-kubeconfig]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Do not read kube-system/extension-apiserver-authentication; the flags below then say whom to believe
    #[arg(long)]
    authentication_skip_lookup: bool,
    /// Become ready although kube-system/extension-apiserver-authentication could not be read yet
    #[arg(long)]
    authentication_tolerate_lookup_failure: bool,
    /// How long the answer about a bearer token is remembered
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = duration)]
    authentication_token_webhook_cache_ttl: Duration,
    /// Audiences for which bearer tokens may be meant [default: those of the kube-apiserver]
    #[arg(long, value_delimiter = ',', value_name = "AUDIENCES")]
    api_audiences: Vec<String>,
    /// How long a permission is remembered
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = duration)]
    authorization_webhook_cache_authorized_ttl: Duration,
    /// How long a refusal is remembered
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = duration)]
    authorization_webhook_cache_unauthorized_ttl: Duration,
    /// Paths that everybody may use, without being asked who they are; `*` at the end stands for all that begin so
    #[arg(long, value_delimiter = ',', default_value = "/healthz,/readyz,/livez", value_name = "PATHS")]
    authorization_always_allow_paths: Vec<String>,
    /// Whether requests without credentials are served as system:anonymous
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    anonymous_auth: bool,
    /// Authorities of client certificates, PEM
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
    /// Authorities of the front proxy's certificate, PEM
    #[arg(long, value_name = "FILE")]
    requestheader_client_ca_file: Option<PathBuf>,
    /// Common names of the front proxy; none given: any
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    requestheader_allowed_names: Vec<String>,
    /// Headers that carry the user name
    #[arg(long, value_delimiter = ',', default_value = "x-remote-user", value_name = "HEADERS")]
    requestheader_username_headers: Vec<String>,
    /// Headers that carry the user's UID; only where the front proxy strips what its clients send
    #[arg(long, value_delimiter = ',', value_name = "HEADERS")]
    requestheader_uid_headers: Vec<String>,
    /// Headers that carry groups
    #[arg(long, value_delimiter = ',', default_value = "x-remote-group", value_name = "HEADERS")]
    requestheader_group_headers: Vec<String>,
    /// Prefixes of headers that carry further facts
    #[arg(long, value_delimiter = ',', default_value = "x-remote-extra-", value_name = "PREFIXES")]
    requestheader_extra_headers_prefix: Vec<String>,

    /// Kinds of which cluster to serve: ShootState on a garden; HostedEtcd, EtcdBackup, EtcdRestore and EtcdMigration on a seed
    #[arg(long, default_value = "garden", value_name = "WHERE")]
    serve: Serve,
    /// Group in which ShootStates are served; another than the default where gardener-apiserver serves them too
    #[arg(long, default_value = repot_api::names::CORE_GROUP, value_parser = [repot_api::names::CORE_GROUP, repot_api::names::MIGRATION_GROUP], value_name = "GROUP")]
    shootstate_group: String,
    /// The largest AdmissionReview that is sent to webhooks, in bytes; a larger one counts as their failure
    #[arg(long, default_value_t = 32 << 20, value_name = "N")]
    max_admission_review_bytes: usize,
    /// How often objects whose namespace is gone are looked for
    #[arg(long, default_value = "5m", value_name = "DURATION", value_parser = interval)]
    orphan_check_interval: Duration,
    /// How long a namespace has to be gone before the objects that were in it are deleted
    #[arg(long, default_value = "1h", value_name = "DURATION", value_parser = duration)]
    orphan_grace_period: Duration,
    /// Requests that only read, served at once; more are answered with 429. One user may have as many as stay free, requests
    /// without credentials a twentieth; 0: no limit
    #[arg(long, default_value_t = 400, value_name = "N")]
    max_requests_inflight: usize,
    /// Requests that write, served at once; more are answered with 429. Shared among users as those that only read; 0: no limit
    #[arg(long, default_value_t = 200, value_name = "N")]
    max_mutating_requests_inflight: usize,
    /// Connections whose client has shown neither a certificate nor a token that is good; a new one ends the oldest one of the
    /// address that has the most
    #[arg(long, default_value_t = UNAUTHENTICATED_CONNECTIONS, value_name = "N", value_parser = at_least_one)]
    max_unauthenticated_connections: usize,

    #[command(flatten)]
    limits: LimitFlags,
    #[command(flatten)]
    store: store::StoreFlags,
    #[command(flatten)]
    mark: MarkFlags,
    #[command(flatten)]
    peers: PeerFlags,
    #[command(flatten)]
    serving: serving::ServingFlags,
    #[command(flatten)]
    audit: crate::audit::AuditFlags,
    #[command(flatten)]
    tracing: TracingFlags,
    /// Whether CPU profiles may be taken at /debug/pprof/ by whom authorization lets get this path
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    profiling: bool,
}

impl Flags {
    /// Flags that say what is traced.
    pub fn tracing(&self) -> &TracingFlags {
        &self.tracing
    }
}

/// As [`registry::Serve`], for the command line.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Serve {
    Garden,
    Seed,
    All,
}

impl From<Serve> for registry::Serve {
    fn from(serve: Serve) -> Self {
        match serve {
            Serve::Garden => Self::Garden,
            Serve::Seed => Self::Seed,
            Serve::All => Self::All,
        }
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let read = duration(text)?;
    if read.is_zero() { Err("must be longer than nothing".to_owned()) } else { Ok(read) }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| "must be a whole number of at least 1".to_owned())
}

/// Runs until a signal.
pub async fn run(flags: Flags, traces: Traces) -> anyhow::Result<()> {
    let stop = run::stop_on_signals()?;
    let traces = traces.start()?;
    // Bound first, so that a taken port is told before anything is waited for.
    let address = SocketAddr::new(flags.bind_address, flags.secure_port);
    let listener = listen::bind(address).await.with_context(|| format!("failed to listen on {address}"))?;
    let tls = flags.serving.tls(serving_files(&flags)?)?;
    let auditor = flags.audit.auditor()?;
    let memory = flags.limits.memory(Some(flags.max_admission_review_bytes as u64))?;
    // What is followed is followed to the end: requests are answered for a while after the signal.
    let end = CancellationToken::new();
    let core = flags.kubeconfig.as_deref().or(flags.authorization_kubeconfig.as_deref());
    let cluster = delegation::client(core).await?;
    let guard = flags.mark.guard(&flags.store, cluster.clone(), core.is_none())?;
    let store = flags.store.open(&end, guard).await?;
    let spool = flags.limits.spool(flags.store.dir()).await?;
    let (authenticator, trust_loaded) = authenticator(&flags, &end).await?;
    let authorization = delegation::client(flags.authorization_kubeconfig.as_deref()).await?;
    let namespaces = Namespaces::follow(cluster.clone(), end.clone());
    let admission = Admission::follow(&cluster, flags.max_admission_review_bytes, &end);
    let group_conflict = group_conflict(&flags, cluster, &end);
    flags.peers.watch(&stop).await?;
    let parts = Parts {
        store,
        resources: registry::resources(flags.serve.into(), &flags.shootstate_group),
        authenticator,
        authorizer: Authorizer::new(Some(AccessReviewer::new(
            authorization,
            Memory {
                allowed: flags.authorization_webhook_cache_authorized_ttl,
                denied: flags.authorization_webhook_cache_unauthorized_ttl,
            },
        )))
        .with_open_paths(flags.authorization_always_allow_paths.clone()),
        auditor,
        namespaces,
        admission,
        limits: Limits {
            object_bytes: flags.limits.max_object_bytes,
            namespace_bytes: flags.limits.max_namespace_bytes,
            watches_per_user: flags.limits.max_watches_per_user,
            watch_stall: flags.limits.watch_stall_timeout,
            memory,
            request_timeout: flags.limits.request_timeout,
            readers: flags.max_requests_inflight,
            writers: flags.max_mutating_requests_inflight,
            connections: flags.limits.connections(flags.max_unauthenticated_connections),
            orphan_interval: flags.orphan_check_interval,
            orphan_grace: flags.orphan_grace_period,
            watch_grace: flags.serving.shutdown_watch_termination_grace_period,
            goaway_chance: flags.serving.goaway_chance,
            compression: flags.serving.response_compression,
        },
        spool,
        trust_loaded,
        group_conflict,
        sampler: traces.sampler(),
        profiling: flags.profiling,
    };
    let host =
        if flags.bind_address.is_unspecified() { "127.0.0.1".into() } else { flags.bind_address.to_string() };
    let served =
        run::serve(run::Api { listener, tls, parts, shutdown: flags.serving.shutdown(), host }, stop).await;
    end.cancel();
    traces.end().await;
    served
}

/// Looks for another server of ShootStates in the paper's group, where they are to be served there. In our own group there is
/// none.
fn group_conflict(
    flags: &Flags,
    cluster: delegation::Client,
    end: &CancellationToken,
) -> Option<delegation::GroupConflict> {
    let group = &flags.shootstate_group;
    let served = !matches!(flags.serve, Serve::Seed) && group == repot_api::names::CORE_GROUP;
    let resource = repot_api::shoot_state::KIND_INFO.plural;
    if group != repot_api::names::CORE_GROUP {
        let short = repot_api::shoot_state::KIND_INFO.short_names.join(", ");
        tracing::info!(
            group,
            short,
            "kubectl takes shootstates for Gardener's where both are served: use the short name"
        );
    }
    served.then(|| delegation::follow_group_conflict(cluster, group.clone(), resource, end.clone()))
}

fn serving_files(flags: &Flags) -> anyhow::Result<ServingFiles> {
    if let (Some(certificate), Some(key)) = (&flags.tls_cert_file, &flags.tls_private_key_file) {
        return Ok(ServingFiles { certificate: certificate.clone(), key: key.clone() });
    }
    let dir = &flags.cert_dir;
    std::fs::create_dir_all(dir).with_context(|| format!("failed to make {}", dir.display()))?;
    let now = OffsetDateTime::now_utc();
    let authority = Authority::load_or_generate(dir, "ca", "repot-self-signed", now)?;
    let names = ["localhost".to_owned(), flags.bind_address.to_string()];
    let leaf = authority.issue_server("repot", &names, now)?;
    let files = ServingFiles { certificate: dir.join("apiserver.crt"), key: dir.join("apiserver.key") };
    write_private(&files.key, leaf.key_pem.as_bytes())?;
    write_private(&files.certificate, leaf.certificate_pem.as_bytes())?;
    tracing::warn!(ca = %dir.join("ca.crt").display(), "no serving certificate given, using a self-signed one");
    Ok(files)
}

async fn authenticator(
    flags: &Flags,
    end: &CancellationToken,
) -> anyhow::Result<(Arc<Authenticator>, Option<tokio::sync::watch::Receiver<bool>>)> {
    let client = delegation::client(flags.authentication_kubeconfig.as_deref()).await?;
    let tokens = TokenReviewer::new(client.clone(), flags.authentication_token_webhook_cache_ttl)
        .with_audiences(flags.api_audiences.clone());
    let authenticator = Arc::new(Authenticator::new(Some(tokens), flags.anonymous_auth));
    let roots = |flag: &str, file: &Option<PathBuf>| match file {
        None => Ok(None),
        Some(path) => {
            let pem =
                std::fs::read(path).with_context(|| format!("{flag}: failed to read {}", path.display()))?;
            Roots::from_pem(&pem).map(Some).with_context(|| format!("{flag}: {}", path.display()))
        }
    };
    let proxy_roots = roots("--requestheader-client-ca-file", &flags.requestheader_client_ca_file)?;
    let given = FrontProxyTrust {
        client: roots("--client-ca-file", &flags.client_ca_file)?,
        front_proxy: proxy_roots.map(|roots| front_proxy(flags, roots)),
    };
    if flags.authentication_skip_lookup {
        authenticator.set_trust(given.front_proxy, given.client);
        return Ok((authenticator, None));
    }
    let loaded = delegation::follow_request_header(client, authenticator.clone(), given, end.clone());
    Ok((authenticator, (!flags.authentication_tolerate_lookup_failure).then_some(loaded)))
}

fn front_proxy(flags: &Flags, roots: Roots) -> FrontProxy {
    FrontProxy {
        roots,
        allowed_names: flags.requestheader_allowed_names.clone(),
        username_headers: flags.requestheader_username_headers.clone(),
        uid_headers: flags.requestheader_uid_headers.clone(),
        group_headers: flags.requestheader_group_headers.clone(),
        extra_prefixes: flags.requestheader_extra_headers_prefix.clone(),
    }
}
