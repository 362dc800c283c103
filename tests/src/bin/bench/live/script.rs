//! The peer of a live move: an etcd alone, whose members are replaced by etcdctl as an operator's script does it. Nobody starts
//! kube-apiservers, moves DNS or holds writes.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_client::Client;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use parking_lot::Mutex;
use repot_tests::TestEnv;
use repot_tests::etcd::EtcdCluster;
use repot_tests::wait::until;
use serde_json::Value;
use tokio::task::AbortHandle;
use tokio::time::{interval, sleep, timeout};

use super::phases::{self, Phase};
use super::probe::{self, Write};
use crate::storage::Report;

const MEMBERS: usize = 3;
/// Bytes of a value that fills the etcd.
const FILLING: usize = 900 << 10;
/// From one write to the next, as in the live moves.
const PERIOD: Duration = Duration::from_millis(50);
/// A write without an answer after this time has failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a learner may take to hold everything.
const PROMOTED_WITHIN: Duration = Duration::from_secs(300);
/// How long a client writes before the members are replaced, to compare with.
const BEFORE: Duration = Duration::from_secs(15);
const SIDE: &str = "etcdctl member, an etcd alone";

/// Replaces three members by three others, and reports what a client saw.
///
/// Errors: when a program is missing, or etcd refuses a change.
pub async fn bench(env: &TestEnv, mib: usize, report: &mut Report) -> Result<()> {
    let mut etcd = EtcdCluster::start(env, MEMBERS).await?;
    fill(&etcd, mib).await?;
    let client = Arc::new(Mutex::new(connect(&etcd.endpoints()).await?));
    let writes = Arc::new(Mutex::new(Vec::new()));
    let writer = Writer(tokio::spawn(write(client.clone(), writes.clone())).abort_handle());
    let quiet = probe::now();
    sleep(BEFORE).await;
    let begun = probe::now();
    for _ in 0..MEMBERS {
        etcd.add_learner(env).await?;
        promote(&etcd).await?;
    }
    let joined = probe::now();
    let others = etcd.endpoints().split_off(MEMBERS);
    *client.lock() = connect(&others).await?;
    replace(&etcd, &others).await?;
    let ended = probe::now();
    drop(writer);
    let bounds = [
        ("before", quiet, begun),
        ("the whole move", begun, ended),
        ("members join", begun, joined),
        ("members of the source leave", joined, ended),
    ];
    let writes = writes.lock();
    for (name, from, to) in bounds {
        report.add(
            "live",
            &format!("{mib} MiB: {name}"),
            SIDE,
            phases::seen(&writes, &Phase { name, from, to }),
        );
    }
    Ok(())
}

struct Writer(AbortHandle);

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn connect(endpoints: &[String]) -> Result<Client> {
    Client::connect(endpoints, None).await.context("an etcd that serves")
}

async fn fill(etcd: &EtcdCluster, mib: usize) -> Result<()> {
    let client = connect(&etcd.endpoints()).await?;
    let store = |at: usize| {
        let mut kv = client.kv_client();
        async move {
            let mut bytes = vec![0; FILLING];
            aws_lc_rs::rand::fill(&mut bytes)?;
            kv.put(format!("filling-{at}"), bytes, None).await.context("a value that fills").map(drop)
        }
    };
    stream::iter(0..(mib << 20) / FILLING)
        .map(store)
        .buffer_unordered(4)
        .try_collect::<Vec<()>>()
        .await
        .map(drop)
}

async fn write(client: Arc<Mutex<Client>>, writes: Arc<Mutex<Vec<Write>>>) {
    let mut ticks = interval(PERIOD);
    for number in 0_u64.. {
        ticks.tick().await;
        let (begun, mut kv) = (probe::now(), client.lock().kv_client());
        let put = timeout(PATIENCE, kv.put("probe", number.to_string(), None)).await;
        let is_acknowledged = put.is_ok_and(|outcome| outcome.is_ok());
        writes.lock().push(Write { begun, ended: probe::now(), is_acknowledged, repeated: 0 });
    }
}

/// The member that was added last becomes a voter, as soon as it holds everything.
async fn promote(etcd: &EtcdCluster) -> Result<()> {
    let members = members(etcd, &etcd.endpoints()).await?;
    let (id, _) = members.iter().find(|(_, is_learner)| *is_learner).context("there is no learner")?;
    let ask = async || etcd.etcdctl(&["member", "promote", id]).await?.text();
    until("the learner to be promoted", PROMOTED_WITHIN, ask).await.map(drop)
}

/// The leader moves to one of the others, and then those of before are removed.
async fn replace(etcd: &EtcdCluster, others: &[String]) -> Result<()> {
    let (all, kept) = (members(etcd, others).await?, others.join(","));
    let (former, new) = all.split_at(MEMBERS);
    let (leader, _) = new.first().context("no member was added")?;
    let everyone = etcd.endpoints().join(",");
    etcd.etcdctl_at(&everyone, &["move-leader", leader]).await?.text()?;
    for (id, _) in former {
        etcd.etcdctl_at(&kept, &["member", "remove", id]).await?.text()?;
    }
    Ok(())
}

/// IDs of the members in hexadecimal digits, in the order in which they were added, and whether each is a learner.
async fn members(etcd: &EtcdCluster, endpoints: &[String]) -> Result<Vec<(String, bool)>> {
    let list =
        etcd.etcdctl_at(&endpoints.join(","), &["member", "list", "--write-out=json"]).await?.json()?;
    let mut found: Vec<&Value> = list["members"].as_array().context("no list of members")?.iter().collect();
    found.sort_by_key(|member| member["name"].as_str());
    ensure!(found.len() >= MEMBERS, "{list}");
    let of = |member: &Value| {
        let id = member["ID"].as_u64().context("a member without an ID")?;
        Ok((format!("{id:x}"), member["isLearner"] == true))
    };
    found.into_iter().map(of).collect()
}
