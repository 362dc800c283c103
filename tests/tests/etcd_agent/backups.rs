//! Snapshots on schedule: what becomes of them when the leader moves, when the store is gone, and when they grow old.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_client::{Client, CompactionOptions};
use repot_etcd_core::snapshot::{Kind, SnapshotName};
use repot_tests::run;
use repot_tests::s3::S3Server;
use repot_tests::test_env::TestEnv;
use repot_tests::wait::until;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::world::{Agent, Cluster};
use crate::etcd::world::{Revived, World, dump, open, restore, url};
use crate::ownership::world::signal_alone;

const DEADLINE: Duration = Duration::from_secs(120);
/// Never in the time of a test.
const SELDOM: &str = "0 0 1 1 *";

async fn names(dir: &Path) -> Result<Vec<SnapshotName>> {
    Ok(open(dir)?.list_quickly().await?.into_iter().map(|one| one.name).collect())
}

fn count(names: &[SnapshotName], kind: Kind) -> usize {
    names.iter().filter(|name| name.kind == kind).count()
}

/// Restores what is in a store, and compares it with what clients see.
async fn restores(env: &TestEnv, store: &Path, live: &Client) -> Result<()> {
    let data = env.make_dir("restored")?.join("data");
    restore(&open(store)?, data.clone()).await?;
    let revived = Revived::start(env, &data).await?;
    let ((_, found), (_, wanted)) = (dump(&revived.client).await?, dump(live).await?);
    ensure!(!wanted.is_empty(), "there is nothing to compare");
    ensure!(found == wanted, "{} keys were restored, of {}", found.len(), wanted.len());
    Ok(())
}

/// The index of the member that leads and takes snapshots, alone.
async fn leader(agents: &[Agent], fits: impl Fn(usize) -> bool) -> Result<usize> {
    until("one leader that takes snapshots", DEADLINE, async || {
        let mut leaders = Vec::new();
        for (at, agent) in agents.iter().enumerate() {
            // One that was killed does not answer.
            if agent.metric("backup_leader").await.unwrap_or(0) == 1 {
                leaders.push(at);
            }
        }
        match leaders[..] {
            [one] if fits(one) => Ok(one),
            _ => anyhow::bail!("there is {leaders:?}"),
        }
    })
    .await
}

async fn taken(agent: &Agent, kind: &str, more_than: i64) -> Result<i64> {
    until("a snapshot", DEADLINE, async || {
        let taken = agent.metric(&format!("snapshots_total{{kind=\"{kind}\"}}")).await?;
        ensure!(taken > more_than, "{taken} were taken");
        Ok(taken)
    })
    .await
}

/// Writes, whatever happens, until it is over.
async fn write(client: Client, over: &AtomicBool) {
    let mut kv = client.kv_client();
    for at in 0.. {
        if over.load(Ordering::Relaxed) {
            return;
        }
        // One that leads no more says so.
        let put = kv.put(format!("/k/{:03}", at % 300), format!("{at}").repeat(at % 40 + 1), None);
        let _ = tokio::time::timeout(Duration::from_secs(5), put).await;
        sleep(Duration::from_millis(10)).await;
    }
}

/// Hands the lead over, and waits until the new leader has taken deltas.
async fn hand_over(cluster: &Cluster, agents: &[Agent], from: usize) -> Result<usize> {
    let to = (from + 1) % agents.len();
    let id = agents[to].status().await?["member"]["id"].as_str().context("an id")?.to_owned();
    let client = cluster.client(std::slice::from_ref(&agents[from])).await?;
    let before = agents[to].metric("snapshots_total{kind=\"Incr\"}").await?;
    client.maintenance_client().move_leader(u64::from_str_radix(&id, 16)?).await?;
    let found = leader(agents, |one| one != from).await?;
    if found == to {
        taken(&agents[to], "Incr", before).await?;
    }
    Ok(found)
}

#[test]
fn a_leader_that_moves_leaves_one_chain() {
    run(async |env| {
        let s3 = S3Server::start(env).await?;
        let credentials = env.make_dir("secrets")?.join("backup");
        s3.mount_secret(&credentials)?;
        let mut cluster = Cluster::new(env, 3)?;
        cluster.config["store"] = json!({ "url": s3.url("main"), "credentials": credentials });
        cluster.config["snapshots"] = json!({ "fullSchedule": SELDOM, "deltaPeriod": "1s" });
        let mut agents = cluster.start_all(env).await?;
        let (client, over) = (cluster.client(&agents).await?, AtomicBool::new(false));
        let work = async {
            let mut leads = leader(&agents, |_| true).await?;
            taken(&agents[leads], "Incr", 0).await?;
            for _ in 0..3 {
                leads = hand_over(&cluster, &agents, leads).await?;
            }
            // And one that is gone without a word.
            agents[leads].kill_alone()?;
            let next = leader(&agents, |one| one != leads).await?;
            let before = agents[next].metric("snapshots_total{kind=\"Incr\"}").await?;
            taken(&agents[next], "Incr", before).await?;
            Ok::<_, anyhow::Error>(leads)
        };
        let work = async {
            let outcome = work.await;
            over.store(true, Ordering::Relaxed);
            outcome
        };
        let (killed, ()) = tokio::join!(work, write(client, &over));
        let killed = killed?;
        agents[killed] = cluster.start(env, killed)?;
        agents[killed].ready().await?;
        // The one before may still have to tell of a connection that was refused meanwhile.
        let client = cluster.client(&agents).await?;
        let leads = leader(&agents, |_| true).await?;
        let last =
            client.kv_client().put("/last", "one", None).await?.header().context("a header")?.revision();
        let follower = &agents[(leads + 1) % 3];
        follower.get("/snapshot/delta").await?.ok()?;
        assert_eq!(agents[leads].metric("snapshot_revision{kind=\"Incr\"}").await?, last);
        assert_eq!(follower.get("/snapshot/delta").await?.ok()?, Value::Null);
        let names = names(&s3.files("main")).await?;
        assert_eq!(count(&names, Kind::Full), 1, "{names:?}");
        restores(env, &s3.files("main"), &client).await
    });
}

#[test]
fn a_store_that_is_gone_makes_nobody_unready_and_is_caught_up_with() {
    run(async |env| {
        let s3 = S3Server::start(env).await?;
        let credentials = env.make_dir("secrets")?.join("backup");
        s3.mount_secret(&credentials)?;
        let mut cluster = Cluster::new(env, 1)?;
        cluster.config["store"] = json!({ "url": s3.url("main"), "credentials": credentials });
        cluster.config["snapshots"] = json!({ "fullSchedule": SELDOM, "deltaPeriod": "1s" });
        let agents = cluster.start_all(env).await?;
        let (agent, client) = (&agents[0], cluster.client(&agents).await?);
        let mut kv = client.kv_client();
        taken(agent, "Full", 0).await?;
        kv.put("/a", "1", None).await?;
        taken(agent, "Incr", 0).await?;
        s3.relay.cut();
        let mut newest = 0;
        for at in 0..50 {
            newest = kv.put("/b", format!("{at}"), None).await?.header().context("a header")?.revision();
        }
        until("the failure to be told", DEADLINE, async || {
            ensure!(agent.metric("backup_failing").await? == 1, "all is well");
            Ok(())
        })
        .await?;
        let refused = agent.get("/snapshot/full").await?;
        assert_eq!(refused.status, 500, "{refused}");
        assert!(!refused.to_string().contains(s3.secret()), "{refused}");
        assert_eq!(agent.get("/readyz").await?.status, 200);
        // What is not in the store yet is gone from etcd's history: only a full snapshot helps.
        let options = CompactionOptions::new().with_physical();
        kv.compact(newest, Some(options)).await?;
        kv.put("/c", "2", None).await?;
        s3.relay.heal();
        let healed = async || {
            ensure!(agent.metric("backup_failing").await? == 0, "it still fails");
            let revision = agent.metric("snapshot_revision{kind=\"Full\"}").await?;
            ensure!(revision > newest, "the newest full one is of {revision}");
            Ok(())
        };
        until("the store to be caught up with", DEADLINE, healed).await?;
        kv.put("/d", "3", None).await?;
        agent.get("/snapshot/delta").await?.ok()?;
        let names = names(&s3.files("main")).await?;
        assert_eq!(count(&names, Kind::Full), 2, "{names:?}");
        restores(env, &s3.files("main"), &client).await
    });
}

#[test]
fn old_ones_go_and_the_two_newest_still_restore() {
    run(async |env| {
        let store = env.make_dir("store")?;
        let mut cluster = Cluster::new(env, 1)?;
        cluster.config["store"] = json!({ "url": url(&store) });
        cluster.config["snapshots"] = json!({
            "fullSchedule": "* * * * *", "deltaPeriod": "1h", "retention": "LimitBased", "limit": 2,
        });
        let agents = cluster.start_all(env).await?;
        let (agent, client) = (&agents[0], cluster.client(&agents).await?);
        let mut kv = client.kv_client();
        taken(agent, "Full", 0).await?;
        for at in 0..4 {
            kv.put("/a", format!("{at}"), None).await?;
            agent.get("/snapshot/delta").await?.ok()?;
            kv.put("/b", format!("{at}"), None).await?;
            agent.get("/snapshot/full").await?.ok()?;
        }
        // The next one comes by itself.
        let requested = agent.metric("snapshots_total{kind=\"Full\"}").await?;
        kv.put("/c", "1", None).await?;
        taken(agent, "Full", requested).await?;
        kv.put("/d", "1", None).await?;
        agent.get("/snapshot/delta").await?.ok()?;
        let names = names(&store).await?;
        assert_eq!(count(&names, Kind::Full), 2, "{names:?}");
        let fulls: Vec<_> = names.iter().filter(|name| name.kind == Kind::Full).collect();
        let older = fulls.iter().map(|name| name.last).min().context("a full one")?;
        assert!(names.iter().all(|name| name.last >= older), "{names:?}");
        assert!(count(&names, Kind::Delta) >= 1, "{names:?}");
        assert!(agent.metric("snapshots_deleted_total").await? >= 5);
        restores(env, &store, &client).await
    });
}

#[test]
fn nothing_is_written_behind_the_history_of_another_etcd() {
    run(async |env| {
        let other = World::start(env).await?;
        other.write("other", 50).await?;
        other.full(false).await?;
        let before = names(&other.dir).await?;
        // Readers of the store are led to an etcd that was restored since.
        let store = open(&other.dir)?;
        store.make_current("restored").await?;
        let mut cluster = Cluster::new(env, 1)?;
        cluster.config["store"] = json!({ "url": url(&other.dir) });
        cluster.config["snapshots"] = json!({ "deltaPeriod": "1s" });
        let agents = cluster.start_all(env).await?;
        let client = cluster.client(&agents).await?;
        client.kv_client().put("/a", "b", None).await?;
        let refused = agents[0].get("/snapshot/full").await?;
        assert_eq!(refused.status, 409, "{refused}");
        assert!(refused.to_string().contains("AnotherHistory"), "{refused}");
        assert_eq!(agents[0].metric("backup_failing").await?, 1);
        assert_eq!(agents[0].get("/readyz").await?.status, 200);
        assert_eq!(names(&other.dir).await?, before);
        assert_eq!(store.current_history().await?, "restored", "who is refused leads nobody to its history");
        Ok(())
    });
}

/// A restore that was rolled back: both etcds write into one store, and a member of the restored one comes back from a node that was
/// cut off.
#[test]
fn a_closed_history_is_not_written_again_and_its_snapshots_go_in_time() {
    const ABANDONED: &str = "abandoned";
    run(async |env| {
        let dir = env.make_dir("store")?;
        let store = open(&dir)?;
        let config = |cluster: &mut Cluster, history: Option<&str>| {
            cluster.config["store"] = json!({ "url": url(&dir), "history": history });
            cluster.config["snapshots"] =
                json!({ "fullSchedule": SELDOM, "deltaPeriod": "1s", "closedRetention": "2s" });
        };
        let (mut old, mut abandoned) = (Cluster::new(env, 1)?, Cluster::new(env, 1)?);
        config(&mut old, None);
        config(&mut abandoned, Some(ABANDONED));
        let old = old.start_all(env).await?.remove(0);
        taken(&old, "Full", 0).await?;
        let member = abandoned.start_all(env).await?.remove(0);
        taken(&member, "Full", 0).await?;
        let client = abandoned.client(std::slice::from_ref(&member)).await?;
        client.kv_client().put("/a", "1", None).await?;
        taken(&member, "Incr", 0).await?;
        assert_eq!(store.current_history().await?, ABANDONED);
        // Before it is closed, each full snapshot asserts whose the store is.
        old.get("/snapshot/full").await?.ok()?;
        assert_eq!(store.current_history().await?, "first");
        member.get("/snapshot/full").await?.ok()?;
        assert_eq!(store.current_history().await?, ABANDONED);

        signal_alone(&member, Signal::STOP)?;
        let abandoned_store = store.history(ABANDONED);
        let count = async || Ok::<_, anyhow::Error>(abandoned_store.list().await?.len());
        let before = count().await?;
        store.close_history(ABANDONED).await?;
        assert_eq!(store.current_history().await?, "first", "the old etcd has not led since");
        client.kv_client().put("/b", "1", None).await?;
        signal_alone(&member, Signal::CONT)?;
        until("the failure to be told", DEADLINE, async || {
            ensure!(member.metric("backup_failing").await? == 1, "all is well");
            Ok(())
        })
        .await?;
        for path in ["/snapshot/full", "/snapshot/delta"] {
            let refused = member.get(path).await?;
            assert_eq!(refused.status, 409, "{refused}");
            assert!(refused.to_string().contains("HistoryClosed"), "{refused}");
        }
        assert_eq!(store.current_history().await?, "first");
        assert_eq!(count().await?, before, "something was written to it");

        // It may be looked at for as long as it is configured.
        until("its snapshots to go", DEADLINE, async || {
            old.get("/snapshot/full").await?.ok()?;
            let left = count().await?;
            ensure!(left == 0, "{left} are left");
            Ok(())
        })
        .await?;
        assert_eq!(member.get("/snapshot/full").await?.status, 409);
        assert!(!names(&dir).await?.is_empty(), "the snapshots of the other history went too");
        Ok(())
    });
}
