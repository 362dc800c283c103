//! etcd at its worst: the leader of three members is killed, a member is lost and comes back, and one that is alone stops
//! answering for longer than its clients wait, and then goes on with all that it was sent. `partition` cuts a leader off.

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
use crate::store::{
    EtcdProcess,
    etcd_process::{QUOTA, binary},
};

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

pub(super) async fn done(history: &History, stores: &[Store]) {
    let faults = runs::check(&stores[0]).await;
    judge(history, &faults);
    assert!(history.operations.len() > 100, "hardly anything was done");
    eprintln!("{}", runs::counts(history));
    for store in stores {
        store.close().await;
    }
}

pub(super) async fn open(options: Options) -> Store {
    runs::open(Arc::new(Etcd::connect(options).await.unwrap())).await
}

/// Where a member is.
pub(super) struct MemberLocation {
    /// What clients call it.
    pub(super) endpoint: String,
    /// Where it waits for them.
    pub(super) listen: String,
    /// What the other members call it.
    pub(super) peer: String,
    /// The process in whose network namespace it runs, where it has one of its own.
    pub(super) within: Option<u32>,
}

/// Three members on this machine.
pub(super) struct Cluster {
    dir: TempDir,
    places: [MemberLocation; 3],
    members: [Option<Child>; 3],
}

impl Cluster {
    async fn start() -> Self {
        // Held together, so that none is drawn twice.
        let held: Vec<_> = (0..6).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let url = |index: usize| format!("http://127.0.0.1:{}", held[index].local_addr().unwrap().port());
        let place = |index| MemberLocation {
            endpoint: url(index),
            listen: url(index),
            peer: url(index + 3),
            within: None,
        };
        let places = [0, 1, 2].map(place);
        drop(held);
        Self::start_at(places).await
    }

    pub(super) async fn start_at(places: [MemberLocation; 3]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut cluster = Self { dir, places, members: [None, None, None] };
        (0..3).for_each(|index| cluster.spawn(index));
        cluster.healthy().await;
        cluster
    }

    fn spawn(&mut self, index: usize) {
        let place = &self.places[index];
        let mut command = match place.within {
            None => Command::new(binary()),
            Some(id) => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--net=/proc/{id}/ns/net")).arg(binary());
                command
            }
        };
        let peers = self.places.iter().enumerate().map(|(index, place)| format!("m{index}={}", place.peer));
        command.arg("--data-dir").arg(self.dir.path().join(format!("m{index}")));
        command.args(["--name", &format!("m{index}")]);
        command.args(["--initial-cluster", &peers.collect::<Vec<_>>().join(",")]);
        command.args(["--listen-client-urls", &place.listen, "--advertise-client-urls", &place.endpoint]);
        command.args(["--listen-peer-urls", &place.peer, "--initial-advertise-peer-urls", &place.peer]);
        command.args(["--heartbeat-interval", "50", "--election-timeout", "500"]);
        command.args(["--quota-backend-bytes", QUOTA]);
        let log = log(self.dir.path(), index);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.members[index] = Some(command.spawn().unwrap());
    }

    fn kill(&mut self, index: usize) {
        let mut member = self.members[index].take().unwrap();
        member.kill().unwrap();
        member.wait().unwrap();
    }

    pub(super) fn options(&self) -> Options {
        let endpoints = self.places.iter().map(|place| place.endpoint.clone()).collect();
        let (deadline, lease) = (Duration::from_secs(2), Duration::from_secs(2));
        Options { deadline, lease, ..Options::new(endpoints, "/repot.dev") }
    }

    /// What a member says: its own number and that of the leader; `None` where it does not answer.
    pub(super) async fn status(&self, index: usize) -> Option<(u64, u64)> {
        let ask = async {
            let mut client = etcd_client::Client::connect([&self.places[index].endpoint], None).await.ok()?;
            let status = client.status().await.ok()?;
            Some((status.header()?.member_id(), status.leader()))
        };
        tokio::time::timeout(Duration::from_secs(1), ask).await.ok().flatten()
    }

    pub(super) async fn leader(&self) -> usize {
        self.leader_of(&[0, 1, 2]).await
    }

    /// Waits until one of these leads.
    pub(super) async fn leader_of(&self, some: &[usize]) -> usize {
        let begin = Instant::now();
        loop {
            for &index in some {
                if self.status(index).await.is_some_and(|(own, leader)| own == leader) {
                    return index;
                }
            }
            assert!(begin.elapsed() < PATIENCE, "nobody leads");
        }
    }

    /// Waits until every member answers and follows a leader.
    pub(super) async fn healthy(&self) {
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
