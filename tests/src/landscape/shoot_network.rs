//! The network of a Shoot's nodes: kubelets and real Pods are in it, and load balancers of all seeds, but no kube-apiserver is.
//!
//! ```text
//!  10.250.Z.N  nodes, each with a kubelet at port 10250       10.77.a.b  load balancers of all seeds (`wide_network`)
//!  10.4.10.10  the Service hook, as kube-proxy would have it  10.0.0.10  names: Services, and those of the landscape's zone
//!  10.102.a.b  Pods of the first node; each further node has the next range
//! ```
//!
//! Z is the number of the zone. Each zone has addresses of its own, of nodes and of Pods, as subnets of a cloud: they can be cut off.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::Result;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use super::authorities::Authorities;
use super::control_plane::API_PORT;
use super::dns::{Dns, Resolver};
use super::konnectivity::AGENT;
use super::shoot::ShootName;
use super::subnets::Subnets;
use super::tunnel::{HOOK_IP, HOOK_NAME, HOOK_PORT};
use super::wide_network::{WideNetwork, here};
use crate::binaries;
use crate::pods::{Balancer, Image, Images, NetworkNode, NodeNetwork};
use crate::test_env::TestEnv;

/// Where a kubelet serves.
pub const KUBELET_PORT: u16 = 10250;
const KUBELET: &str = "kubelet";
/// The group of nodes.
const NODES: &str = "system:nodes";
/// From one look at the record of the API to the next.
const RECORD_PERIOD: Duration = Duration::from_millis(500);

/// The network of the nodes of one Shoot. It ends when it is dropped.
pub struct ShootNetwork {
    shoot: ShootName,
    authorities: Arc<Authorities>,
    resolver: Resolver,
    wide: Arc<WideNetwork>,
    network: NodeNetwork,
    subnets: Subnets,
    /// What Pods run for real.
    images: Images,
    dir: PathBuf,
    /// A port of this machine that leads to the API, wherever its record points.
    api_port: u16,
    api_relay: AbortHandle,
    /// Held by the node that serves the Service hook.
    hook: Mutex<Weak<()>>,
}

/// A node in the network: its kubelet and its real Pods. They end when it is dropped.
pub struct ShootNode {
    node: NetworkNode,
    _hook: Option<Arc<()>>,
}

impl ShootNetwork {
    /// Makes the network. Load balancers that open later appear in it.
    pub async fn start(
        env: &TestEnv,
        shoot: &ShootName,
        authorities: &Arc<Authorities>,
        dns: &Dns,
        wide: &Arc<WideNetwork>,
    ) -> Result<Self> {
        let name = shoot.technical_id();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (api_port, resolver) = (listener.local_addr()?.port(), dns.resolver());
        let api_relay = tokio::spawn(relay(listener, shoot.api_domain(), resolver.clone())).abort_handle();
        let reader = Reader { shoot, authorities, resolver: &resolver, api_port };
        let masters = ("admin", "system:masters");
        let clients = (reader.client(masters).await?, reader.api(masters)?);
        let network = NodeNetwork::start(env, &format!("nodes-{name}"), dns.address(), clients).await?;
        network.add_address(HOOK_IP).await?;
        wide.join(&name, network.network());
        Ok(Self {
            subnets: Subnets::new(network.firewall()),
            shoot: shoot.clone(),
            authorities: authorities.clone(),
            resolver,
            wide: wide.clone(),
            network,
            images: Images::default().with(AGENT, Image::of(binaries::find(AGENT)?)),
            dir: env.make_dir(&format!("kubelets-{name}"))?,
            api_port,
            api_relay,
            hook: Mutex::default(),
        })
    }

    /// What Pods run for real; more may be added before Pods come that have them.
    pub fn images(&self) -> &Images {
        &self.images
    }

    /// The subnets of its zones.
    pub fn subnets(&self) -> &Subnets {
        &self.subnets
    }

    /// What opens addresses of this machine for Services of the Shoot whose Pods are real.
    pub fn balancer(&self) -> Balancer {
        self.network.balancer()
    }

    /// The network that its nodes and Pods are in.
    pub fn network(&self) -> &NodeNetwork {
        &self.network
    }

    /// Adds a node in a zone, and waits until its kubelet serves. The first one that there is serves the Service hook as well.
    pub async fn join(&self, name: &str, zone: &str) -> Result<ShootNode> {
        let (address, range) = self.subnets.place(name, zone)?;
        let node = self.network.add_node(name, range, address).await?;
        let hook = self.claim_hook();
        let mut args = self.kubelet_args(name, address)?;
        if hook.is_some() {
            args.extend(self.hook_args()?);
        }
        node.start(&binaries::find(KUBELET)?, &args, "ready").await?;
        let mut joined = ShootNode { node, _hook: hook };
        let user = format!("system:node:{name}");
        let reader = self.reader();
        let (client, api) = (reader.client((&user, NODES)).await?, reader.api((&user, NODES))?);
        joined.node.run_pods(client, api, self.images.clone());
        Ok(joined)
    }

    /// Whether a Pod runs for real. Others only say that they do.
    pub fn is_real(&self, pod: &Value) -> bool {
        let containers = pod["spec"]["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
        containers.iter().all(|one| self.images.has(one["image"].as_str().unwrap_or_default()))
    }

    fn claim_hook(&self) -> Option<Arc<()>> {
        let mut hook = self.hook.lock();
        if hook.upgrade().is_some() {
            return None;
        }
        let claimed = Arc::new(());
        *hook = Arc::downgrade(&claimed);
        Some(claimed)
    }

    fn kubelet_args(&self, name: &str, address: Ipv4Addr) -> Result<Vec<String>> {
        let serving = self.authorities.cluster.server(&[&address.to_string(), name])?;
        let (cert, key) = serving.write(&self.dir, name)?;
        let client_ca = self.authorities.client.write(&self.dir, "client-ca")?;
        let flags = [
            ("listen", format!("{address}:{KUBELET_PORT}")),
            ("tls-cert", cert.display().to_string()),
            ("tls-key", key.display().to_string()),
            ("client-ca", client_ca.display().to_string()),
            ("name", name.to_owned()),
        ];
        Ok(flags.map(|(flag, value)| format!("--{flag}={value}")).into())
    }

    fn hook_args(&self) -> Result<[String; 3]> {
        let (cert, key) = self.authorities.cluster.server(&[HOOK_NAME])?.write(&self.dir, "hook")?;
        let listen = format!("--webhook-listen={HOOK_IP}:{HOOK_PORT}");
        Ok([listen, format!("--webhook-cert={}", cert.display()), format!("--webhook-key={}", key.display())])
    }

    fn reader(&self) -> Reader<'_> {
        let Self { shoot, authorities, resolver, api_port, .. } = self;
        Reader { shoot, authorities, resolver, api_port: *api_port }
    }
}

/// Makes clients of the API.
struct Reader<'a> {
    shoot: &'a ShootName,
    authorities: &'a Arc<Authorities>,
    resolver: &'a Resolver,
    /// As of [`ShootNetwork`].
    api_port: u16,
}

impl Reader<'_> {
    /// A client of a user with a group. It resolves the name of the API each time.
    fn api(&self, (user, group): (&str, &str)) -> Result<crate::http::Api> {
        self.authorities.api(self.shoot, self.resolver.clone(), user, &[group])
    }

    /// The same with watches. Its connections end when the record of the API changes.
    async fn client(&self, (user, group): (&str, &str)) -> Result<Client> {
        let server = format!("https://127.0.0.1:{}", self.api_port);
        let access = self.authorities.access(&server, user, &[group])?;
        let mut kubeconfig: Value = serde_json::from_str(&access.to_kubeconfig())?;
        kubeconfig["clusters"][0]["cluster"]["tls-server-name"] = self.shoot.api_domain().into();
        let kubeconfig = Kubeconfig::from_yaml(&kubeconfig.to_string())?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Client::try_from(config)?)
    }
}

impl Drop for ShootNetwork {
    fn drop(&mut self) {
        // An address that opens from now on does not open here.
        self.wide.leave(&self.shoot.technical_id());
        self.api_relay.abort();
    }
}

impl ShootNode {
    /// The address of the node, which kube-apiserver reaches through the tunnel only.
    pub fn address(&self) -> Ipv4Addr {
        self.node.address()
    }
}

/// Connects each client with the API by its name, for ever.
async fn relay(listener: TcpListener, domain: String, resolver: Resolver) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // A connection that was gone before it was accepted is nobody's loss.
                let Ok((client, _)) = accepted else { continue };
                connections.spawn(connect(client, domain.clone(), resolver.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Ends with the connection, or when the record does not name the address any more: a seed that is dead closes nothing.
async fn connect(mut client: TcpStream, domain: String, resolver: Resolver) {
    let Ok(addresses) = resolver.addresses(&domain).await else { return };
    let Some(address) = addresses.first().copied() else { return };
    let Ok(mut server) = TcpStream::connect(SocketAddr::from((here(address), API_PORT))).await else {
        return;
    };
    let moved = async {
        loop {
            sleep(RECORD_PERIOD).await;
            // A zone that does not answer says nothing about the API.
            if resolver.addresses(&domain).await.is_ok_and(|found| !found.contains(&address)) {
                return;
            }
        }
    };
    tokio::select! {
        // Its errors show at both ends.
        _ = copy_bidirectional(&mut client, &mut server) => {}
        () = moved => {}
    }
}
