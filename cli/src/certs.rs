//! `repot certs`: certificates of Repot's servers.

use std::{io::Write, net::SocketAddr, path::PathBuf, process::ExitCode, str::FromStr, time::Duration};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand, ValueEnum};
use kube::Client;
use repot_apiserver::delegation;
use repot_controllers::{
    certificates::{
        self, CertificateMetrics, EncryptionSecret, Keeper, Kept, Lifetimes, Rotation, ServingSecret, Status,
        Target,
    },
    metrics::Metrics,
    server::Readiness,
    term::fenced_client,
};
use repot_storage::Keyring;
use tokio_util::sync::CancellationToken;

use crate::{
    leading::{self, Health},
    run,
    serving::duration,
};

/// The answer is no.
const NO: u8 = 3;
const LEASE: &str = "repot-certs";

/// Issue and renew the serving certificates of API server and webhooks, and let kube-apiserver trust them.
///
/// Authorities and certificates are in Secrets. Their bundle is written into APIServices and webhook configurations. A new authority
/// signs only after everybody has had a bundle with it for the overlap, and an old one stays in the bundle as long as a server may
/// still show what it has signed: no connection fails while they are replaced.
///
///     repot certs status --serving repot-apiserver-tls=repot-apiserver --publish apiservice/v1alpha1.core.gardener.cloud
///     repot certs rotate
///     repot certs rotate --authorities
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Flags {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Keep certificates valid until a signal; what a Pod of the charts runs
    Manage(Box<ManageFlags>),
    /// Print certificates and who has their bundle; exit code 3 where something is to be repaired
    Status(StatusFlags),
    /// Ask for new serving certificates, or for a new authority and then for what it signs
    Rotate(RotateFlags),
}

impl Flags {
    /// Whether it keeps certificates valid until it is stopped.
    pub fn is_server(&self) -> bool {
        matches!(self.task, Task::Manage(_))
    }
}

/// Where certificates are, and for whom.
#[derive(Args)]
struct KeptFlags {
    /// kubeconfig of the cluster with the Secrets [default: that of the Pod]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace of the Secrets and the Lease
    #[arg(short, long, env = "POD_NAMESPACE", default_value = "repot-system", value_name = "NAMESPACE")]
    namespace: String,
    /// Secret with authorities and their private keys
    #[arg(long, default_value = "repot-authorities", value_name = "SECRET")]
    authorities_secret: String,
    /// Secret of a serving certificate, and the Services that it is for, as SECRET=SERVICE or SECRET=SERVICE,SERVICE; may be repeated
    #[arg(long = "serving", value_name = "SECRET=SERVICES")]
    serving: Vec<Pair>,
    /// A further DNS name or IP address that a serving certificate is for, as SECRET=NAME; may be repeated
    #[arg(long = "extra-name", value_name = "SECRET=NAME")]
    extra_names: Vec<Pair>,
    /// What has the bundle of authorities: apiservice/NAME, validatingwebhookconfiguration/NAME or
    /// mutatingwebhookconfiguration/NAME; may be repeated
    #[arg(long = "publish", value_name = "KIND/NAME")]
    publish: Vec<Target>,
    /// kubeconfig of the cluster with these [default: the cluster with the Secrets]
    #[arg(long, value_name = "FILE")]
    published_kubeconfig: Option<PathBuf>,
}

#[derive(Args)]
struct ManageFlags {
    #[command(flatten)]
    kept: KeptFlags,
    /// How long a serving certificate is valid; it is renewed after two thirds of that
    #[arg(long, default_value = "2160h", value_name = "DURATION", value_parser = duration)]
    serving_validity: Duration,
    /// How long an authority is valid, at least six times as long; it is replaced after two thirds of that
    #[arg(long, default_value = "43800h", value_name = "DURATION", value_parser = duration)]
    authority_validity: Duration,
    /// How long a change of a Secret or of a bundle may take to reach all servers and clients
    #[arg(long, default_value = "1h", value_name = "DURATION", value_parser = duration)]
    overlap: Duration,
    /// Allow an overlap below three minutes, for clusters whose Pods see changed Secrets at once
    #[arg(long, hide = true)]
    allow_short_overlap: bool,
    /// Secret with the EncryptionConfiguration of the API server: made with a new key where there was never one
    #[arg(long, value_name = "SECRET")]
    encryption_secret: Option<String>,
    /// Act only while holding the Lease repot-certs
    #[arg(long)]
    leader_elect: bool,
    /// Who this is, in the Lease
    #[arg(long, env = "POD_NAME", default_value = "repot-certs", value_name = "NAME")]
    identity: String,
    /// Address of /healthz, /livez, /readyz and /metrics, without TLS
    #[arg(long, default_value = "0.0.0.0:8081", value_name = "ADDRESS")]
    health_address: SocketAddr,
}

#[derive(Args)]
struct StatusFlags {
    #[command(flatten)]
    kept: KeptFlags,
    /// Form of the answer
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Args)]
struct RotateFlags {
    #[command(flatten)]
    kept: KeptFlags,
    /// Make a new authority; it signs after the overlap, and the old one leaves after another
    #[arg(long)]
    authorities: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Columns for people
    Table,
    /// One JSON document
    Json,
}

/// A Secret, and what belongs to it.
#[derive(Clone, Debug)]
struct Pair {
    secret: String,
    values: Vec<String>,
}

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (secret, values) = text.split_once('=').unwrap_or((text, ""));
        let values: Vec<String> = values.split(',').map(str::to_owned).collect();
        if secret.is_empty() || values.iter().any(String::is_empty) {
            return Err("must be SECRET=VALUE or SECRET=VALUE,VALUE".to_owned());
        }
        Ok(Self { secret: secret.to_owned(), values })
    }
}

/// Runs the task; the exit code of `status` says whether all is well.
pub async fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    match flags.task {
        Task::Manage(flags) => manage(*flags).await.map(|()| ExitCode::SUCCESS),
        Task::Status(flags) => status(flags).await,
        Task::Rotate(flags) => rotate(flags).await.map(|()| ExitCode::SUCCESS),
    }
}

impl KeptFlags {
    fn kept(&self) -> anyhow::Result<Kept> {
        let mut serving: Vec<ServingSecret> = Vec::new();
        for Pair { secret, values } in &self.serving {
            let names = values.iter().flat_map(|service| service_names(service, &self.namespace));
            serving.push(ServingSecret { name: secret.clone(), names: names.collect() });
        }
        for Pair { secret, values } in &self.extra_names {
            let Some(one) = serving.iter_mut().find(|one| one.name == *secret) else {
                bail!("--extra-name {secret}: there is no --serving {secret}=…");
            };
            one.names.extend(values.iter().cloned());
        }
        Ok(Kept {
            namespace: self.namespace.clone(),
            authorities: self.authorities_secret.clone(),
            serving,
            targets: self.publish.clone(),
        })
    }

    /// Clients of the cluster with the Secrets and of that with APIServices.
    async fn clients(&self) -> anyhow::Result<(Client, Client)> {
        let client = delegation::client(self.kubeconfig.as_deref()).await?;
        let published = match &self.published_kubeconfig {
            Some(kubeconfig) => delegation::client(Some(kubeconfig)).await?,
            None => client.clone(),
        };
        Ok((client, published))
    }
}

/// The names by which clients in and outside of the namespace reach a Service.
fn service_names(service: &str, namespace: &str) -> [String; 4] {
    [
        service.to_owned(),
        format!("{service}.{namespace}"),
        format!("{service}.{namespace}.svc"),
        format!("{service}.{namespace}.svc.cluster.local"),
    ]
}

async fn manage(flags: ManageFlags) -> anyhow::Result<()> {
    let lifetimes = Lifetimes {
        authority: flags.authority_validity,
        serving: flags.serving_validity,
        overlap: flags.overlap,
        is_short_allowed: flags.allow_short_overlap,
    };
    lifetimes.check()?;
    let kept = flags.kept.kept()?;
    let stop = run::stop_on_signals()?;
    let metrics = Metrics::new().context("failed to create metrics")?;
    let counted = CertificateMetrics::new(&metrics).context("failed to create metrics")?;
    let readiness = Readiness::not_ready("kube-apiserver has not answered yet");
    let health = Health::serve(flags.health_address, readiness.clone(), metrics.clone()).await?;
    let (client, published) = flags.kept.clients().await?;
    client.apiserver_version().await.context("failed to ask kube-apiserver for its version")?;
    // Whoever waits for the Lease has nothing to do, and is ready for that.
    readiness.set_ready();
    let identity = leading::identity(&flags.identity)?;
    let election =
        leading::election(flags.leader_elect, &client, &kept.namespace, LEASE, &identity, &metrics);
    let Some(term) = leading::lead(election.as_ref(), &stop).await else { return health.end().await };
    tracing::info!(identity, "keeping certificates");
    readiness.set_not_ready("certificates are being looked at");
    let keeper = Keeper {
        client: fenced_client(term.clone(), client),
        published: fenced_client(term.clone(), published),
        kept,
        lifetimes,
        encryption: flags.encryption_secret.map(|name| EncryptionSecret { name, new_key }),
        metrics: counted,
    };
    leading::while_leading(election.as_ref(), &term, &stop, keep(&keeper, readiness, &stop)).await?;
    health.end().await
}

async fn keep(keeper: &Keeper, readiness: Readiness, stop: &CancellationToken) {
    keeper.run(&readiness, stop).await;
    readiness.set_not_ready("stopping");
}

fn new_key() -> Result<String, String> {
    Keyring::generate().map(|text| text.as_str().to_owned()).map_err(|error| error.to_string())
}

async fn status(flags: StatusFlags) -> anyhow::Result<ExitCode> {
    let (client, published) = flags.kept.clients().await?;
    let status = certificates::status(&client, &published, &flags.kept.kept()?).await?;
    let text = match flags.output {
        Output::Json => format!("{}\n", serde_json::to_string_pretty(&status).context("not JSON")?),
        Output::Table => table(&status),
    };
    std::io::stdout().write_all(text.as_bytes()).context("failed to write to standard output")?;
    Ok(if status.is_well() { ExitCode::SUCCESS } else { ExitCode::from(NO) })
}

fn table(status: &Status) -> String {
    let head = ["NAME", "KIND", "SIGNED BY", "ISSUED", "RENEWAL", "EXPIRES", "STATE"].map(str::to_owned);
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "<none>".to_owned());
    let state = |problem: &Option<String>, note: &Option<String>| match (problem, note) {
        (Some(problem), _) => problem.clone(),
        (None, Some(note)) => format!("ok, {note}"),
        (None, None) => "ok".to_owned(),
    };
    let mut lines = vec![head];
    for one in &status.certificates {
        let signer = one.signed_by.map_or_else(|| "-".to_owned(), |number| number.to_string());
        let [issued, renewal, expires] = [&one.issued, &one.renewal, &one.expires].map(or_none);
        let kind = one.kind.to_owned();
        lines.push([
            one.name.clone(),
            kind,
            signer,
            issued,
            renewal,
            expires,
            state(&one.problem, &one.note),
        ]);
    }
    for target in &status.targets {
        let dash = || "-".to_owned();
        let kind = "bundle".to_owned();
        lines.push([
            target.name.clone(),
            kind,
            dash(),
            dash(),
            dash(),
            dash(),
            state(&target.problem, &target.note),
        ]);
    }
    columns(&lines)
}

fn columns<const N: usize>(lines: &[[String; N]]) -> String {
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |line: &[String; N]| {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("   ").trim_end())
    };
    lines.iter().map(line).collect()
}

async fn rotate(flags: RotateFlags) -> anyhow::Result<()> {
    let (client, _) = flags.kept.clients().await?;
    let rotation = if flags.authorities { Rotation::Authorities } else { Rotation::Certificates };
    certificates::request(&client, &flags.kept.kept()?, rotation).await?;
    println!("asked for; `repot certs status` shows when it is done");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_a_secret_and_values() {
        let pair: Pair = "a=b,c".parse().expect("a pair");
        assert_eq!((pair.secret.as_str(), pair.values), ("a", vec!["b".to_owned(), "c".to_owned()]));
        for wrong in ["", "a", "a=", "=b", "a=b,"] {
            assert!(wrong.parse::<Pair>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let lines = [["a", "bb"], ["ccc", "d"]].map(|line| line.map(str::to_owned));
        assert_eq!(columns(&lines), "a     bb\nccc   d\n");
    }
}
