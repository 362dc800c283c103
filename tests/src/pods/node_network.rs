//! A network of nodes whose cluster runs elsewhere: programs of the nodes, and Pods of them that are real.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::runtime::watcher;
use tokio::net::TcpSocket;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::host::Host;
use super::network::PodNetwork;
use super::node::NodeSpec;
use super::roster::Roster;
use super::wire::{MAX_NODES, pods_of};
use super::{Balancer, Firewall, Ground, Images, follow_slices, lives, serve_names};
use crate::http;
use crate::process::Spec;
use crate::test_env::TestEnv;

/// A network of nodes. Their Pods have addresses of their own, and find names at the address that they have in other networks, too.
/// Everything in it ends when it is dropped.
pub struct NodeNetwork {
    host: Host,
    balancer: Balancer,
    _tasks: JoinSet<()>,
}

/// A node in a [`NodeNetwork`]. Its programs and Pods end when it is dropped.
pub struct NetworkNode {
    host: Host,
    name: String,
    range: usize,
    address: Ipv4Addr,
    pods: Option<AbortHandle>,
}

impl NodeNetwork {
    /// Makes a network without nodes, in which names are those of the cluster's Services and of a DNS server of this machine. The clients
    /// read Services; the cluster need not serve yet.
    ///
    /// Errors: unless we are root on a kernel with namespaces and overlays.
    pub async fn start(
        env: &TestEnv,
        name: &str,
        dns_server: SocketAddr,
        clients: (Client, http::Api),
    ) -> Result<Self> {
        let host = Host::start(env, name).await?;
        let ground = Arc::new(Ground::new(host.clone(), clients, Vec::new(), Images::default()));
        let mut tasks = JoinSet::new();
        let slices = follow_slices(&ground, &mut tasks);
        serve_names(&ground, &slices, Some(dns_server), &mut tasks)?;
        Ok(Self { host, balancer: Balancer { ground, slices }, _tasks: tasks })
    }

    /// What opens addresses of this machine for Services of the cluster whose Pods are in this network.
    pub fn balancer(&self) -> Balancer {
        self.balancer.clone()
    }

    /// Rules of this network.
    pub fn firewall(&self) -> Firewall {
        Firewall::new(self.host.wire.clone())
    }

    /// The addresses of the Pods of the node with a range, for a [`Firewall`]. The last hop before them is not one of them.
    pub fn pods_of(range: usize) -> String {
        pods_of(range)
    }

    /// Whether a connection from one address of this network to another one is made within a time.
    pub async fn connects(&self, from: Ipv4Addr, to: SocketAddr, limit: Duration) -> bool {
        let bound = self.host.wire.within(move || {
            let socket = TcpSocket::new_v4()?;
            socket.bind((from, 0).into())?;
            Ok(socket)
        });
        let Ok(socket) = bound else { return false };
        timeout(limit, socket.connect(to)).await.is_ok_and(|outcome| outcome.is_ok())
    }

    /// What opens addresses in this network that lead to servers of this machine.
    pub fn network(&self) -> PodNetwork {
        PodNetwork { wire: self.host.wire.clone() }
    }

    /// Gives the nodes a further address, where their programs may listen.
    pub async fn add_address(&self, address: Ipv4Addr) -> Result<()> {
        let address = format!("{address}/32");
        self.host.wire.in_hub("ip", &["address", "replace", &address, "dev", "lo"]).await.map(drop)
    }

    /// Adds a node with an address. `range` chooses the addresses of its Pods; no other node has the same.
    ///
    /// Errors: when there is no such range.
    pub async fn add_node(&self, name: &str, range: usize, address: Ipv4Addr) -> Result<NetworkNode> {
        ensure!(range < MAX_NODES, "there are addresses for {MAX_NODES} nodes");
        self.add_address(address).await?;
        // It ends processes of its own without those of other nodes.
        let host = Host { roster: Arc::new(Roster::new()), ..self.host.clone() };
        Ok(NetworkNode { host, name: name.to_owned(), range, address, pods: None })
    }
}

impl Drop for NodeNetwork {
    fn drop(&mut self) {
        self.host.roster.close();
    }
}

impl NetworkNode {
    /// Its address, which it shares with no other node.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Starts a program in the network of the nodes, and waits until it has printed a line.
    ///
    /// Errors: when it exits before, with its log; or after a while.
    pub async fn start(&self, program: &Path, args: &[String], line: &str) -> Result<()> {
        let file = program.file_name().unwrap_or_default().to_string_lossy();
        let title = format!("{file}-{}", self.name);
        let spec = Spec::new(&title, "nsenter").arg(self.host.wire.network_option()).arg(program).args(args);
        let started = self.host.roster.start(&title, self.host.dir.clone(), spec)?;
        started.wait_for_line(line).await.with_context(|| format!("failed to start {title}"))
    }

    /// Runs the Pods of this node that have only images among these, from now on; others are left alone. The clients act as the node.
    pub fn run_pods(&mut self, client: Client, api: http::Api, images: Images) {
        let address = self.address;
        let node = NodeSpec { address, ..NodeSpec::new(self.name.clone(), [].into(), self.range) };
        let known = images.clone();
        let ground = Arc::new(Ground::new(self.host.clone(), (client, api), vec![node], images));
        let own = watcher::Config::default().fields(&format!("spec.nodeName={}", self.name));
        let pods = lives::follow(ground, own, move |pod| is_of(&known, pod));
        self.pods = Some(tokio::spawn(pods).abort_handle());
    }
}

impl Drop for NetworkNode {
    fn drop(&mut self) {
        if let Some(pods) = &self.pods {
            pods.abort();
        }
        self.host.roster.close();
    }
}

/// Whether all containers of a Pod have known images.
fn is_of(images: &Images, pod: &Pod) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.map(|one| one.image.as_deref().unwrap_or_default()).all(|image| images.has(image))
}
