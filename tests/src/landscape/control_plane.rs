//! The control plane of a Shoot in a seed: etcds, kube-apiservers, controllers and the machine controllers, as Pods.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::authorities::Authorities;
use super::dns::Dns;
use super::dns_message::Values;
use super::seed::{BACKUP_SECRET, Seed};
use super::shoot::ShootName;
use super::{etcd, kubernetes, machines};
use crate::access::Access;
use crate::http::Api;
use crate::port;
use crate::wait::until;

/// How long anything may take while a whole landscape starts on two cores.
pub const DEADLINE: Duration = Duration::from_secs(240);
/// Where each kube-apiserver listens in its Pod, and where its address leads.
pub const API_PORT: u16 = 443;
/// How long the record of the API may be kept, in seconds. Gardener's default is 120.
pub const DNS_TTL: u32 = 5;

/// How large a control plane is.
#[derive(Clone, Debug)]
pub struct ControlPlaneOptions {
    /// Members of the main etcd; that of events has one.
    pub etcd_members: u32,
    /// How many kube-apiservers run.
    pub api_servers: u32,
    /// The worker pools, each with so many machines; none is a Shoot without workers.
    pub pools: Vec<(String, u32)>,
    /// From one search for orphaned VMs to the next. Gardener's default is 15 minutes.
    pub orphan_period: Duration,
}

/// A Shoot's control plane in one seed.
pub struct ControlPlane {
    /// The Shoot that it serves.
    pub shoot: ShootName,
    /// What it is issued from.
    pub authorities: Arc<Authorities>,
    /// How large it is.
    pub options: ControlPlaneOptions,
    /// The address of its kube-apiservers: the load balancer of the seed.
    pub address: Ipv4Addr,
}

impl Default for ControlPlaneOptions {
    fn default() -> Self {
        let pools = ["worker-a", "worker-b"].map(|pool| (pool.to_owned(), 3)).into();
        Self { etcd_members: 3, api_servers: 2, pools, orphan_period: Duration::from_secs(10) }
    }
}

impl ControlPlane {
    /// A control plane that is not deployed yet.
    pub fn new(
        shoot: ShootName,
        authorities: Arc<Authorities>,
        options: ControlPlaneOptions,
    ) -> Result<Self> {
        // An address of loopback that no other control plane on this machine has: the port is reserved for this process.
        let [high, low] = port::reserve()?.to_be_bytes();
        Ok(Self { shoot, authorities, options, address: Ipv4Addr::new(127, 77, high, low) })
    }

    /// Deploys everything into the Shoot's namespace of a seed, sets the DNS record of the API, and waits until kube-apiserver
    /// is ready through that name.
    pub async fn deploy(&self, seed: &Seed, dns: &Dns) -> Result<()> {
        self.deploy_namespace(seed).await?;
        self.apply(seed, &etcd::secrets(self)?).await?;
        self.apply(seed, &etcd::etcds(self, seed)).await?;
        self.apply(seed, &kubernetes::api_server(self)?).await?;
        self.expose(seed).await?;
        etcd::wait_until_ready(self, seed).await?;
        self.roll_out(seed, "kube-apiserver").await?;
        dns.set(&self.shoot.api_domain(), DNS_TTL, &Values::A(vec![self.address])).await?;
        let api = self.api(dns)?;
        until("the API of the Shoot to be ready", DEADLINE, async || {
            let answer = api.get("/readyz").await?;
            ensure!(answer.status == 200, "{answer}");
            Ok(())
        })
        .await?;
        self.apply(seed, &kubernetes::controllers(self)?).await?;
        self.apply(seed, &machines::controllers(self, seed)?).await?;
        self.apply(seed, &machines::workers(self)).await?;
        for deployment in ["kube-controller-manager", "kube-scheduler", "machine-controller-manager"] {
            self.roll_out(seed, deployment).await?;
        }
        Ok(())
    }

    /// The API through the DNS name, as `system:masters`.
    pub fn api(&self, dns: &Dns) -> Result<Api> {
        self.authorities.api(&self.shoot, dns.resolver(), "admin", &["system:masters"])
    }

    /// How an administrator reaches this control plane at its own address, whatever the DNS record says.
    pub fn direct_access(&self) -> Result<Access> {
        self.authorities.access(&format!("https://{}:{API_PORT}", self.address), "admin", &["system:masters"])
    }

    /// Applies objects in the Shoot's namespace of a seed.
    pub async fn apply(&self, seed: &Seed, objects: &[Value]) -> Result<()> {
        let mut objects = objects.to_vec();
        for object in &mut objects {
            object["metadata"]["namespace"] = self.shoot.technical_id().into();
        }
        seed.cluster.apply(&objects).await
    }

    async fn deploy_namespace(&self, seed: &Seed) -> Result<()> {
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": self.shoot.technical_id(), "labels": {"gardener.cloud/role": "shoot"}},
        });
        seed.cluster.apply(&[namespace]).await?;
        let mut secrets = self.authorities.secrets();
        secrets.push(seed.backup_secret(BACKUP_SECRET));
        self.apply(seed, &secrets).await
    }

    /// Opens the address of the kube-apiservers, and writes it to the Service as a cloud's load balancer does.
    async fn expose(&self, seed: &Seed) -> Result<()> {
        let namespace = self.shoot.technical_id();
        let name = format!("kube-apiserver.{namespace}.svc");
        seed.runner.balance(SocketAddr::from((self.address, API_PORT)), &name, API_PORT).await?;
        let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": self.address}]}}}).to_string();
        let patch =
            ["patch", "service", "kube-apiserver", "--subresource=status", "--type=merge", "-p", &status];
        seed.cluster.kubectl(patch.iter().copied().chain(["-n", &namespace])).await?.text().map(drop)
    }

    async fn roll_out(&self, seed: &Seed, deployment: &str) -> Result<()> {
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
