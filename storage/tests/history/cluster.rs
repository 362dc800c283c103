//! etcd at its worst: the leader of three members is killed, a member is lost and comes back, and one that is alone stops
//! answering for longer than its clients wait, and then goes on with all that it was sent.

use std::{
    fs::File,
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    time::Instant,
};

use repot_storage::backend::{Etcd, etcd::Options};
use tempfile::TempDir;

use super::{
    clients::Recorder,
    record::History,
    runs::{self, PATIENCE, Team, judge},
    *,
};
use crate::store::{EtcdProcess, etcd_process::binary};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_may_lose_its_leader_and_any_one_member() {
    let mut cluster = Cluster::start().await;
    let stores = [open(cluster.options()).await, open(cluster.options()).await];
    let recorder = Recorder::new(1, 1, false);
    let mut team = Team::begin(&stores, &recorder, 1).await;
    let rounds = period(1).as_secs();
    let faults = async {
        for round in 0..rounds {
            tokio::time::sleep(Duration::from_millis(1500)).await;
            let lost = cluster.leader().await;
            cluster.kill(lost);
            tokio::time::sleep(Duration::from_millis(2500)).await;
            cluster.spawn(lost);
            cluster.healthy().await;
            let lost = (cluster.leader().await + 1 + round as usize % 2) % 3;
            cluster.kill(lost);
            tokio::time::sleep(Duration::from_millis(500)).await;
            cluster.spawn(lost);
            cluster.healthy().await;
        }
    };
    let lasts = Duration::from_secs(7) * u32::try_from(rounds).unwrap();
    tokio::join!(team.work(lasts), faults);
    let history = team.end().await;
    done(&history, &stores).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_may_do_what_nobody_waits_for_any_more() {
    let process = EtcdProcess::start(None, &[]).await;
    let options = || Options { deadline: Duration::from_millis(400), ..process.options() };
    let stores = [open(options()).await, open(options()).await];
    let recorder = Recorder::new(1, 1, false);
    let mut team = Team::begin(&stores, &recorder, 1).await;
    let lasts = period(5);
    let end = Instant::now() + lasts;
    let faults = async {
        while Instant::now() + Duration::from_secs(2) < end {
            tokio::time::sleep(Duration::from_millis(500)).await;
            process.stop();
            tokio::time::sleep(Duration::from_millis(700)).await;
            process.go_on();
        }
    };
    tokio::join!(team.work(lasts), faults);
    let history = team.end().await;
    done(&history, &stores).await;
}

async fn done(history: &History, stores: &[Store]) {
    let faults = runs::check(&stores[0]).await;
    judge(history, &faults);
    assert!(history.operations.len() > 100, "hardly anything was done");
    eprintln!("{}", runs::counts(history));
    for store in stores {
        store.close().await;
    }
}

async fn open(options: Options) -> Store {
    runs::open(Arc::new(Etcd::connect(options).await.unwrap())).await
}

/// Three members on this machine.
struct Cluster {
    dir: TempDir,
    /// Of clients and of peers.
    ports: [[u16; 2]; 3],
    members: [Option<Child>; 3],
}

impl Cluster {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // Held together, so that none is drawn twice.
        let held: Vec<_> = (0..6).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let port = |index: usize| held[index].local_addr().unwrap().port();
        let ports = [0, 2, 4].map(|first| [port(first), port(first + 1)]);
        drop(held);
        let mut cluster = Self { dir, ports, members: [None, None, None] };
        (0..3).for_each(|index| cluster.spawn(index));
        cluster.healthy().await;
        cluster
    }

    fn spawn(&mut self, index: usize) {
        let url = |port| format!("http://127.0.0.1:{port}");
        let [client, peer] = self.ports[index].map(url);
        let peers = self.ports.iter().enumerate().map(|(index, ports)| format!("m{index}={}", url(ports[1])));
        let mut command = Command::new(binary());
        command.arg("--data-dir").arg(self.dir.path().join(format!("m{index}")));
        command.args(["--name", &format!("m{index}")]);
        command.args(["--initial-cluster", &peers.collect::<Vec<_>>().join(",")]);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--heartbeat-interval", "50", "--election-timeout", "500"]);
        let log = log(self.dir.path(), index);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.members[index] = Some(command.spawn().unwrap());
    }

    fn kill(&mut self, index: usize) {
        let mut member = self.members[index].take().unwrap();
        member.kill().unwrap();
        member.wait().unwrap();
    }

    fn options(&self) -> Options {
        let endpoints = self.ports.iter().map(|ports| format!("http://127.0.0.1:{}", ports[0])).collect();
        let (deadline, lease) = (Duration::from_secs(2), Duration::from_secs(2));
        Options { deadline, lease, ..Options::new(endpoints, "/repot.dev") }
    }

    /// What a member says: its own number and that of the leader; `None` where it does not answer.
    async fn status(&self, index: usize) -> Option<(u64, u64)> {
        let ask = async {
            let endpoint = format!("http://127.0.0.1:{}", self.ports[index][0]);
            let mut client = etcd_client::Client::connect([endpoint], None).await.ok()?;
            let status = client.status().await.ok()?;
            Some((status.header()?.member_id(), status.leader()))
        };
        tokio::time::timeout(Duration::from_secs(1), ask).await.ok().flatten()
    }

    async fn leader(&self) -> usize {
        let begin = Instant::now();
        loop {
            for index in 0..3 {
                if self.status(index).await.is_some_and(|(own, leader)| own == leader) {
                    return index;
                }
            }
            assert!(begin.elapsed() < PATIENCE, "nobody leads");
        }
    }

    /// Waits until every member answers and follows a leader.
    async fn healthy(&self) {
        let begin = Instant::now();
        for index in 0..3 {
            while self.status(index).await.is_none_or(|(_, leader)| leader == 0) {
                assert!(begin.elapsed() < PATIENCE, "a member does not come back");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for member in self.members.iter_mut().flatten() {
            let _ = member.kill();
            let _ = member.wait();
        }
    }
}

fn log(dir: &Path, index: usize) -> File {
    File::options().create(true).append(true).open(dir.join(format!("log{index}"))).unwrap()
}
