//! The network of pods, in network namespaces of its own: nothing of it is seen on the machine, and it ends with its processes.
//!
//! ```text
//!  the machine: tests, kube-apiserver on 127.0.0.1          sockets of the machine
//!  ──────────────────────── door ────────────────────────   a thread of ours inside the hub makes sockets for both sides
//!  hub   10.0.0.1:443  kube-apiserver   10.0.0.10:53 names  forwards packets; its rules cut nodes off
//!    │ 10.101.0.1        │ 10.101.0.1       │ 10.102.0.1    a pair of veth for each pod
//!  10.101.0.2          10.101.0.3         10.102.0.2        a namespace for each pod, with its own localhost
//!  └────────── first node ──────────┘     second node
//! ```

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use anyhow::{Context, Result, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::net::{TcpSocket, TcpStream};

use super::roster::{Roster, Running};
use crate::process::Spec;
use crate::tool;

/// Where pods find kube-apiserver: the address of its Service, which its certificate names.
pub(super) const API_IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Where pods find names.
pub(super) const DNS_IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 10);
/// Where pods find servers of the machine that a test lets them see.
pub const OUTSIDE_IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 20);
/// The second number in the addresses of the first node.
const FIRST_NODE: u8 = 101;
pub(super) const MAX_NODES: usize = 100;

const HUB: &str = "PATH=$PATH:/usr/sbin:/sbin
ip link set lo up
for address in \"$@\"; do ip address add $address/32 dev lo; done
echo 1 >/proc/sys/net/ipv4/ip_forward
echo up
exec sleep infinity";

/// Addresses of Pods of all nodes, and of no server.
const PODS: [&str; 2] = ["10.64.0.0/10", "10.128.0.0/9"];
/// Addresses of all servers.
const SERVERS: &str = "10.0.0.0/24";

const PAUSE: &str = "echo up; exec sleep infinity";

/// Runs in the hub.
const ATTACH: &str = "set -e
PATH=$PATH:/usr/sbin:/sbin
pid=$1 link=$2 pod=$3 gateway=$4
ip link add $link type veth peer name eth0 netns $pid
ip address add $gateway peer $pod/32 dev $link
ip link set $link up
exec nsenter --net=/proc/$pid/ns/net /bin/sh -c 'set -e
ip link set lo up
ip address add $1 peer $2/32 dev eth0
ip link set eth0 up
ip route add default via $2' - $pod $gateway";

/// The hub, and the way in and out.
pub(super) struct Wire {
    roster: Arc<Roster>,
    dir: PathBuf,
    hub: u32,
    errands: mpsc::Sender<Errand>,
    /// Pods so far, by node; addresses are not given twice, so that a stale one leads nowhere.
    given: Mutex<BTreeMap<usize, u16>>,
    /// The number of the next rule of the hub.
    rules: AtomicU32,
}

/// A link that was cut, to be healed by [`PodRunner::heal`](super::PodRunner::heal).
#[derive(Debug)]
#[must_use]
pub struct Cut {
    /// The number of the rule that lets packets pass all the same, if there is one; those that do not have the next.
    rule: u32,
}

type Errand = Box<dyn FnOnce() + Send>;

/// The network of one pod, which ends when it is dropped.
pub(super) struct Sandbox {
    roster: Arc<Roster>,
    name: String,
    pause: Running,
    /// The address of the pod.
    pub(super) ip: Ipv4Addr,
}

impl Wire {
    /// Errors: unless we are root, or when the kernel has no namespaces.
    pub(super) async fn start(roster: Arc<Roster>, dir: PathBuf) -> Result<Self> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "pods need network and mount namespaces, which only root can make: run these tests as root"
        );
        let addresses = [API_IP, DNS_IP, OUTSIDE_IP].map(|ip| ip.to_string());
        let spec = Spec::new("hub", "unshare").args(["--net", "--mount", "/bin/sh", "-c", HUB, "-"]);
        let hub = roster.start("hub", dir.clone(), spec.args(addresses))?;
        hub.wait_until_up().await.context("failed to make the network of pods")?;
        let errands = open_door(hub.pid())?;
        Ok(Self {
            roster,
            dir,
            hub: hub.pid(),
            errands,
            given: Mutex::default(),
            rules: AtomicU32::new(1000),
        })
    }

    /// Makes the network of a pod on the node of that index.
    pub(super) async fn sandbox(&self, name: &str, node: usize) -> Result<Sandbox> {
        let (ip, link) = self.next_address(node)?;
        let file = format!("pause-{link}");
        let spec = Spec::new(&file, "unshare").args(["--net", "/bin/sh", "-c", PAUSE]);
        let pause = self.roster.start(name, self.dir.clone(), spec)?;
        let sandbox = Sandbox { roster: self.roster.clone(), name: name.to_owned(), pause, ip };
        sandbox.pause.wait_until_up().await?;
        let pid = sandbox.pid().to_string();
        let gateway = gateway(node).to_string();
        self.in_hub("/bin/sh", &["-c", ATTACH, "-", &pid, &link, &ip.to_string(), &gateway]).await?;
        Ok(sandbox)
    }

    /// Runs a program in the hub to its end.
    pub(super) async fn in_hub(&self, program: &str, args: &[&str]) -> Result<String> {
        self.in_hub_with(program, args, "").await
    }

    /// The same with an input.
    pub(super) async fn in_hub_with(&self, program: &str, args: &[&str], input: &str) -> Result<String> {
        tool::run(self.command(program, args).into(), input.as_bytes()).await?.text()
    }

    /// The same where nobody can wait.
    pub(super) fn in_hub_blocking(&self, program: &str, args: &[&str]) -> io::Result<()> {
        self.command(program, args).output().map(drop)
    }

    /// Programs of administrators are found, too.
    fn command(&self, program: &str, args: &[&str]) -> std::process::Command {
        let mut command = std::process::Command::new("nsenter");
        command.args([&self.network_option(), &self.mounts()]).arg(program).args(args);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
        command
    }

    /// nsenter's option for the network of the hub.
    pub(super) fn network_option(&self) -> String {
        format!("--net=/proc/{}/ns/net", self.hub)
    }

    /// nsenter's option for the mounts of the hub.
    pub(super) fn mounts(&self) -> String {
        format!("--mount=/proc/{}/ns/mnt", self.hub)
    }

    /// How the tests find a path of the hub, which may have something mounted there.
    pub(super) fn seen_from_here(&self, path: &Path) -> PathBuf {
        Path::new(&format!("/proc/{}/root", self.hub)).join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Connects to an address in the hub or of a pod.
    pub(super) async fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        self.within(TcpSocket::new_v4)?.connect(to).await
    }

    /// Makes something in the hub that stays there wherever it is used, such as a socket. It must not block.
    pub(super) fn within<T: Send + 'static>(
        &self,
        make: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (answer, made) = mpsc::channel();
        let gone = || io::Error::other("the door to the network of pods is shut");
        // Nobody listens when the caller was dropped meanwhile.
        self.errands.send(Box::new(move || drop(answer.send(make())))).map_err(|_| gone())?;
        made.recv().map_err(|_| gone())?
    }

    /// Lets no packet pass between two ranges of addresses, in either direction: connections stay and wait.
    pub(super) async fn cut(&self, a: &str, b: &str) -> Result<Cut> {
        let cut = Cut { rule: self.rules.fetch_add(2, Ordering::Relaxed) };
        for (from, to) in [(a, b), (b, a)] {
            self.add_rule(cut.rule + 1, from, to, &["blackhole"]).await?;
        }
        Ok(cut)
    }

    /// The same between the pods of a node and everything but themselves.
    pub(super) async fn isolate(&self, node: usize) -> Result<Cut> {
        let range = range(node);
        let cut = self.cut(&range, "10.0.0.0/8").await?;
        self.add_rule(cut.rule, &range, &range, &["lookup", "main"]).await?;
        Ok(cut)
    }

    /// Lets no packet pass between Pods and kube-apiserver, DNS and servers of this machine. Pods still reach each other.
    pub(super) async fn cut_servers(&self) -> Result<Cut> {
        let cut = Cut { rule: self.rules.fetch_add(2, Ordering::Relaxed) };
        for pods in PODS {
            self.add_rule(cut.rule + 1, SERVERS, pods, &["blackhole"]).await?;
        }
        Ok(cut)
    }

    /// Lets no answer of a server of this machine reach a Pod, over UDP and TCP: what Pods send still arrives.
    pub(super) async fn cut_server(&self, server: SocketAddr) -> Result<Cut> {
        let cut = Cut { rule: self.rules.fetch_add(2, Ordering::Relaxed) };
        let port = server.port().to_string();
        for protocol in ["udp", "tcp"] {
            let action = ["ipproto", protocol, "sport", &port, "blackhole"];
            self.add_rule(cut.rule + 1, &server.ip().to_string(), "10.0.0.0/8", &action).await?;
        }
        Ok(cut)
    }

    pub(super) async fn heal(&self, cut: Cut) -> Result<()> {
        let script = "for pref in $1 $2; do while ip rule delete pref $pref 2>/dev/null; do :; done; done";
        let rules = [cut.rule, cut.rule + 1].map(|rule| rule.to_string());
        self.in_hub("/bin/sh", &["-c", script, "-", &rules[0], &rules[1]]).await.map(drop)
    }

    async fn add_rule(&self, number: u32, from: &str, to: &str, action: &[&str]) -> Result<()> {
        let number = number.to_string();
        let rule = ["rule", "add", "pref", &number, "from", from, "to", to];
        self.in_hub("ip", &[&rule[..], action].concat()).await.map(drop)
    }

    fn next_address(&self, node: usize) -> Result<(Ipv4Addr, String)> {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let count = given.entry(node).or_insert(1);
        *count = count.checked_add(1).context("all addresses of the node have been given away")?;
        let [high, low] = count.to_be_bytes();
        // Names of links have 15 characters at most.
        Ok((Ipv4Addr::new(10, network(node), high, low), format!("v{node}-{count}")))
    }
}

impl Sandbox {
    /// The process whose network namespace it is.
    pub(super) fn pid(&self) -> u32 {
        self.pause.pid()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.roster.end(&self.name, &self.pause);
    }
}

/// The address of the node of that index, which is the gateway of its pods.
pub(super) fn gateway(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, network(node), 0, 1)
}

/// The addresses of its pods.
pub(super) fn range(node: usize) -> String {
    format!("10.{}.0.0/16", network(node))
}

/// The addresses of its pods, without that of their gateway.
pub(super) fn pods_of(node: usize) -> String {
    let second = network(node);
    format!("10.{second}.0.2-10.{second}.255.255")
}

fn network(node: usize) -> u8 {
    u8::try_from(node.min(MAX_NODES)).unwrap_or_default() + FIRST_NODE
}

/// A thread that lives in the network namespace of a process and makes there what it is asked for; it ends with the sender.
fn open_door(pid: u32) -> Result<mpsc::Sender<Errand>> {
    let namespace = File::open(format!("/proc/{pid}/ns/net"))?;
    let (errands, inbox) = mpsc::channel::<Errand>();
    let (opened, outcome) = mpsc::channel();
    std::thread::Builder::new().name("pods-door".to_owned()).spawn(move || {
        let entered = move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network));
        if opened.send(entered).is_ok() {
            inbox.into_iter().for_each(|errand| errand());
        }
    })?;
    outcome.recv()?.context("failed to enter the network of pods")?;
    Ok(errands)
}
