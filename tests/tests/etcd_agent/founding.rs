//! Members that found an etcd together from snapshots, each at its own time: all hold the same.

use anyhow::{Result, ensure};
use repot_etcd_core::snapshot::{Compression, Kind, Revision};
use repot_tests::run;
use repot_tests::test_env::TestEnv;
use repot_tests::wait::until;
use serde_json::json;

use super::world::{Agent, Cluster, DEADLINE};
use crate::etcd::world::{World, dump, url};

/// What is added to revisions by a restore.
const RAISED: i64 = 1_000_000_000;

/// Plans three members that begin with what is in a store, and write into it.
async fn plan(env: &TestEnv) -> Result<(World, Revision, Cluster)> {
    let world = World::start(env).await?;
    world.write("early", 20).await?;
    let full = world.full(false).await?.name.last;
    world.write("later", 20).await?;
    let last = world.delta(full, Compression::Gzip).await?.name.last;
    let mut cluster = Cluster::new(env, 3)?;
    cluster.config["store"] = json!({ "url": url(&world.dir) });
    cluster.config["restore"] = json!({ "store": { "url": url(&world.dir) } });
    Ok((world, last, cluster))
}

/// Compares what each member has on its own disk.
async fn hold_the_same(cluster: &Cluster, agents: &[Agent]) -> Result<()> {
    let mut all = Vec::new();
    for agent in agents {
        all.push(dump(&cluster.client(std::slice::from_ref(agent)).await?).await?);
    }
    let (first, others) = all.split_first().expect("members");
    for (at, other) in others.iter().enumerate() {
        ensure!(first.0 == other.0, "member 0 is at {}, and member {} at {}", first.0, at + 1, other.0);
        ensure!(
            first.1 == other.1,
            "members 0 and {} hold {} and {} keys",
            at + 1,
            first.1.len(),
            other.1.len()
        );
    }
    Ok(())
}

#[test]
fn founders_that_begin_at_different_times_restore_the_same() {
    run(async |env| {
        let (world, last, cluster) = plan(env).await?;
        let mut first = cluster.start(env, 0)?;
        let restored = |status: &serde_json::Value| status["restored"]["revision"] == json!(last.0);
        first.says("what was restored", restored).await?;
        // What the etcd before had on its way arrives.
        world.write("latest", 20).await?;
        world.delta(last, Compression::Gzip).await?;
        let mut agents = vec![first, cluster.start(env, 1)?, cluster.start(env, 2)?];
        for agent in &mut agents {
            agent.ready().await?;
            let status = agent.status().await?;
            ensure!(restored(&status), "{status}");
        }
        hold_the_same(&cluster, &agents).await
    });
}

#[test]
fn founder_that_is_late_takes_what_the_others_have() {
    run(async |env| {
        let (world, _, cluster) = plan(env).await?;
        let mut agents = vec![cluster.start(env, 0)?, cluster.start(env, 1)?];
        for agent in &mut agents {
            agent.ready().await?;
        }
        cluster.client(&agents).await?.kv_client().put("after", "it", None).await?;
        until("a full snapshot of the two", DEADLINE, async || {
            let all = world.store.list().await?;
            let theirs = |name: &repot_etcd_core::snapshot::SnapshotName| {
                name.kind == Kind::Full && name.last.0 > RAISED
            };
            ensure!(all.iter().any(|one| theirs(&one.name)), "there is none");
            Ok(())
        })
        .await?;
        agents.push(cluster.start(env, 2)?);
        agents[2].ready().await?;
        hold_the_same(&cluster, &agents).await?;
        // It is a member like the others: with it and one of them, writes go on.
        agents.remove(0).process.kill();
        // etcd drops what it passed on to a leader that died.
        until("a write of the two", DEADLINE, async || {
            let client = cluster.client(&agents).await?;
            Ok(client.kv_client().put("with", "it", None).await.map(drop)?)
        })
        .await?;
        hold_the_same(&cluster, &agents).await
    });
}
