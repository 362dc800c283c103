//! The control plane of a Shoot in a seed: etcds, kube-apiservers, controllers and the machine controllers, as Pods.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::authorities::Authorities;
use super::dns::Dns;
use super::seed::{BACKUP_SECRET, Seed};
use super::shoot::ShootName;
use super::wide_network::here;
use super::{etcd, extensions, konnectivity, kubernetes, machines};
use crate::access::Access;
use crate::http::Api;
use crate::wait::until;

/// How long anything may take while a whole landscape starts on two cores.
pub const DEADLINE: Duration = Duration::from_secs(240);
/// Where each kube-apiserver listens in its Pod, and where its address leads.
pub const API_PORT: u16 = 443;
/// The first epoch of an owner: who has it does not wait for another one.
const FIRST_EPOCH: u64 = 1;

/// How large a control plane is.
#[derive(Clone, Debug)]
pub struct ControlPlaneOptions {
    /// Members of the main etcd; that of events has one.
    pub etcd_members: u32,
    /// How many kube-apiservers run.
    pub api_servers: u32,
    /// The worker pools, each with so many machines; none is a Shoot without workers.
    pub pools: Vec<(String, u32)>,
    /// Zones over which the machines of each pool are spread.
    pub zones: Vec<String>,
    /// From one search for orphaned VMs to the next. Gardener's default is 15 minutes.
    pub orphan_period: Duration,
    /// How long the record of the API may be cached, in seconds. Gardener's default is 120.
    pub api_ttl: u32,
    /// From one question for the owner record to the next, and how long an answer may take, in seconds. Members that get none serve for as
    /// long as both together. The default is as short as it can be on a machine that is busy: a query may take three seconds.
    pub owner_check: (u32, u32),
    /// Whether kube-apiservers reach nodes, webhooks and aggregated APIs through a tunnel only, and nodes have a network of their own.
    pub tunnel: bool,
    /// Whether nodes have a network of their own without a tunnel.
    pub network: bool,
}

/// A Shoot's control plane in one seed.
pub struct ControlPlane {
    /// The Shoot that it serves.
    pub shoot: ShootName,
    /// What it is issued from.
    pub authorities: Arc<Authorities>,
    /// How large it is.
    pub options: ControlPlaneOptions,
}

impl Default for ControlPlaneOptions {
    fn default() -> Self {
        let pools = ["worker-a", "worker-b"].map(|pool| (pool.to_owned(), 3)).into();
        Self {
            etcd_members: 3,
            api_servers: 2,
            pools,
            zones: vec!["eu-1a".to_owned()],
            orphan_period: Duration::from_secs(10),
            api_ttl: 30,
            owner_check: (2, 4),
            tunnel: false,
            network: false,
        }
    }
}

impl ControlPlane {
    /// A control plane that is not deployed yet.
    pub fn new(shoot: ShootName, authorities: Arc<Authorities>, options: ControlPlaneOptions) -> Self {
        Self { shoot, authorities, options }
    }

    /// Deploys everything into the Shoot's namespace of a seed, as its first owner, and waits until kube-apiserver is ready through
    /// its DNS name and all extension resources are reconciled. `cluster` is the `spec` of its Cluster.
    pub async fn deploy(&self, seed: &Seed, dns: &Dns, cluster: &Value) -> Result<()> {
        self.deploy_namespace(seed, cluster).await?;
        extensions::reconcile(self, seed, &[extensions::owner_record(self, seed)]).await?;
        extensions::reconcile(self, seed, &extensions::before_api_server(self)).await?;
        self.deploy_api_server(seed, dns).await?;
        extensions::reconcile(self, seed, &extensions::after_api_server(self)).await?;
        self.apply(seed, &kubernetes::controllers(self)?).await?;
        if self.has_workers() {
            self.apply(seed, &machines::controllers(self, seed)?).await?;
            extensions::reconcile(self, seed, &[extensions::worker(self)]).await?;
            self.roll_out(seed, machines::MANAGER).await?;
        }
        for deployment in ["kube-controller-manager", "kube-scheduler"] {
            self.roll_out(seed, deployment).await?;
        }
        Ok(())
    }

    /// Whether the Shoot has worker pools.
    pub(super) fn has_workers(&self) -> bool {
        !self.options.pools.is_empty()
    }

    async fn deploy_api_server(&self, seed: &Seed, dns: &Dns) -> Result<()> {
        self.apply(seed, &etcd::secrets(self)?).await?;
        self.apply(seed, &etcd::etcds(self, seed)).await?;
        self.apply(seed, &kubernetes::api_server(self)?).await?;
        if self.options.tunnel {
            self.apply(seed, &konnectivity::server(self)?).await?;
        }
        etcd::wait_until_ready(self, seed).await?;
        self.roll_out(seed, "kube-apiserver").await?;
        let address =
            until("the address of kube-apiserver", DEADLINE, async || self.address(seed).await).await?;
        extensions::reconcile(self, seed, &[extensions::api_record(self, address)]).await?;
        let api = self.api(dns)?;
        until("the API of the Shoot to be ready", DEADLINE, async || {
            let answer = api.get("/readyz").await?;
            ensure!(answer.status == 200, "{answer}");
            Ok(())
        })
        .await
    }

    /// The owner ID of a seed that serves the etcd first.
    pub fn owner_id(&self, seed: &Seed) -> String {
        format!("{}/{FIRST_EPOCH}", seed.name)
    }

    /// The address of its kube-apiservers in a seed: that of the load balancer.
    ///
    /// Errors: while there is none.
    pub async fn address(&self, seed: &Seed) -> Result<Ipv4Addr> {
        let path = format!("/api/v1/namespaces/{}/services/kube-apiserver", self.shoot.technical_id());
        let service = seed.cluster.api().get(&path).await?.ok()?;
        let ip = service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str();
        Ok(ip.context("the Service kube-apiserver has no address yet")?.parse()?)
    }

    /// The API through the DNS name, as `system:masters`.
    pub fn api(&self, dns: &Dns) -> Result<Api> {
        self.authorities.api(&self.shoot, dns.resolver(), "admin", &["system:masters"])
    }

    /// The API at the address of a seed, as `system:masters`, whatever the DNS record says.
    pub async fn api_at(&self, seed: &Seed) -> Result<Api> {
        let (domain, address) = (self.shoot.api_domain(), here(self.address(seed).await?));
        let builder = reqwest::Client::builder().resolve(&domain, SocketAddr::from((address, API_PORT)));
        Api::build(&self.admin_access(&format!("https://{domain}"))?, builder)
    }

    /// A kubeconfig of an administrator for the address of a seed, whatever the DNS record says.
    pub async fn kubeconfig_at(&self, seed: &Seed) -> Result<String> {
        let access = self.admin_access(&format!("https://{}:{API_PORT}", here(self.address(seed).await?)))?;
        let mut kubeconfig: Value = serde_json::from_str(&access.to_kubeconfig())?;
        // The certificate has no address in it, because it is valid at each seed.
        kubeconfig["clusters"][0]["cluster"]["tls-server-name"] = self.shoot.api_domain().into();
        Ok(kubeconfig.to_string())
    }

    /// A way in as `system:masters` at this URL.
    pub fn admin_access(&self, server: &str) -> Result<Access> {
        self.authorities.access(server, "admin", &["system:masters"])
    }

    /// Applies objects in the Shoot's namespace of a seed.
    pub async fn apply(&self, seed: &Seed, objects: &[Value]) -> Result<()> {
        let mut objects = objects.to_vec();
        for object in &mut objects {
            object["metadata"]["namespace"] = self.shoot.technical_id().into();
        }
        seed.cluster.apply(&objects).await
    }

    async fn deploy_namespace(&self, seed: &Seed, cluster: &Value) -> Result<()> {
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": self.shoot.technical_id(), "labels": {"gardener.cloud/role": "shoot"}},
        });
        seed.cluster.apply(&[namespace, extensions::cluster(self, cluster)]).await?;
        let mut secrets = self.authorities.secrets();
        secrets.push(extensions::credentials());
        self.apply(seed, &secrets).await?;
        let entry = extensions::backup_entry(&self.shoot, seed);
        seed.cluster.apply(&entry).await?;
        let (namespace, secret) = (self.shoot.technical_id(), format!("secret/{BACKUP_SECRET}"));
        let exists = ["wait", "--for=create", &secret, "-n", &namespace, "--timeout=60s"];
        seed.cluster.kubectl(exists).await?.text().map(drop)
    }

    /// Waits until a Deployment in the Shoot's namespace of a seed is rolled out.
    pub(super) async fn roll_out(&self, seed: &Seed, deployment: &str) -> Result<()> {
        let (name, namespace) = (format!("deployment/{deployment}"), self.shoot.technical_id());
        let timeout = format!("--timeout={}s", DEADLINE.as_secs());
        seed.cluster.kubectl(["rollout", "status", &name, "-n", &namespace, &timeout]).await?.text().map(drop)
    }
}

/// A Secret of type Opaque.
pub(super) fn secret(name: &str, data: &[(&str, &str)]) -> Value {
    let data: serde_json::Map<_, _> =
        data.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "Opaque", "stringData": data})
}
