//! `repot snapshots import`: the newest state of another store as a named backup.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use repot_etcd::backup::Backups;
use repot_etcd::backup::record::State;
use repot_etcd_core::snapshot::Compression;
use repot_tests::run;
use repot_tests::test_env::TestEnv;
use repot_tests::tool::Output;

use super::copying::content;
use super::world::{Keys, Revived, World, dump, duplicate, open, restore, snapshots, url};

const OWNER: &str = "of-a-test";

async fn import(source: &Path, target: &Path, name: &str) -> Result<Output> {
    let (source, target) = (url(source), url(target));
    snapshots(&["import", "--source", &source, "--store", &target, "--name", name, "--owner", OWNER]).await
}

/// What an etcd holds that is made of a backup.
async fn restored(env: &TestEnv, target: &Path, name: &str) -> Result<Keys> {
    let data = env.path().join(format!("{name}.etcd"));
    restore(&Backups::of(&open(target)?).store(name)?, data.clone()).await?;
    let revived = Revived::start(env, &data).await?;
    Ok(dump(&revived.client).await?.1)
}

/// A backup below the store of the etcd, as an EtcdBackup takes it.
async fn take(world: &World, name: &str) -> Result<()> {
    let (store, endpoints) = (url(&world.dir), world.etcd.endpoints().join(","));
    let args = ["take", "--store", &store, "--name", name, "--owner", OWNER, "--endpoints", &endpoints];
    snapshots(&args).await?.text().map(drop)
}

#[test]
fn newest_state_of_another_store_becomes_a_backup() {
    run(async |env| {
        let (world, target) = (World::start(env).await?, env.make_dir("target")?);
        world.write("a", 20).await?;
        let full = world.full(false).await?;
        world.write("b", 20).await?;
        world.delta(full.name.last, Compression::Gzip).await?;
        let (_, with_delta) = dump(&world.client).await?;
        let before = content(&world.dir)?;
        import(&world.dir, &target, "one").await?.text()?;
        ensure!(restored(env, &target, "one").await? == with_delta, "it is not full and delta");
        let record = Backups::of(&open(&target)?).taken("one").await?;
        ensure!(
            record.as_ref().is_some_and(|record| record.state == State::Stored && record.owner == OWNER),
            "{record:?}"
        );

        // One that was asked for later is newer than what the agent took before, and one that has not ended is none.
        world.write("c", 20).await?;
        take(&world, "later").await?;
        let (_, later) = dump(&world.client).await?;
        world.write("d", 20).await?;
        take(&world, "unfinished").await?;
        let record = world.dir.join("backups/unfinished/backup.json");
        fs::write(&record, fs::read_to_string(&record)?.replace("Stored", "Running"))?;
        import(&world.dir, &target, "two").await?.text()?;
        ensure!(restored(env, &target, "two").await? == later, "it is not the backup that was taken last");
        ensure!(content(&world.dir)? == before, "the source is not what it was");
        Ok(())
    });
}

#[test]
fn import_that_cannot_be_done_is_written_down_and_may_be_done_again() {
    run(async |env| {
        let (world, target) = (World::start(env).await?, env.make_dir("target")?);
        let failed = import(&world.dir, &target, "b").await?;
        ensure!(!failed.succeeded() && failed.stderr.contains("holds no full snapshot"), "{}", failed.stderr);
        let backups = Backups::of(&open(&target)?);
        let record = backups.taken("b").await?;
        let is_told =
            |message: Option<&str>| message.is_some_and(|text| text.contains("holds no full snapshot"));
        ensure!(
            record.as_ref().is_some_and(|r| r.state == State::Failed && is_told(r.message.as_deref())),
            "{record:?}"
        );

        world.write("a", 20).await?;
        world.full(false).await?;
        let (_, keys) = dump(&world.client).await?;
        // What an earlier attempt has left would be the newest by its name.
        let other = World::start(env).await?;
        other.write("left", 200).await?;
        other.full(false).await?;
        duplicate(&other.dir, &target.join("backups/b"))?;
        import(&world.dir, &target, "b").await?.text()?;
        ensure!(restored(env, &target, "b").await? == keys, "it is not what the source holds");

        let stranger =
            ["--source", &url(&other.dir), "--store", &url(&target), "--name", "b", "--owner", "other"];
        let refused = snapshots(&[&["import"][..], &stranger].concat()).await?;
        ensure!(!refused.succeeded() && refused.stderr.contains("is that of"), "{}", refused.stderr);
        Ok(())
    });
}
