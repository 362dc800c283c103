//! Two sides of one etcd: the one that has it, and the one that gets it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_client::Client;
use repot_etcd::link;
use repot_etcd_core::snapshot::SnapshotName;
use repot_tests::dns::{DnsServer, TTL, ZONE};
use repot_tests::test_env::TestEnv;
use repot_tests::wait::until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::etcd::world::{open, url};
use crate::etcd_agent::world::{Agent, Cluster, DEADLINE, address};

/// Seconds, as both sides have them.
pub const INTERVAL: u64 = 2;
pub const TIMEOUT: u64 = 4;
const GRACE: u64 = 15;
/// A new side may have to wait for the lease of the old one, which is two minutes long in a test.
const TAKES_OVER_WITHIN: Duration = Duration::from_secs(180);
/// With a fortieth for clocks, rounded up: how long the new side waits after the record has changed, where there is no final snapshot that says whose time it ends.
pub const WAIT: Duration = Duration::from_secs((TTL as u64 + INTERVAL + GRACE) * 41 / 40 + 1);
/// How long the old side may serve after it was last told that it is the owner, with the time that etcd has to end.
pub const LEASE: Duration = Duration::from_secs(INTERVAL + TIMEOUT + 11);
/// Nobody was the owner before, so it does not wait.
pub const OLD: &str = "seed-a/1";
/// Without an epoch only the time counts.
pub const NEW: &str = "seed-b";
pub const RECORD: &str = "owner";

/// A record, a store, and plans of both sides.
pub struct OwnershipFixture {
    pub dns: DnsServer,
    pub store: PathBuf,
    pub old: Cluster,
    pub new: Cluster,
}

impl OwnershipFixture {
    /// The record names the old side.
    pub async fn new(env: &TestEnv, members: usize) -> Result<Self> {
        Self::with_ids(env, members, OLD, NEW).await
    }

    /// With other ids of the two sides.
    pub async fn with_ids(env: &TestEnv, members: usize, old_id: &str, new_id: &str) -> Result<Self> {
        let dns = DnsServer::start(env).await?;
        dns.set(RECORD, &[old_id]).await?;
        let store = env.make_dir("store")?;
        let (mut old, mut new) = (Cluster::new(env, members)?, Cluster::new(env, 1)?);
        old.config["owner"] = owner(&dns, old_id);
        old.config["store"] = json!({ "url": url(&store) });
        new.config["owner"] = owner(&dns, new_id);
        new.config["volumes"] = json!("other-etcd");
        new.config["clusterToken"] = json!("4712/other-etcd");
        new.config["restore"] = json!({ "store": { "url": url(&store) } });
        new.config["store"] = json!({ "url": url(&env.make_dir("other-store")?) });
        Ok(Self { dns, store, old, new })
    }

    /// Changes the record; tells when that began.
    pub async fn hand_over(&self, values: &[&str]) -> Result<Instant> {
        let begun = Instant::now();
        self.dns.set(RECORD, values).await?;
        Ok(begun)
    }

    /// The new side, started at once, and somebody who writes to it.
    pub async fn take_over(&self, env: &TestEnv) -> Result<(Agent, Writer)> {
        let mut agent = self.new.start(env, 0)?;
        let writer = Writer::start(client_url(&self.new, 0), NEW);
        agent.ready_within(TAKES_OVER_WITHIN).await?;
        Ok((agent, writer))
    }

    /// Names of the final snapshots in the store.
    pub async fn finals(&self) -> Result<Vec<SnapshotName>> {
        let listed = open(&self.store)?.list_quickly().await?;
        Ok(listed.into_iter().map(|stored| stored.name).filter(|name| name.is_final).collect())
    }
}

fn owner(dns: &DnsServer, id: &str) -> Value {
    json!({
        "name": format!("{RECORD}.{ZONE}"),
        "id": id,
        "servers": [dns.address()],
        "ttl": format!("{TTL}s"),
        "interval": format!("{INTERVAL}s"),
        "timeout": format!("{TIMEOUT}s"),
        "grace": format!("{GRACE}s"),
        "quorumTimeout": "30s",
    })
}

pub fn client_url(cluster: &Cluster, at: usize) -> String {
    format!("http://{}:{}", address(at), cluster.ports.client)
}

/// Waits until the member says that it stays down, for this reason, and has no etcd.
pub async fn stays_down(agent: &mut Agent, reason: &str) -> Result<Value> {
    let down = |status: &Value| {
        status["owner"]["verdict"] == "StayDown"
            && status["owner"]["reason"] == reason
            && status["phase"] == "Stopped"
    };
    let status = agent.says(&format!("{reason}, and that it stays down"), down).await?;
    ensure!(agent.etcds()?.is_empty(), "there is an etcd");
    ensure!(agent.get("/readyz").await?.status == 503, "it says that it is ready");
    Ok(status["owner"].clone())
}

/// Freezes the agent alone, or lets it go on: its guard and its etcd run.
pub fn signal_alone(agent: &Agent, signal: Signal) -> Result<()> {
    let pid = Pid::from_raw(agent.process.pid().try_into()?).context("a process")?;
    Ok(kill_process(pid, signal)?)
}

/// A write that was acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    pub number: usize,
    pub acked: Instant,
    pub revision: i64,
}

/// A client that writes, one key after the other, for as long as somebody takes them.
pub struct Writer {
    side: &'static str,
    acked: Arc<Mutex<Vec<Write>>>,
    attempts: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Writer {
    pub fn start(url: String, side: &'static str) -> Self {
        let acked = Arc::new(Mutex::new(Vec::new()));
        let attempts = Arc::new(AtomicUsize::new(0));
        let task = tokio::spawn(write(url, side, acked.clone(), attempts.clone()));
        Self { side, acked, attempts, task }
    }

    /// How many writes were begun.
    pub fn attempts(&self) -> usize {
        self.attempts.load(Ordering::Relaxed)
    }

    pub fn writes(&self) -> Vec<Write> {
        self.acked.lock().map(|acked| acked.clone()).unwrap_or_default()
    }

    /// Waits until one more write is acknowledged.
    pub async fn goes_on(&self) -> Result<()> {
        let before = self.writes().len();
        until("a write to be taken", DEADLINE, async || {
            ensure!(self.writes().len() > before, "{} has taken none since", self.side);
            Ok(())
        })
        .await
    }

    /// Checks that an etcd has every key of this one.
    pub async fn is_all_in(&self, client: &Client) -> Result<()> {
        let writes = self.writes();
        ensure!(!writes.is_empty(), "nothing was ever written to {}", self.side);
        for write in writes {
            let found = client.kv_client().get(key(self.side, write.number), None).await?;
            ensure!(found.kvs().len() == 1, "write {} of {} is lost", write.number, self.side);
        }
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn key(side: &str, number: usize) -> String {
    format!("/written/{side}/{number}")
}

async fn write(url: String, side: &'static str, acked: Arc<Mutex<Vec<Write>>>, attempts: Arc<AtomicUsize>) {
    // A client tries again and again for as long as the test lasts, as an API server does.
    const PATIENCE: Duration = Duration::from_secs(1);
    const PACE: Duration = Duration::from_millis(20);
    let mut client = None;
    for number in 0.. {
        attempts.fetch_add(1, Ordering::Relaxed);
        if client.is_none() {
            let options = link::Options { endpoints: vec![url.clone()], ..Default::default() };
            client = timeout(PATIENCE, link::connect(&options)).await.ok().and_then(Result::ok);
        }
        let put = async { client.as_ref()?.kv_client().put(key(side, number), "x", None).await.ok() };
        match timeout(PATIENCE, put).await {
            Ok(Some(put)) => {
                let revision = put.header().map_or(0, etcd_client::ResponseHeader::revision);
                let write = Write { number, acked: Instant::now(), revision };
                if let Ok(mut all) = acked.lock() {
                    all.push(write);
                }
            }
            _ => client = None,
        }
        sleep(PACE).await;
    }
}

/// Checks that the old side has taken no write any more when the new side has taken its first.
pub fn never_both(old: &Writer, new: &Writer) -> Result<()> {
    let old = old.writes().last().copied().context("the old side never took a write")?;
    let new = new.writes().first().copied().context("the new side never took a write")?;
    ensure!(old.acked < new.acked, "both are writable: {old:?}, {new:?}");
    Ok(())
}
