//! A leader of etcd that the other members cannot reach, while clients reach all three.
//!
//! ```text
//!  clients, here ── 127.0.0.1, a port for each ── a socket file for each, which no network cuts off
//!  member 10.77.0.2 ─┐
//!  member 10.77.1.2 ─┼─ hub: forwards packets between them, but for those that are to be lost
//!  member 10.77.2.2 ─┘
//! ```
//!
//! Members and hub have network namespaces of their own. Nothing of that is seen on the machine, and it ends with its processes.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use repot_storage::backend::{Error, Etcd, Op, Txn, etcd::Options};
use tempfile::TempDir;
use tokio::net::{TcpListener, UnixStream};

use super::{
    clients::Recorder,
    cluster::{Cluster, MemberLocation, done, open},
    runs::Team,
    *,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_may_be_cut_off_from_its_leader() {
    let wire = Wire::lay();
    let cluster = Cluster::start_at(wire.places().await).await;
    let stores = [open(cluster.options()).await, open(cluster.options()).await];
    let recorder = Recorder::new(1, 1, false);
    let mut team = Team::begin(&stores, &recorder, 1).await;
    let rounds = usize::try_from(period(1).as_secs()).unwrap() * 3;
    let faults = async {
        for lost in [Lost::Both, Lost::FromIt, Lost::ToIt].into_iter().cycle().take(rounds) {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let leader = cluster.leader().await;
            wire.cut(leader, lost);
            // The others choose another, while clients go on to ask the old one.
            cluster.leader_of(&[(leader + 1) % 3, (leader + 2) % 3]).await;
            says_nothing(&cluster, leader).await;
            wire.heal();
            cluster.healthy().await;
        }
    };
    let lasts = Duration::from_secs(3) * u32::try_from(rounds).unwrap();
    tokio::join!(team.work(lasts), faults);
    let history = team.end().await;
    done(&history, &stores).await;
}

/// A member that is alone is reached, and neither reads nor writes anything.
async fn says_nothing(cluster: &Cluster, index: usize) {
    assert!(cluster.status(index).await.is_some(), "clients do not reach it");
    let endpoints = vec![cluster.options().endpoints[index].clone()];
    let options = Options { endpoints, deadline: Duration::from_millis(500), ..cluster.options() };
    let alone = Etcd::connect(options).await.unwrap();
    let read = alone.get("/alone".into(), None).await;
    assert!(matches!(read, Err(Error::Unavailable(_))), "{read:?}");
    let ops = vec![Op::Put("/alone".into(), Bytes::new())];
    let written = alone.txn(Txn { compares: vec![], ops }).await;
    let is_refused = matches!(written, Err(Error::Unavailable(_) | Error::Declined(_) | Error::Unknown(_)));
    assert!(is_refused, "{written:?}");
}

/// Which packets are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    Both,
    /// Those that the member sends.
    FromIt,
    /// Those that are sent to it.
    ToIt,
}

/// The network of the members.
struct Wire {
    hub: Namespace,
    members: [Namespace; 3],
    sockets: TempDir,
}

/// Runs in the hub.
const LAY: &str = "set -e
PATH=$PATH:/usr/sbin:/sbin
pid=$1 name=$2 gateway=$3 member=$4
ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
ip link add \"$name\" type veth peer name eth0 netns \"$pid\"
ip address add \"$gateway\" peer \"$member/32\" dev \"$name\"
ip link set \"$name\" up
exec nsenter --net=/proc/$pid/ns/net /bin/sh -c 'set -e
ip link set lo up
ip address add \"$1\" peer \"$2/32\" dev eth0
ip link set eth0 up
ip route add default via \"$2\"' - \"$member\" \"$gateway\"";

impl Wire {
    fn lay() -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "members that can be cut off need network namespaces, which only root can make: run these tests as root"
        );
        let hub = Namespace::make();
        let members = [0, 1, 2].map(|index| {
            let member = Namespace::make();
            let id = member.0.id().to_string();
            hub.run(LAY, &[&id, &format!("m{index}"), &format!("10.77.{index}.1"), &address(index)]);
            member
        });
        Self { hub, members, sockets: tempfile::tempdir().unwrap() }
    }

    /// Where members are to run.
    async fn places(&self) -> [MemberLocation; 3] {
        let mut places = Vec::new();
        for (index, member) in self.members.iter().enumerate() {
            let socket = self.sockets.path().join(format!("m{index}"));
            let listen = format!("unix://{}", socket.display());
            let peer = format!("http://{}:2380", address(index));
            places.push(MemberLocation {
                endpoint: forward(socket).await,
                listen,
                peer,
                within: Some(member.0.id()),
            });
        }
        places.try_into().ok().unwrap()
    }

    /// From now on packets between this member and the others are lost. Nobody is told.
    fn cut(&self, index: usize, lost: Lost) {
        let member = address(index);
        for (way, but) in [("from", Lost::ToIt), ("to", Lost::FromIt)] {
            if lost != but {
                self.hub.run(
                    "PATH=$PATH:/sbin:/usr/sbin; ip rule add pref 1000 $1 $2 blackhole",
                    &[way, &member],
                );
            }
        }
    }

    /// No packet is lost any more.
    fn heal(&self) {
        self.hub
            .run("PATH=$PATH:/sbin:/usr/sbin; while ip rule delete pref 1000 2>/dev/null; do :; done", &[]);
    }
}

fn address(index: usize) -> String {
    format!("10.77.{index}.2")
}

/// Hands every connection to a port of this machine on to a socket file. The URL of the port.
async fn forward(socket: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let socket = socket.clone();
            tokio::spawn(async move {
                if let Ok(mut member) = UnixStream::connect(socket).await {
                    // Either side may break off.
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut member).await;
                }
            });
        }
    });
    format!("http://127.0.0.1:{port}")
}

/// A network namespace, as long as its process runs; which ends with this one, whose pipe it reads.
struct Namespace(Child);

impl Namespace {
    fn make() -> Self {
        let mut command = Command::new("unshare");
        command.args(["--net", "/bin/sh", "-c", "echo up; exec cat"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "up\n", "no network namespace can be made");
        Self(child)
    }

    fn run(&self, script: &str, arguments: &[&str]) {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.0.id())).args(["/bin/sh", "-c", script, "-"]);
        let output = command.args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
