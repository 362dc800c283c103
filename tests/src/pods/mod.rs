//! The kubelet's place in a garden: nodes whose Pods are processes of this machine, for what real controllers make of
//! StatefulSets, Deployments and Jobs.
//!
//! [`PodRunner::start`] makes Nodes and keeps their leases, starts the real kube-scheduler (so affinity, zones, taints and volumes
//! that wait for a consumer mean what they mean elsewhere), runs every Pod that is bound to one of the nodes, and makes volumes
//! for claims whose StorageClass names [`PROVISIONER`]. The garden needs its kube-controller-manager.
//!
//! **What a container is.** The programs that its image stands for ([`Images`]), in namespaces made by `unshare` of util-linux:
//! a root of its own (that of its image, or the root of the machine, with `/run` and `/tmp` empty; what is written there vanishes
//! with the container), its volumes at their real places, the network of its Pod with a localhost of its own, the host name of its
//! Pod, an environment of its own. A Pod sees all processes of the machine. The root user is needed; without it the start fails and
//! says so.
//!
//! **Who a container is.** As under a kubelet: user, groups, `runAsNonRoot`, `allowPrivilegeEscalation`, capabilities that are
//! dropped, `readOnlyRootFilesystem`, and of volumes `fsGroup` and modes. A container without a word about capabilities has all of
//! them. Seccomp, AppArmor and SELinux are left out without a word. What runs beside a container, a probe or a hook, runs as its
//! user, and may have more capabilities when that is root.
//!
//! **What is where.** Pods have addresses 10.101.0.0/16 (first node), 10.102.0.0/16 and so on, which only they can reach, over
//! routes that a test may cut. They find kube-apiserver at `kubernetes.default.svc`, 10.0.0.1:443, as in any cluster, with the token
//! of their service account; the names of Services and of Pods behind them (the head of `dns.rs` has the rule); and servers of this
//! machine at 10.0.0.20 after [`PodRunner::expose`] or [`PodRunner::expose_dns`]. kube-apiserver and tests reach them on 127.0.0.1 after
//! [`PodRunner::publish`]: for a webhook register that port with a Service of type ExternalName to `localhost`. Output is under
//! the env, in `pods/<namespace>.<pod>.<uid>/<container>`; `kubectl logs` and `exec` are not served.
//!
//! **What is left out**, each with a message of its own where a Pod asks for it: `postStart`, hooks by HTTP, gRPC probes,
//! `resourceFieldRef`, block devices, other volumes than `configMap`, `secret`, `projected`, `downwardAPI`, `emptyDir`,
//! `hostPath` and claims. Without a word: `hostNetwork`, `hostAliases`, limits of resources,
//! `activeDeadlineSeconds`, ephemeral containers. Restarts back off from 250 ms to 5 s, and volumes of
//! ConfigMaps and Secrets follow within 2 s.

mod balancer;
mod claim;
mod container;
mod dns;
mod egress;
mod environment;
mod fault;
mod firewall;
mod gate;
mod host;
mod image;
mod lives;
mod network;
mod node;
mod node_network;
mod pod;
mod probe;
mod report;
mod root;
mod roster;
mod security;
mod service_proxy;
mod slow;
mod status;
mod volume;
mod wire;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::access::{Access, Credential};
use crate::garden::Garden;
use crate::process::{Process, Spec};
use crate::test_env::TestEnv;
use crate::{binaries, http, port};
pub use balancer::Balancer;
pub use egress::Egress;
pub use firewall::{Firewall, SlowZone};
use host::Host;
pub use image::{Image, ImageConfig, Images};
pub use network::PodNetwork;
use node::NodeSpec;
pub use node_network::{NetworkNode, NodeNetwork};
use root::Mount;
use roster::Roster;
use wire::{API_IP, DNS_IP, Wire};
pub use wire::{Cut, OUTSIDE_IP};

/// The provisioner that StorageClasses name. `parameters: {quota: enforced}` gives volumes that are full at their size.
pub const PROVISIONER: &str = "testbed.repot.dev/directory";

/// Where name servers answer.
const DNS_PORT: u16 = 53;
const START_DEADLINE: Duration = Duration::from_secs(60);

/// What kind of nodes to run.
#[derive(Clone, Debug, Default)]
pub struct PodRunnerOptions {
    /// The nodes: a name and labels for each, such as `topology.kubernetes.io/zone`; one node `node-0` when empty.
    pub nodes: Vec<(String, BTreeMap<String, String>)>,
    /// What the names of images stand for.
    pub images: Images,
    /// A DNS server of this machine for names outside the cluster; without it there are none.
    pub upstream_dns: Option<SocketAddr>,
    /// Whether addresses of Services lead to their endpoints, as with kube-proxy, and names of Services to these addresses.
    pub service_proxy: bool,
}

/// Nodes that run Pods. Everything ends when it is dropped.
pub struct PodRunner {
    ground: Arc<Ground>,
    slices: Store<EndpointSlice>,
    tasks: std::sync::Mutex<JoinSet<()>>,
    _scheduler: Process,
}

/// What all parts of a runner stand on.
struct Ground {
    client: Client,
    api: http::Api,
    wire: Arc<Wire>,
    roster: Arc<Roster>,
    images: Images,
    nodes: Vec<NodeSpec>,
    /// Logs, and the volumes of claims.
    dir: PathBuf,
    /// The empty directory over which containers get their roots.
    root: PathBuf,
    other_mounts: Vec<Mount>,
    /// Whether containers that ended wait as long as under a kubelet.
    waits_as_kubelet: AtomicBool,
    /// Empty without a service proxy.
    service_ips: service_proxy::ServiceIps,
}

impl PodRunner {
    /// Starts nodes in a garden that has its kube-controller-manager, and waits until Pods can be scheduled to them.
    ///
    /// Errors: unless we are root on a kernel with namespaces and overlays, or when a program is missing.
    pub async fn start(env: &TestEnv, garden: &Garden, mut options: PodRunnerOptions) -> Result<Self> {
        if options.nodes.is_empty() {
            options.nodes.push(("node-0".to_owned(), BTreeMap::new()));
        }
        ensure!(options.nodes.len() <= wire::MAX_NODES, "there are addresses for {} nodes", wire::MAX_NODES);
        let ground = Arc::new(Ground::make(env, garden, options.nodes, options.images).await?);
        let mut tasks = JoinSet::new();
        let slices = follow_slices(&ground, &mut tasks);
        serve_names(&ground, &slices, options.upstream_dns, &mut tasks)?;
        serve_api(&ground, garden, &mut tasks)?;
        for index in 0..ground.nodes.len() {
            node::register(&ground, index).await?;
            tasks.spawn(node::beat(ground.clone(), index));
        }
        tasks.spawn(lives::follow(ground.clone(), watcher::Config::default(), |_| true));
        tasks.spawn(claim::provision(ground.clone()));
        tasks.spawn(claim::reclaim(ground.clone()));
        if options.service_proxy {
            tasks.spawn(service_proxy::serve(ground.clone(), slices.clone()));
        }
        let scheduler = start_scheduler(env, garden).await?;
        Ok(Self { ground, slices, tasks: std::sync::Mutex::new(tasks), _scheduler: scheduler })
    }

    /// What the names of images stand for; further ones may be added.
    pub fn images(&self) -> &Images {
        &self.ground.images
    }

    /// A StorageClass of our provisioner: `binding` is `Immediate` or `WaitForFirstConsumer`, `reclaim` is `Delete` or `Retain`.
    pub fn storage_class(name: &str, binding: &str, reclaim: &str) -> Value {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}, "provisioner": PROVISIONER,
            "volumeBindingMode": binding, "reclaimPolicy": reclaim,
        })
    }

    /// A port on 127.0.0.1 that leads to a port of a name of the cluster, such as `etcd-0.etcd.plants.svc`: each connection goes
    /// to the first address that the name has at that moment, and is closed when it has none.
    pub async fn publish(&self, name: &str, port: u16) -> Result<u16> {
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port::reserve()?));
        self.spawn(self.balancer().forward(at, name, port, |_| 0).await?);
        Ok(at.port())
    }

    /// What opens addresses of this machine for Services of the cluster.
    pub fn balancer(&self) -> Balancer {
        Balancer { ground: self.ground.clone(), slices: self.slices.clone() }
    }

    /// What opens further addresses in the network of its Pods.
    pub fn network(&self) -> PodNetwork {
        PodNetwork { wire: self.ground.wire.clone() }
    }

    /// Lets Pods reach a server on a port of 127.0.0.1 over TCP; gives the address under which they do.
    pub fn expose(&self, port: u16) -> Result<SocketAddr> {
        let address = SocketAddr::from((OUTSIDE_IP, port));
        let listener = self.ground.wire.listen(address)?;
        self.spawn(gate::relay(listener, move || TcpStream::connect((Ipv4Addr::LOCALHOST, port))));
        Ok(address)
    }

    /// Lets Pods reach a DNS server of 127.0.0.1 at port 53: over UDP that of the first port, whose datagrams get one answer each within
    /// five seconds, and over TCP that of the second.
    pub fn expose_dns(&self, (udp, tcp): (u16, u16)) -> Result<SocketAddr> {
        let address = SocketAddr::from((OUTSIDE_IP, DNS_PORT));
        let socket = self.ground.wire.receive(address)?;
        self.spawn(dns::relay(socket, (Ipv4Addr::LOCALHOST, udp).into()));
        let listener = self.ground.wire.listen(address)?;
        self.spawn(gate::relay(listener, move || TcpStream::connect((Ipv4Addr::LOCALHOST, tcp))));
        Ok(address)
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Ok(mut tasks) = self.tasks.lock() {
            tasks.spawn(task);
        }
    }
}

impl Drop for PodRunner {
    fn drop(&mut self) {
        self.ground.roster.close();
    }
}

impl Ground {
    async fn make(
        env: &TestEnv,
        garden: &Garden,
        nodes: Vec<(String, BTreeMap<String, String>)>,
        images: Images,
    ) -> Result<Self> {
        let config = Kubeconfig::read_from(garden.kubeconfig())?;
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
        let host = Host::start(env, "pods").await?;
        let nodes = nodes.into_iter().enumerate();
        let nodes = nodes.map(|(at, (name, labels))| NodeSpec::new(name, labels, at)).collect();
        Ok(Self::new(host, (Client::try_from(config)?, garden.api().clone()), nodes, images))
    }

    fn new(host: Host, (client, api): (Client, http::Api), nodes: Vec<NodeSpec>, images: Images) -> Self {
        let Host { wire, roster, dir, root, other_mounts } = host;
        let waits_as_kubelet = AtomicBool::new(false);
        let service_ips = service_proxy::ServiceIps::default();
        Self {
            client,
            api,
            wire,
            roster,
            images,
            nodes,
            dir,
            root,
            other_mounts,
            waits_as_kubelet,
            service_ips,
        }
    }
}

fn follow_slices(ground: &Ground, tasks: &mut JoinSet<()>) -> Store<EndpointSlice> {
    let (store, writer) = reflector::store();
    let all = Api::<EndpointSlice>::all(ground.client.clone());
    let events = watcher(all, watcher::Config::default()).default_backoff().reflect(writer);
    tasks.spawn(events.for_each(async |_| ()));
    store
}

fn serve_names(
    ground: &Ground,
    slices: &Store<EndpointSlice>,
    upstream: Option<SocketAddr>,
    tasks: &mut JoinSet<()>,
) -> Result<()> {
    let socket = ground.wire.receive((DNS_IP, DNS_PORT).into())?;
    tasks.spawn(dns::serve(socket, slices.clone(), ground.service_ips.clone(), upstream));
    Ok(())
}

/// kube-apiserver at the address of its Service.
fn serve_api(ground: &Ground, garden: &Garden, tasks: &mut JoinSet<()>) -> Result<()> {
    let server = garden.admin().server.strip_prefix("https://").context("kube-apiserver serves no TLS")?;
    let server: SocketAddr = server.parse()?;
    let listener = ground.wire.listen((API_IP, 443).into())?;
    tasks.spawn(gate::relay(listener, move || TcpStream::connect(server)));
    Ok(())
}

async fn start_scheduler(env: &TestEnv, garden: &Garden) -> Result<Process> {
    let (pki, port) = (garden.pki(), port::reserve()?);
    let serving = pki.serving.server(&["localhost", "127.0.0.1"])?;
    let (cert, key) = serving.write(&env.make_dir("scheduler-pki")?, "scheduler")?;
    let kubeconfig = garden.user_kubeconfig("system:kube-scheduler", &[])?;
    let spec = Spec::new("kube-scheduler", binaries::find("kube-scheduler")?)
        .flag("kubeconfig", &kubeconfig)
        .flag("authentication-kubeconfig", &kubeconfig)
        .flag("authorization-kubeconfig", &kubeconfig)
        .flag("bind-address", "127.0.0.1")
        .flag("secure-port", port.to_string())
        .flag("tls-cert-file", cert)
        .flag("tls-private-key-file", key)
        .flag("leader-elect", "false");
    let mut process = Process::start(env, spec)?;
    let server = format!("https://127.0.0.1:{port}");
    let api =
        http::Api::new(&Access { server, ca_pem: pki.serving.pem(), credential: Credential::Anonymous })?;
    let healthy = async || {
        let answer = api.get("/healthz").await?;
        ensure!(answer.status == 200, "{answer}");
        Ok(())
    };
    process.ready(START_DEADLINE, healthy).await?;
    Ok(process)
}
