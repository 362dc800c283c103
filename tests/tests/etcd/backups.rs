use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use etcd_client::PutOptions;
use jiff::Timestamp;
use repot_etcd::backup::prove::{self, Options};
use repot_etcd::backup::record::{State, Verdict};
use repot_etcd::backup::store_ref::StoreRef;
use repot_etcd::backup::take::{self, Asked};
use repot_etcd::backup::{Backups, Error};
use repot_etcd::digest::{digest, glance};
use repot_etcd::snapshot::restore::prove::Tools;
use repot_tests::test_env::TestEnv;
use repot_tests::{binaries, run};
use serde_json::Value;

use super::world::{Revived, World, restore, snapshots, url};

const ASKED: Asked<'static> = Asked { name: "b-1", owner: "uid-1" };

fn options(env: &TestEnv) -> Result<Options> {
    let tools = Tools { etcd: binaries::find("etcd")?, etcdutl: binaries::find("etcdutl")? };
    Ok(Options { scratch: env.make_dir("scratch")?, tools })
}

async fn take(world: &World, env: &TestEnv) -> Result<Backups> {
    let backups = Backups::of(&world.store);
    take::take(&backups, &ASKED, &world.client, &env.make_dir("scratch")?, Timestamp::now()).await?;
    Ok(backups)
}

/// The one snapshot of the backup.
fn snapshot(dir: &Path) -> Result<PathBuf> {
    let all = fs::read_dir(dir.join("backups/b-1/v2"))?.next().context("there is no snapshot")?;
    Ok(all?.path())
}

#[test]
fn digest_of_a_backup_and_of_what_is_restored_from_it_is_that_of_its_source() {
    run(async |env| {
        let world = World::start(env).await?;
        world.write("first", 300).await?;
        // A value that is a page of its own, and one that was deleted and made again.
        world.client.kv_client().put("/large", vec![7; 1 << 20], None).await?;
        world.client.kv_client().put("/first/0001", "again", None).await?;
        let source = digest(&world.client).await?;
        ensure!(source.keys == 301 && source.revision == glance(&world.client).await?.revision, "{source:?}");

        let backups = take(&world, env).await?;
        let Verdict::Sound(found) = prove::prove(&backups, "b-1", &options(env)?).await? else {
            bail!("it is corrupt");
        };
        ensure!(source == found.into(), "{source:?}");
        let taken = backups.taken("b-1").await?.context("no record")?;
        ensure!(taken.state == State::Stored && taken.revision == Some(source.revision.0), "{taken:?}");
        ensure!(backups.names().await? == ["b-1"], "other names");

        // With the revision raised, as members are restored.
        let data_dir = env.path().join("restored");
        restore(&backups.store("b-1")?, data_dir.clone()).await?;
        let revived = Revived::start(env, &data_dir).await?;
        let restored = digest(&revived.client).await?;
        ensure!(restored.continues(&source) && restored.revision > source.revision, "{restored:?}");
        // So it can be told from one that somebody wrote to, in any way.
        let mut kv = revived.client.kv_client();
        kv.put("/first/0002", "other", None).await?;
        ensure!(!digest(&revived.client).await?.continues(&source), "a changed value is not seen");
        let mut kv = world.client.kv_client();
        kv.delete("/first/0003", None).await?;
        ensure!(!digest(&world.client).await?.continues(&source), "a missing key is not seen");
        Ok(())
    });
}

#[test]
fn lease_that_ends_changes_no_digest() {
    run(async |env| {
        let world = World::start(env).await?;
        world.write("kept", 20).await?;
        let before = digest(&world.client).await?;
        let lease = world.client.lease_client().grant(3600, None).await?.id();
        let leased = Some(PutOptions::new().with_lease(lease));
        let mut kv = world.client.kv_client();
        for name in ["/a", "/kept/zz", "/z"] {
            kv.put(name, "for a while", leased.clone()).await?;
        }
        let during = digest(&world.client).await?;
        world.client.lease_client().revoke(lease).await?;
        let after = digest(&world.client).await?;
        ensure!(during.continues(&before) && after.continues(&during), "{before:?} {during:?} {after:?}");
        ensure!(after.revision > during.revision && during.revision > before.revision, "{after:?}");
        // The same value written once more is a change.
        kv.put("/kept/0002", "kept 2".repeat(3), None).await?;
        ensure!(!digest(&world.client).await?.continues(&before), "a write is not seen");
        Ok(())
    });
}

#[test]
fn damaged_backup_is_found_corrupt_once_and_for_all() {
    run(async |env| {
        let world = World::start(env).await?;
        world.write("first", 50).await?;
        let backups = take(&world, env).await?;
        let file = snapshot(&world.dir)?;
        let mut bytes = fs::read(&file)?;
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&file, bytes)?;
        let program = |name| binaries::find(name).map(|path| path.display().to_string());
        let (etcd, etcdutl) = (program("etcd")?, program("etcdutl")?);
        let store = url(&world.dir);
        let args = ["prove", "--store", &store, "--name", "b-1", "--etcd", &etcd, "--etcdutl", &etcdutl];
        for _ in 0..2 {
            let output = snapshots(&args).await?;
            ensure!(output.code == 3, "{output:?}");
            let said: Value = serde_json::from_slice(&output.stdout)?;
            ensure!(said["corrupt"].as_str().is_some_and(|why| why.contains("is damaged")), "{said}");
        }
        // What was found out is in the store, for whoever asks later.
        ensure!(matches!(backups.verdict("b-1").await?, Some(Verdict::Corrupt(_))), "no verdict");
        Ok(())
    });
}

#[test]
fn taking_is_repeated_after_a_failure_and_never_over_another_s_backup() {
    run(async |env| {
        let mut world = World::start(env).await?;
        world.write("first", 10).await?;
        let scratch = env.make_dir("scratch")?;
        let endpoint = world.etcd.endpoints().join(",");
        let store = url(&world.dir);
        let scratch = scratch.display().to_string();
        let args = [
            "take",
            "--store",
            &store,
            "--name",
            "b-1",
            "--owner",
            "uid-1",
            "--endpoints",
            &endpoint,
            "--scratch",
            &scratch,
        ];
        world.etcd.member(0).kill();
        let output = snapshots(&args).await?;
        ensure!(output.code == 1, "{output:?}");
        let backups = Backups::of(&world.store);
        let failed = backups.taken("b-1").await?.context("no record")?;
        ensure!(
            failed.state == State::Failed && failed.failures == 1 && failed.message.is_some(),
            "{failed:?}"
        );

        world.etcd.member(0).restart().await?;
        for _ in 0..2 {
            let output = snapshots(&args).await?;
            ensure!(output.code == 0, "{output:?}");
        }
        let taken = backups.taken("b-1").await?.context("no record")?;
        ensure!(taken.state == State::Stored && taken.begun == failed.begun, "{taken:?}");
        ensure!(fs::read_dir(world.dir.join("backups/b-1/v2"))?.count() == 1, "it was taken twice");
        let other = Asked { name: "b-1", owner: "uid-2" };
        let now = Timestamp::now();
        let refused = take::take(&backups, &other, &world.client, env.path(), now).await;
        ensure!(matches!(refused, Err(Error::Owner { .. })), "{refused:?}");

        backups.remove("b-1").await?;
        backups.remove("b-1").await?;
        ensure!(
            backups.names().await?.is_empty() && backups.taken("b-1").await?.is_none(),
            "it is still there"
        );
        let missing = prove::prove(&backups, "b-1", &options(env)?).await;
        ensure!(matches!(missing, Err(Error::NotStored(_))), "{missing:?}");
        Ok(())
    });
}

#[test]
fn directories_of_an_object_are_found_as_stores() {
    run(async |env| {
        let world = World::start(env).await?;
        let (container, prefix) = (env.path().display().to_string(), "p/a".to_owned());
        let provider = "Local".to_owned();
        let place = StoreRef { provider, container, prefix, endpoint: None, secret_ref: None };
        let (store, _secret) = place.open(&Default::default(), Duration::from_secs(5))?;
        let backups = Backups::of(&store);
        ensure!(backups.names().await?.is_empty(), "there is something");
        take::take(&backups, &ASKED, &world.client, env.path(), Timestamp::now()).await?;
        ensure!(env.path().join("p/a/backups/b-1/backup.json").is_file(), "it is elsewhere");
        Ok(())
    });
}
