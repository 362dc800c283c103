//! `repot controllers`: everything that reconciles.

use std::{net::SocketAddr, num::NonZeroUsize, path::PathBuf};

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum, builder::NonEmptyStringValueParser};
use kube::Client;
use repot_apiserver::delegation;
use repot_controllers::{
    etcd::{self, metrics::EtcdMetrics},
    isolation,
    local_stores::LocalStores,
    metrics::Metrics,
    migration::{self, Exposer, GardenOptions, GatewayKind, GatewayName, quarantine::QuarantineCommand},
    namespaces::Namespaces,
    server::Readiness,
    shootstate::{self, metrics::StateMetrics},
    term::{LeaseDeadline, fenced_client},
    workflow::{self, Context},
};
use tokio_util::sync::CancellationToken;

use crate::{
    leading::{self, Health},
    run,
};

const LEASE: &str = "repot-controllers";

/// Run the controllers of a seed, or those of the garden.
///
/// On a seed: the operator, which makes members of Etcds, and the workflows EtcdBackup, EtcdRestore and EtcdMigration. With --seed-name
/// and --garden-kubeconfig also the controllers that keep ShootStates in the garden up to date, and that act for this seed in
/// ControlPlaneMigrations. With --scope garden: the controller that acts for the garden in ControlPlaneMigrations; with
/// --migrate-on-seed-change it also creates one when the seed of a Shoot is changed.
///
/// Several may run; with --leader-elect the one that holds the Lease `repot-controllers` acts. Whoever cannot renew it for ten seconds
/// writes nothing any more and ends; whoever is asked to end gives it back first, so that the next one need not wait. /healthz and
/// /livez answer as long as the process lives, /readyz once it could ask kube-apiserver, /metrics to Prometheus.
/// deploy/rbac/controllers.yaml has the permissions in a seed, deploy/rbac/garden-migrations.yaml those in the garden.
/// With --namespaces they act in these namespaces only, and roles there are enough; the controllers of migrations act in all.
///
///     repot controllers --image registry.example.com/repot:1 --leader-elect
///     repot controllers --image registry.example.com/repot:1 --seed-name eu-1 --garden-kubeconfig /etc/garden/kubeconfig
///     repot controllers --scope garden --leader-elect
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Flags {
    /// Which cluster the controllers act on
    #[arg(long, value_enum, default_value_t = Scope::Seed)]
    scope: Scope,
    /// kubeconfig of that cluster [default: that of the Pod]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// kubeconfig of the garden that the seed belongs to
    #[arg(long, value_name = "FILE", requires = "seed_name")]
    garden_kubeconfig: Option<PathBuf>,
    /// Name of the Seed in that garden
    #[arg(long, value_name = "NAME", requires = "garden_kubeconfig", value_parser = NonEmptyStringValueParser::new())]
    seed_name: Option<String>,
    /// Create a ControlPlaneMigration when spec.seedName of a Shoot is changed; only in a garden, and only where no gardenlet does that
    #[arg(long)]
    migrate_on_seed_change: bool,
    /// Program that takes away the credentials of a dead seed, called as PROGRAM revoke SEED and PROGRAM check SEED; only in a garden
    ///
    /// A forced migration calls it once the owner record names the destination. Exit status 0 of `check` says that nobody can use
    /// credentials of the seed any more; then Machines are restored without the confirmation of a person.
    #[arg(long, value_name = "PROGRAM")]
    quarantine_command: Option<PathBuf>,
    /// How many classic and live migrations may be under way at once from and to one seed; only in a garden [default: 10]
    ///
    /// Others wait, and begin in the order in which they were created. Forced migrations do not wait.
    #[arg(long, value_name = "COUNT")]
    max_migrations_per_seed: Option<NonZeroUsize>,
    /// Gateway of the Gateway API behind which other seeds reach members of etcds in a live migration [default: a load balancer each]
    ///
    /// It has listeners of protocol TLS, in mode Passthrough, at the client port of members, at their peer port, and 100 and 200 above
    /// that, and allows TLSRoutes from the namespaces of control planes.
    #[arg(long, value_name = "NAMESPACE/NAME", requires = "seed_name")]
    members_gateway: Option<GatewayName>,
    /// Gateway of Istio behind which other seeds reach members of etcds in a live migration, by VirtualServices
    ///
    /// It has the same ports as that of --members-gateway. Its Service of type LoadBalancer lies in its namespace.
    #[arg(long, value_name = "NAMESPACE/NAME", requires = "seed_name", conflicts_with = "members_gateway")]
    members_istio_gateway: Option<GatewayName>,
    /// Image of the Pods and Jobs that are made: with repot, etcd, etcdctl and etcdutl; a seed needs it
    #[arg(long, value_name = "IMAGE", required_if_eq("scope", "seed"), default_value = "")]
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

/// How many migrations one seed has at once, where nothing else is said.
const MAX_PER_SEED: NonZeroUsize = NonZeroUsize::new(10).unwrap();

/// Which cluster controllers act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scope {
    /// A seed, which hosts control planes
    Seed,
    /// The garden, which holds Shoots
    Garden,
}

/// Runs until a signal, or until the Lease is lost.
pub async fn run(flags: Flags) -> anyhow::Result<()> {
    let stop = run::stop_on_signals()?;
    let metrics = Metrics::new().context("failed to create metrics")?;
    let readiness = Readiness::not_ready("kube-apiserver has not answered yet");
    let health = Health::serve(flags.health_address, readiness.clone(), metrics.clone()).await?;
    // Whoever has lost the Lease ends at once, without waiting for clients.
    control(flags, readiness, metrics, stop).await?;
    health.end().await
}

/// Runs the controllers, once this process may act.
async fn control(
    flags: Flags,
    readiness: Readiness,
    metrics: Metrics,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    ensure!(
        flags.scope == Scope::Seed || flags.garden_kubeconfig.is_none(),
        "--garden-kubeconfig is for --scope seed; with --scope garden, --kubeconfig is that of the garden"
    );
    ensure!(
        flags.scope == Scope::Garden || !flags.migrate_on_seed_change,
        "--migrate-on-seed-change is for --scope garden"
    );
    ensure!(
        flags.scope == Scope::Garden || flags.quarantine_command.is_none(),
        "--quarantine-command is for --scope garden"
    );
    ensure!(
        flags.quarantine_command.as_ref().is_none_or(|program| program.is_absolute()),
        "--quarantine-command must be an absolute path"
    );
    ensure!(
        flags.scope == Scope::Garden || flags.max_migrations_per_seed.is_none(),
        "--max-migrations-per-seed is for --scope garden"
    );
    let local_stores = LocalStores::below(flags.local_store_path)?;
    let etcds = EtcdMetrics::new(&metrics).context("failed to create metrics")?;
    let client = delegation::client(flags.kubeconfig.as_deref()).await?;
    let own = flags.identity.unwrap_or_else(|| "repot-controllers".to_owned());
    let identity = leading::identity(&own)?;
    let version = client.apiserver_version().await.context("failed to ask kube-apiserver for its version")?;
    tracing::info!(identity, kubernetes = version.git_version, "controllers are up");
    let garden = match &flags.garden_kubeconfig {
        Some(kubeconfig) => {
            let states = StateMetrics::new(&metrics).context("failed to create metrics")?;
            Some((delegation::client(Some(kubeconfig)).await?, states))
        }
        None => None,
    };
    readiness.set_ready();
    tokio::spawn(leading::set_not_ready_at(stop.clone(), readiness));
    let election =
        leading::election(flags.leader_elect, &client, &flags.namespace, LEASE, &identity, &metrics);
    let Some(term) = leading::lead(election.as_ref(), &stop).await else { return Ok(()) };
    tracing::info!(identity, "acting");
    let client = fenced_client(term.clone(), client);
    let stopped = stop.clone();
    let process = Process { client, identity: own, local_stores, term: term.clone(), metrics, etcds, stop };
    let work = async {
        match (flags.scope, garden) {
            (Scope::Garden, _) => {
                let options = GardenOptions {
                    quarantine: flags.quarantine_command.map(QuarantineCommand::new),
                    max_per_seed: flags.max_migrations_per_seed.unwrap_or(MAX_PER_SEED),
                };
                process.control_garden(flags.migrate_on_seed_change, options).await;
            }
            (Scope::Seed, None) => process.control_seed(flags.image, flags.namespaces).await,
            (Scope::Seed, Some((garden, states))) => {
                let seed = process.control_seed(flags.image.clone(), flags.namespaces);
                let exposer = exposer(flags.members_gateway, flags.members_istio_gateway);
                let own =
                    SeedOptions { name: flags.seed_name.unwrap_or_default(), image: flags.image, exposer };
                tokio::join!(seed, process.control_shoots(garden, states, own));
            }
        }
    };
    leading::while_leading(election.as_ref(), &term, &stopped, work).await
}

fn exposer(gateway: Option<GatewayName>, istio: Option<GatewayName>) -> Exposer {
    match (gateway, istio) {
        (Some(gateway), _) => Exposer::Gateway(GatewayKind::GatewayApi, gateway),
        (None, Some(gateway)) => Exposer::Gateway(GatewayKind::Istio, gateway),
        (None, None) => Exposer::LoadBalancers,
    }
}

/// The seed of a garden that this process acts on.
struct SeedOptions {
    name: String,
    image: String,
    exposer: Exposer,
}

/// What the controllers of this process share.
struct Process {
    /// The cluster that they act on; it takes writes for as long as the Lease is held.
    client: Client,
    /// Name of this process in Events.
    identity: String,
    local_stores: LocalStores,
    term: LeaseDeadline,
    metrics: Metrics,
    etcds: EtcdMetrics,
    stop: CancellationToken,
}

impl Process {
    /// The operator and the workflows of a seed.
    async fn control_seed(&self, image: String, namespaces: Vec<String>) {
        let namespaces = Namespaces::new(namespaces);
        let operator = etcd::Options {
            image: image.clone(),
            namespaces: namespaces.clone(),
            local_stores: self.local_stores.clone(),
            term: self.term.clone(),
            metrics: self.metrics.clone(),
            etcds: self.etcds.clone(),
        };
        let operator = etcd::run(self.client.clone(), operator, self.stop.clone());
        let context = Context::new(
            self.client.clone(),
            image,
            self.identity.clone(),
            self.local_stores.clone(),
            self.term.clone(),
            self.metrics.clone(),
        );
        let workflows = workflow::run(context, &namespaces, self.stop.clone());
        tokio::join!(operator, workflows);
    }

    /// What a seed does for the Shoots of a garden.
    async fn control_shoots(&self, garden: Client, states: StateMetrics, own: SeedOptions) {
        let garden = fenced_client(self.term.clone(), garden);
        let (metrics, identity) = (self.metrics.clone(), self.identity.clone());
        let SeedOptions { name: seed_name, image, exposer } = own;
        let context = || {
            let (client, name) = (self.client.clone(), seed_name.clone());
            let seed = migration::Seed { client, name, image: image.clone(), exposer: exposer.clone() };
            let (stores, metrics) = (self.local_stores.clone(), metrics.clone());
            migration::Context::seed(seed, garden.clone(), identity.clone(), stores, metrics)
        };
        let (migrations, isolations) = (context(), context());
        let (seed, metrics) = (self.client.clone(), (metrics, states));
        let states = shootstate::controller::Context::new(seed, garden, seed_name, metrics, identity);
        tokio::join!(
            migration::run(migrations, self.stop.clone()),
            isolation::run(isolations, self.stop.clone()),
            shootstate::controller::run(states, self.stop.clone())
        );
    }

    /// What the garden does for migrations and isolations.
    async fn control_garden(&self, migrate_on_seed_change: bool, options: GardenOptions) {
        let context = || {
            let (identity, metrics) = (self.identity.clone(), self.metrics.clone());
            migration::Context::garden(self.client.clone(), identity, metrics, options.clone())
        };
        let seed_changes = async {
            if migrate_on_seed_change {
                migration::garden::seed_change::run(context(), self.stop.clone()).await;
            }
        };
        tokio::join!(
            migration::run(context(), self.stop.clone()),
            isolation::run(context(), self.stop.clone()),
            isolation::annotated::run(context(), self.stop.clone()),
            seed_changes
        );
    }
}
