//! A restore that follows: deltas are applied as they appear, and what is left at the end does not depend on the size of the etcd.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use etcd_client::{Txn, TxnOp};
use repot_etcd::snapshot::restore::follow::{Follower, Source, StandbyState};
use repot_etcd::snapshot::store::Store;
use repot_etcd_core::snapshot::{Compression, Revision};
use repot_tests::run;
use repot_tests::wait::until;
use tokio::time::timeout;

use super::world::{DEADLINE, Revived, World, command, dump, open, options, url};

/// What the options of these tests add to revisions.
const RAISED: i64 = 1_000_000;

fn follow(store: &Store, data_dir: &Path) -> Result<Follower> {
    let source = Source { root: store.clone(), history: None };
    Ok(Follower::start(source, options(data_dir.to_owned())?))
}

async fn says(follower: &Follower, what: &str, fits: impl Fn(&StandbyState) -> bool) -> Result<StandbyState> {
    until(what, DEADLINE, async || {
        let state = follower.state();
        ensure!(fits(&state), "it says {state:?}");
        Ok(state)
    })
    .await
}

async fn holds(follower: &Follower, revision: Revision) -> Result<StandbyState> {
    says(follower, "that it holds what is in the store", |state| state.revision == Some(revision)).await
}

/// Enough for pages that lead to other pages.
async fn fill(world: &World) -> Result<()> {
    for at in 0..20 {
        let puts = (0..100).map(|key| TxnOp::put(format!("/fill/{at}/{key:03}"), vec![7; 1500], None));
        world.client.kv_client().txn(Txn::new().and_then(puts.collect::<Vec<_>>())).await?;
    }
    Ok(())
}

#[test]
fn followed_state_is_that_of_the_source_with_the_revision_raised() {
    run(async |env| {
        let world = World::start(env).await?;
        fill(&world).await?;
        let base = world.full(false).await?.name;
        let data = env.path().join("followed");
        let follower = follow(&world.store, &data)?;
        holds(&follower, base.last).await?;
        world.write("some", 30).await?;
        let first = world.delta(base.last, Compression::Gzip).await?.name;
        holds(&follower, first.last).await?;
        // A newer full snapshot is of the same chain, and nothing begins anew for it.
        world.full(false).await?;
        world.write("more", 30).await?;
        let last = world.delta(first.last, Compression::Gzip).await?.name;
        let state = holds(&follower, last.last).await?;
        ensure!(state.base == Some(base.clone()) && state.deltas == 2 && !state.ended, "{state:?}");

        let followed = follower.finish().await?;
        ensure!(followed.revision == last.last && followed.bumped.0 == last.last.0 + RAISED, "{followed:?}");
        ensure!(!env.path().join("followed.part").exists(), "the working directory is left");
        let (_, wanted) = dump(&world.client).await?;
        let revived = Revived::start(env, &data).await?;
        let (revision, found) = dump(&revived.client).await?;
        ensure!(revision == followed.bumped, "etcd is at {revision}");
        ensure!(found == wanted, "it holds {} keys of {}", found.len(), wanted.len());
        revived.client.kv_client().put("after", "it", None).await?;
        // Before the raise nothing can be watched.
        let options = etcd_client::WatchOptions::new().with_start_revision(last.last.0);
        let mut watch = revived.client.watch_client().watch("after", Some(options)).await?;
        loop {
            let message = timeout(DEADLINE, watch.message()).await??.context("the watch ended")?;
            if message.compact_revision() > 0 {
                ensure!(message.compact_revision() == followed.bumped.0, "{}", message.compact_revision());
                return Ok(());
            }
        }
    });
}

#[test]
fn another_process_continues_and_another_history_begins_anew() {
    run(async |env| {
        let world = World::start(env).await?;
        world.write("some", 20).await?;
        let base = world.full(false).await?.name;
        let data = env.path().join("followed");
        let first = follow(&world.store, &data)?;
        holds(&first, base.last).await?;
        world.write("more", 20).await?;
        let delta = world.delta(base.last, Compression::Gzip).await?.name;
        holds(&first, delta.last).await?;
        drop(first);
        // Were it to begin anew, it would begin with this one.
        let newer = world.full(false).await?.name;
        let second = follow(&world.store, &data)?;
        let state = holds(&second, delta.last).await?;
        ensure!(state.base == Some(base) && state.deltas == 1, "{state:?}");

        let other = world.store.history("other");
        let name = newer.to_string();
        let place = world.dir.join("histories/other/v2");
        fs::create_dir_all(&place)?;
        fs::copy(world.dir.join("v2").join(&name), place.join(&name))?;
        world.store.make_current("other").await?;
        says(&second, "that it began anew", |state| state.base == Some(newer.clone()) && state.deltas == 0)
            .await?;
        let followed = second.finish().await?;
        ensure!(followed.base == newer && other.list().await?.len() == 1, "{followed:?}");
        Ok(())
    });
}

#[test]
fn command_follows_until_the_final_snapshot() {
    run(async |env| {
        let world = World::start(env).await?;
        world.write("some", 20).await?;
        let base = world.full(false).await?.name;
        let data = env.path().join("by-hand");
        let (store, at) = (url(&world.dir), data.display().to_string());
        let etcd = repot_tests::binaries::find("etcd")?;
        let etcdutl = repot_tests::binaries::find("etcdutl")?;
        let mut command =
            command(&["restore", "--follow", "--output", "json", "--store", &store, "--data-dir", &at])?;
        command.arg("--etcd").arg(etcd).arg("--etcdutl").arg(etcdutl).kill_on_drop(true);
        let running = command.stdout(std::process::Stdio::piped()).spawn()?;
        until("a standby", DEADLINE, async || {
            ensure!(env.path().join("by-hand.part/standby.json").exists(), "there is none");
            Ok(())
        })
        .await?;
        world.write("more", 20).await?;
        world.delta(base.last, Compression::Gzip).await?;
        let last = world.full(true).await?.name.last;
        let output = timeout(DEADLINE, running.wait_with_output()).await??;
        ensure!(output.status.success(), "{}", output.status);
        let told: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        ensure!(
            told["revision"] == last.0 && told["base"] == base.to_string() && told["deltas"] == 1,
            "{told}"
        );
        let (_, wanted) = dump(&world.client).await?;
        let revived = Revived::start(env, &data).await?;
        ensure!(dump(&revived.client).await?.1 == wanted, "it holds something else");
        Ok(())
    });
}

#[test]
fn missing_delta_is_said_and_a_full_snapshot_after_it_makes_up_for_it() {
    run(async |env| {
        let mut world = World::start(env).await?;
        world.write("some", 20).await?;
        let base = world.full(false).await?.name;
        let data = env.path().join("followed");
        let follower = follow(&world.store, &data)?;
        holds(&follower, base.last).await?;
        let (hidden, dir) = (env.make_dir("hidden")?, world.dir.clone());
        // Deltas appear one after the other: this one is taken elsewhere.
        world.store = open(&hidden)?;
        world.write("lost", 20).await?;
        let lost = world.delta(base.last, Compression::Gzip).await?.name;
        world.store = open(&dir)?;
        world.write("more", 20).await?;
        world.delta(lost.last, Compression::Gzip).await?;
        let state = says(&follower, "that something is missing", |state| !state.message.is_empty()).await?;
        ensure!(
            state.message.contains("are in no snapshot") && state.revision == Some(base.last),
            "{state:?}"
        );
        let refused = follower.finish().await.err().context("it took over")?;
        ensure!(refused.to_string().contains("cannot be restored"), "{refused}");
        let full = world.full(false).await?.name;
        let followed = follower.finish().await?;
        ensure!(followed.base == full && followed.revision == full.last, "{followed:?}");
        Ok(())
    });
}
