//! A seed: a cluster whose Pods run, the controllers of Repot, the local provider, load balancers, and a bucket for backups.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::cloud::{self, Cloud};
use super::dns::Dns;
use super::load_balancer::LoadBalancers;
use super::names::SeedNames;
use super::provider::{ProviderContext, Providers};
use super::wide_network::WideNetwork;
use crate::garden::{Garden, GardenOptions};
use crate::pods::{Image, Images, PodRunner, PodRunnerOptions};
use crate::s3::{BUCKET, S3Server};
use crate::test_env::TestEnv;
use crate::{binaries, operator};

/// The zones of a seed's nodes, one node in each.
pub const ZONES: [&str; 3] = ["eu-1a", "eu-1b", "eu-1c"];
/// The StorageClass of volumes.
pub const STORAGE_CLASS: &str = "default";
/// The name of the Secret with the credentials of a bucket, in the namespace of each Shoot.
pub const BACKUP_SECRET: &str = "etcd-backup";
/// The namespace of Secrets of the seed itself.
pub const GARDEN: &str = "garden";
/// Programs that run as Pods of a Shoot, each the image of its own name.
const PROGRAMS: [&str; 5] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "machine-controller-manager",
    cloud::PROGRAM,
];

/// A running seed. Everything in it ends when it is dropped.
pub struct Seed {
    /// The name of the Seed in the garden.
    pub name: String,
    /// Runs the Pods of the seed.
    pub runner: PodRunner,
    /// The cluster of the seed.
    pub cluster: Garden,
    /// Its object store, which has the bucket [`BUCKET`].
    pub store: S3Server,
    /// Where Pods reach the store.
    store_address: SocketAddr,
    /// Where Pods reach the counting cloud.
    cloud_address: SocketAddr,
    /// How its Pods resolve names of Shoots.
    pub names: SeedNames,
    /// Where Pods reach the DNS server of Shoots.
    dns_address: SocketAddr,
    client: Client,
    provider_context: ProviderContext,
    providers: Mutex<Option<Providers>>,
    _load_balancers: LoadBalancers,
}

impl Seed {
    /// Starts a seed, and waits until its controllers are ready.
    pub async fn start(
        env: &TestEnv,
        name: &str,
        cloud: &Cloud,
        dns: &Dns,
        provider_context: &ProviderContext,
        wide: &Arc<WideNetwork>,
    ) -> Result<Self> {
        let options = GardenOptions { controller_manager: true, ..GardenOptions::default() };
        let cluster = Garden::start_with(env, options).await?;
        let zone = |zone: &str| BTreeMap::from([("topology.kubernetes.io/zone".to_owned(), zone.to_owned())]);
        let names = SeedNames::start(env, dns).await?;
        let nodes = ZONES.map(|at| (format!("{name}-{at}"), zone(at))).into();
        let upstream_dns = Some(names.cache());
        let options = PodRunnerOptions { nodes, images: images()?, upstream_dns, service_proxy: false };
        let runner = PodRunner::start(env, &cluster, options).await?;
        wide.join(name, runner.network());
        apply_kinds(&cluster).await?;
        let store = S3Server::start(env).await?;
        let (store_address, cloud_address) =
            (runner.expose(store.relay.port())?, runner.expose(cloud.port())?);
        let dns_address = runner.expose_dns((names.zone_port(), dns.address().port()))?;
        operator::start(&cluster, &[]).await?;
        let client = client_of(&cluster).await?;
        let seed = Self {
            name: name.to_owned(),
            _load_balancers: LoadBalancers::start(client.clone(), name, runner.balancer(), wide.clone()),
            runner,
            cluster,
            store,
            store_address,
            cloud_address,
            names,
            dns_address,
            client,
            provider_context: provider_context.clone(),
            providers: Mutex::default(),
        };
        seed.start_providers();
        Ok(seed)
    }

    /// Starts the local provider of this seed; it is started again if it runs.
    pub fn start_providers(&self) {
        let mut providers = self.providers.lock();
        *providers = None;
        *providers = Some(Providers::start(&self.name, &self.client, &self.provider_context));
    }

    /// Stops the local provider of this seed at once, as if its processes were killed.
    pub fn stop_providers(&self) {
        *self.providers.lock() = None;
    }

    /// Where Pods reach the DNS server of Shoots, over UDP and TCP. It is the same in all seeds.
    pub fn dns_address(&self) -> SocketAddr {
        self.dns_address
    }

    /// Where Pods reach the store of this seed. It is the same in all seeds.
    pub fn store_address(&self) -> SocketAddr {
        self.store_address
    }

    /// A client of the seed as its administrator.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Lets Pods of this seed reach the store of another one, at the address at which that seed's own Pods do.
    pub fn reach_store_of(&self, other: &Self) -> Result<()> {
        self.runner.expose(other.store.relay.port()).map(drop)
    }

    /// The URL at which Pods reach the counting cloud. It is the same in all seeds.
    pub fn cloud_url(&self) -> String {
        format!("http://{}", self.cloud_address)
    }

    /// The Secret of the bucket, as etcd-backup-restore and Gardener write it, with the address that Pods of all seeds reach.
    pub fn backup_secret(&self, name: &str) -> Value {
        let mut data = self.store.secret_data();
        data.insert("endpoint", format!("http://{}", self.store_address));
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data})
    }

    /// A store of backups in the bucket, as an Etcd names it.
    pub fn backup_store(&self, prefix: &str) -> Value {
        json!({"provider": "S3", "container": BUCKET, "prefix": prefix, "secretRef": {"name": BACKUP_SECRET}})
    }
}

/// The StorageClass, the kinds of Etcds, machines and extensions, and the policy that comes with Repot.
async fn apply_kinds(cluster: &Garden) -> Result<()> {
    let garden = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": GARDEN}});
    cluster.apply(&[PodRunner::storage_class(STORAGE_CLASS, "Immediate", "Delete"), garden]).await?;
    operator::prepare(cluster).await?;
    for file in ["machines.yaml", "extensions.yaml", "dnsowners.yaml"] {
        let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("crds").join(file).display().to_string();
        cluster.kubectl(["apply", "--server-side", "-f", &crds]).await?.text()?;
    }
    let policy = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/policies/keep-infrastructure.yaml");
    cluster.kubectl(["apply", "-f", policy]).await?.text()?;
    let established = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"];
    cluster.kubectl(established).await?.text().map(drop)
}

async fn client_of(cluster: &Garden) -> Result<Client> {
    let file = Kubeconfig::read_from(cluster.kubeconfig())?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

fn images() -> Result<Images> {
    let images = Images::default().with(operator::IMAGE, operator::image()?);
    for program in PROGRAMS {
        images.add(program, Image::of(binaries::find(program)?));
    }
    Ok(images)
}
