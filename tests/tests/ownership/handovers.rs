//! When the new owner begins: it waits by itself.

use anyhow::{Context, Result, ensure};
use repot_etcd::snapshot::store::Store;
use repot_etcd_core::snapshot::SnapshotName;
use repot_tests::run;
use repot_tests::test_env::TestEnv;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::world::{LEASE, OwnershipFixture, WAIT, Writer, client_url, never_both, signal_alone, stays_down};
use crate::etcd::world::{open, snapshots, url};
use crate::etcd_agent::world::{Agent, Cluster, DEADLINE};

const FIRST: &str = "seed-a/1";
const SECOND: &str = "seed-b/2";
const THIRD: &str = "seed-c/3";

/// The first owner has a backup, and is gone without a word.
async fn silent(env: &TestEnv) -> Result<(OwnershipFixture, Writer)> {
    let world = OwnershipFixture::with_ids(env, 1, FIRST, SECOND).await?;
    let old = world.old.start_all(env).await?.remove(0);
    let writer = Writer::start(client_url(&world.old, 0), FIRST);
    writer.goes_on().await?;
    old.get("/snapshot/full").await?.ok()?;
    old.kill_alone()?;
    old.no_etcd().await?;
    Ok((world, writer))
}

async fn handover(agent: &mut Agent) -> Result<Value> {
    let status: Value = agent.get("/status").await?.json()?;
    Ok(status["owner"]["handover"].clone())
}

#[test]
fn new_owner_waits_for_one_that_is_silent_and_once_only() {
    run(async |env| {
        let (world, old_writer) = silent(env).await?;
        let mut new = world.new.start(env, 0)?;
        // Epochs before the own one teach nothing.
        stays_down(&mut new, "OwnerOlder").await?;
        let changed = world.hand_over(&[SECOND]).await?;
        let says = stays_down(&mut new, "PreviousOwnerMayServe").await?;
        ensure!(says["message"].to_string().contains("for 19 s"), "{says}");
        new.ready().await?;
        ensure!(changed.elapsed() >= WAIT, "it began after {:?}", changed.elapsed());
        let writer = Writer::start(client_url(&world.new, 0), SECOND);
        writer.goes_on().await?;
        never_both(&old_writer, &writer)?;
        let waited = handover(&mut new).await?;
        ensure!(waited["reason"] == "Waited" && waited["ownerId"] == SECOND, "{waited}");
        ensure!(waited["namedSince"].as_str() < waited["clearedAt"].as_str(), "{waited}");

        // New volumes for the same owner: nobody else has served in between.
        new.process.stop(DEADLINE).await?;
        std::fs::remove_dir_all(world.new.volume(0)?)?;
        let begun = Instant::now();
        let mut again = world.new.start(env, 0)?;
        timeout(WAIT - (Instant::now() - begun), again.ready()).await.context("it waits again")??;
        let recorded = handover(&mut again).await?;
        ensure!(recorded == waited, "{recorded}, and not {waited}");
        Ok(())
    });
}

/// What to restore was forgotten: an empty etcd is writable as well, and must not be so beside the one before.
#[test]
fn new_owner_without_anything_to_restore_waits_as_well() {
    run(async |env| {
        let mut world = OwnershipFixture::with_ids(env, 1, FIRST, SECOND).await?;
        world.new.config["restore"] = json!(null);
        let old = world.old.start_all(env).await?.remove(0);
        let old_writer = Writer::start(client_url(&world.old, 0), FIRST);
        old_writer.goes_on().await?;
        // It serves for as long as its lease lasts.
        signal_alone(&old, Signal::STOP)?;
        let mut new = world.new.start(env, 0)?;
        let new_writer = Writer::start(client_url(&world.new, 0), SECOND);
        stays_down(&mut new, "OwnerOlder").await?;
        let changed = world.hand_over(&[SECOND]).await?;
        stays_down(&mut new, "PreviousOwnerMayServe").await?;
        new.ready().await?;
        ensure!(changed.elapsed() >= WAIT, "it began after {:?}", changed.elapsed());
        new_writer.goes_on().await?;
        never_both(&old_writer, &new_writer)?;
        let waited = handover(&mut new).await?;
        ensure!(waited["reason"] == "Waited" && waited["ownerId"] == SECOND, "{waited}");
        Ok(())
    });
}

#[test]
fn final_snapshot_of_the_epoch_before_ends_the_wait() {
    run(async |env| {
        let mut world = OwnershipFixture::with_ids(env, 1, FIRST, SECOND).await?;
        // The next owner goes on from the history that was written last.
        world.old.config["store"]["history"] = json!("other-volumes");
        let mut old = world.old.start_all(env).await?.remove(0);
        let old_writer = Writer::start(client_url(&world.old, 0), FIRST);
        old_writer.goes_on().await?;
        // A final one by hand ends nobody's time.
        old.get("/snapshot/full?final=true").await?.ok()?;
        let mut new = world.new.start(env, 0)?;
        let changed = world.hand_over(&[SECOND]).await?;
        let new_writer = Writer::start(client_url(&world.new, 0), SECOND);
        timeout(WAIT, new.ready()).await.context("it waits although the owner before has ended")??;
        ensure!(changed.elapsed() < WAIT, "it began after {:?}", changed.elapsed());
        new_writer.goes_on().await?;
        never_both(&old_writer, &new_writer)?;
        let owner = stays_down(&mut old, "NotOwner").await?;
        let found = handover(&mut new).await?;
        ensure!(found["reason"] == "FinalSnapshot", "{found}");
        ensure!(found["finalSnapshot"] == owner["finalSnapshot"], "{found}, and not of {owner}");
        old_writer.is_all_in(&world.new.client(&[new]).await?).await?;

        // It ends the time of the first owner, and says nothing of the second one.
        let mut third = Cluster::new(env, 1)?;
        for field in ["owner", "restore"] {
            third.config[field] = world.new.config[field].clone();
        }
        third.config["owner"]["id"] = json!(THIRD);
        world.hand_over(&[THIRD]).await?;
        let mut agent = third.start(env, 0)?;
        stays_down(&mut agent, "PreviousOwnerMayServe").await?;
        Ok(())
    });
}

#[test]
fn copying_of_snapshots_waits_for_the_owner_before() {
    run(async |env| {
        let (world, _writer) = silent(env).await?;
        let dir = env.make_dir("target")?;
        let target = url(&dir);
        let owner = world.new.config["owner"].to_string();
        let args = ["copy", "--source", &url(&world.store), "--target", &target, "--owner", &owner];
        let changed = world.hand_over(&[SECOND]).await?;
        let copied = timeout(WAIT + LEASE * 2, snapshots(&args)).await.context("it never ends")??;
        copied.text()?;
        ensure!(changed.elapsed() >= WAIT, "it was done after {:?}", changed.elapsed());
        let target = open(&dir)?;
        let names = async |store: &Store| -> Result<Vec<SnapshotName>> {
            Ok(store.list().await?.into_iter().map(|one| one.name).collect())
        };
        let (there, copied) = (names(&open(&world.store)?).await?, names(&target).await?);
        ensure!(!there.is_empty() && there == copied, "{copied:?} is copied, of {there:?}");
        let record: Value = serde_json::from_slice(&target.handover().await?.context("no record")?)?;
        ensure!(record["reason"] == "Waited" && record["ownerId"] == SECOND, "{record}");
        Ok(())
    });
}
